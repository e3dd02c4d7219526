// SPDX-License-Identifier: Apache-2.0
// The collectives that are measured: the sizes that each moves, as nccl-tests count them, and its
// results.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/shape.hpp>

#include "apps/benchmark/pattern.hpp"

namespace apps::benchmark {

/// One rank's tensors for one call: one pair, or one per tensor of a model.
struct Layout {
  struct Pair {
    tutti::Shape input;
    tutti::Shape output;
  };
  std::vector<Pair> pairs;
  std::size_t bytes = 0;  ///< S of the bandwidths: the size of the whole vector of the call
  std::size_t count = 0;  ///< elements that a call is given per rank, as nccl-tests print them
};

/// A collective that can be measured.
struct Case {
  const char* name;
  bool reduces;   ///< combines elements, so that there is an operation to name
  bool in_place;  ///< the output is the input
  bool has_sizes;
  /// The factor busbw / algbw. Source: nccl-tests, doc/PERFORMANCE.md.
  double (*bus_factor)(int ranks);
  /// The least data that one rank moves through the memory, in units of S, as the mean over the
  /// ranks: every input is read once and every output written once.
  double (*memory_factor)(int ranks);
  /// The layout of at most `bytes`, rounded down to whole elements, and to equal blocks where a
  /// rank has one. Without pairs if `bytes` are too few.
  Layout (*layout)(std::size_t bytes, std::size_t element_bytes, int ranks);
  /// The elements that rank `rank` finds in an output of `count` elements; empty where nothing is
  /// promised.
  std::vector<Stretch> (*expected)(std::size_t count, int rank, int ranks, int root);
};

/// True if one rank gives data that others get, or gets data that others give.
bool has_root(const Case& chosen);

/// The rank with which a rank exchanges messages in "sendrecv": 0 with 1, 2 with 3; -1 for none.
int partner_of(int rank, int ranks);

/// The busbw that no implementation exceeds where the data come from the memory, of which each rank
/// moves `memory_gbs`; 0 where there is no bus.
double busbw_limit(const Case& chosen, int ranks, double memory_gbs);

/// The collective of this name. Errors  invalid_argument, with the list of names.
const Case& find_case(std::string_view name);

/// The shapes of "resnet50", of "bert-base", or of a file with one shape per line: "64x3x7x7", "64,
/// 3, 7, 7" or "64 3 7 7"; a '#' begins a comment.
/// Errors  invalid_argument: no such file, or a line (with its number) that is no shape.
std::vector<tutti::Shape> load_model(const std::string& name_or_file);

/// The layout that has all tensors of a model.
Layout layout_of(const std::vector<tutti::Shape>& shapes, std::size_t element_bytes);

}  // namespace apps::benchmark
