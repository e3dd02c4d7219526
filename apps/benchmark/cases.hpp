// SPDX-License-Identifier: Apache-2.0
// What each collective moves: sizes as nccl-tests count them, and what must come out.
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
  std::size_t count = 0;  ///< as nccl-tests print it: elements that a call is given per rank
};

/// A collective.
struct Case {
  const char* name;
  bool reduces;   ///< combines elements, so that there is an operation to name
  bool in_place;  ///< the output is the input
  bool has_sizes;
  /// busbw / algbw. Source: nccl-tests, doc/PERFORMANCE.md.
  double (*bus_factor)(int ranks);
  /// The least that one rank moves through the memory, in units of S, as the mean over the ranks:
  /// every input is read once and every output written once.
  double (*memory_factor)(int ranks);
  /// At most `bytes`, rounded down to whole elements, and to equal blocks where a rank has one.
  /// No pairs: `bytes` are too few.
  Layout (*layout)(std::size_t bytes, std::size_t element_bytes, int ranks);
  /// What rank `rank` finds in an output of `count` elements; empty where nothing is promised.
  std::vector<Stretch> (*expected)(std::size_t count, int rank, int ranks, int root);
};

/// True if one rank gives what others get, or gets what others give.
bool has_root(const Case& chosen);

/// Whom a rank exchanges messages with in "sendrecv": 0 with 1, 2 with 3; -1 for nobody.
int partner_of(int rank, int ranks);

/// The busbw that no implementation exceeds where the data come from the memory, of which each rank
/// moves `memory_gbs`; 0 where there is no bus.
double busbw_limit(const Case& chosen, int ranks, double memory_gbs);

/// Errors  invalid_argument, with the list of names.
const Case& find_case(std::string_view name);

/// The shapes of "resnet50", of "bert-base", or of a file with one shape per line: "64x3x7x7",
/// "64, 3, 7, 7" or "64 3 7 7"; what follows a '#' is a comment.
/// Errors  invalid_argument: no such file, or a line (with its number) that is no shape.
std::vector<tutti::Shape> load_model(const std::string& name_or_file);

/// All tensors of a model.
Layout layout_of(const std::vector<tutti::Shape>& shapes, std::size_t element_bytes);

}  // namespace apps::benchmark
