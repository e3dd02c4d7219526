// SPDX-License-Identifier: Apache-2.0
// The time in which the processors of a machine are idle.
#pragma once

#include <tutti/tutti.hpp>

namespace apps {

/// The time for which a stretch of a program leaves a rank's share of its machine idle. The
/// kernel's time for messages is not idle, though no thread of the program has it. Other programs
/// count like this one, so the machine must be quiet.
class IdleTime {
 public:
  /// Finds how many ranks share a machine, by its boot id: hosts in namespaces of one machine share
  /// it, too. Collective.
  explicit IdleTime(tutti::Communicator& world);

  void begin();
  /// Ends a stretch that took so many seconds.
  void end(double seconds);
  /// The idle seconds per stretch, on average over stretches and ranks: the duration of a stretch,
  /// less a rank's part of the time of busy processors. Collective. Negative if /proc/stat cannot
  /// be read.
  double per_stretch();

 private:
  tutti::Communicator& world_;
  double ranks_ = 1;  ///< number of ranks on this machine
  double begun_ = 0;
  double idle_ = 0;
  int stretches_ = 0;
  bool is_readable_ = true;
};

}  // namespace apps
