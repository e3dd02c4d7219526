// SPDX-License-Identifier: Apache-2.0
// How long the processors of a machine have nothing to do.
#pragma once

#include <tutti/tutti.hpp>

namespace apps {

/// The time that a stretch of a program leaves a rank's share of its machine idle. What the kernel
/// takes for messages is not idle, though no thread of the program has it. Other programs count as
/// this one, so the machine must be quiet.
class IdleTime {
 public:
  /// Finds how many ranks share a machine, by its boot id: hosts in namespaces of one machine share
  /// it, too. Collective.
  explicit IdleTime(tutti::Communicator& world);

  void begin();
  /// The end of a stretch that took so many seconds.
  void end(double seconds);
  /// Seconds per stretch, on average over stretches and ranks: what took place, less what a rank's
  /// part of all busy processors took. Collective. Negative if /proc/stat cannot be read.
  double per_stretch();

 private:
  tutti::Communicator& world_;
  double ranks_ = 1;  ///< on this machine
  double begun_ = 0;
  double idle_ = 0;
  int stretches_ = 0;
  bool is_readable_ = true;
};

}  // namespace apps
