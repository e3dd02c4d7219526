// SPDX-License-Identifier: Apache-2.0
// Measures for --tuning which way through this node is fastest, for each kind and size of call.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>

#include "support/progress.hpp"

namespace apps::doctor {

/// A kind of call, at a size, whose fastest way was found.
struct Tuned {
  std::string call;
  std::size_t bytes = 0;
  double margin = 1;  ///< how many times faster it is than the static choice
};

struct Tuning {
  std::vector<Tuned> tuned;
  /// Calls left out for lack of time: "32 MiB: allgather; push".
  std::vector<std::string> left_out;
  double seconds = 0;
  std::string text;  ///< the text for a tuning file
};

struct TuneOptions {
  double seconds = 20;
  /// Gives rank 0's value to all ranks, which must agree when to stop.
  std::function<int(int)> share;
  bool is_root = false;
  bool is_watched = false;  ///< rank 0 draws a bar; else it prints a line for each size
};

/// Measures with `world`, which learns at once. Its ranks are those of one node, and more than one.
/// Order  collective. Errors: those of the communicator.
Tuning tune(tutti::Communicator& world, const TuneOptions& options);

/// The result as text: the calls that have become faster and how many times, and how to use the
/// file.
std::string to_lines(const Tuning& result, const std::string& file, int ranks);

}  // namespace apps::doctor
