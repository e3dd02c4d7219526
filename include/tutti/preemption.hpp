// SPDX-License-Identifier: Apache-2.0
// A job that gets a signal to end saves itself first.
//
//     int train() {
//       tutti::PreemptionSignals signals;
//       auto kv = tutti::KVStore::create("dist");
//       while (training) {
//         kv.push(keys, gradients);
//         if (!kv.stop_requested()) continue;  // the same answer on every rank
//         kv.save("run");
//         return tutti::kExitRequeue;
//       }
//     }
#pragma once

#include "tutti/export.h"

namespace tutti {

/// The exit code of a program that has saved itself because it was asked to stop: start it again.
/// (EX_TEMPFAIL; batch scripts requeue the job.)
inline constexpr int kExitRequeue = 75;

/// While an object of this class lives, SIGTERM and SIGUSR1 do not end this process: they ask the
/// job to stop. A signal to one rank is enough: the request travels with the announcement of that
/// rank's next collective call, and KVStore::stop_requested() is true on all ranks from that call
/// on.
///
/// A second signal ends the process at once, as if there were no handler. One that comes within a
/// second of the first does not count: launchers often deliver a signal twice. After SIGTERM, which
/// also comes when another rank has failed, the next call must be joined by all ranks within
/// Settings::grace; else it fails, and nothing is saved. In a process that is forked, which is no
/// rank, the signals do what they did before.
///
/// Order   local, at most one at a time in a process. Make it on every rank, as the program's first
///         act: until then a signal ends the process, as ever.
/// Errors  invalid_argument: there is one already.
class TUTTI_API PreemptionSignals {
 public:
  PreemptionSignals();
  /// The signals do again what they did before; their request is forgotten.
  ~PreemptionSignals();
  PreemptionSignals(const PreemptionSignals&) = delete;
  PreemptionSignals& operator=(const PreemptionSignals&) = delete;

  /// For a program that learns from its options, after the first signals could come, that it cannot
  /// save itself: from now on the process behaves as if there had never been this object. A signal
  /// that has come already comes again, and so usually ends the process. Local.
  void pass_on() noexcept;

  /// True once a signal has come to this rank. Other ranks may not know of it.
  [[nodiscard]] bool received() const noexcept;

 private:
  bool has_signals_ = true;  ///< false once they were passed on
};

}  // namespace tutti
