// SPDX-License-Identifier: Apache-2.0
// --tuning: measures which way through this node is fastest for each kind and size of call.
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
  double margin = 1;  ///< how many times faster than the static choice
};

struct Tuning {
  std::vector<Tuned> tuned;
  std::vector<std::string> left_out;  ///< "32 MiB: allgather; push": for lack of time
  double seconds = 0;
  std::string text;  ///< of a tuning file
};

struct TuneOptions {
  double seconds = 20;
  /// Rank 0's value, on all ranks: ranks must agree when to stop.
  std::function<int(int)> share;
  bool is_root = false;
  bool is_watched = false;  ///< rank 0 draws a bar; else it prints a line for each size
};

/// Measures with `world`, which learns at once. Its ranks are those of one node, and more than one.
/// Order  collective. Errors: those of the communicator.
Tuning tune(tutti::Communicator& world, const TuneOptions& options);

/// Which calls have become how many times faster, and how to use the file.
std::string to_lines(const Tuning& result, const std::string& file, int ranks);

}  // namespace apps::doctor
