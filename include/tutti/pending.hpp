// SPDX-License-Identifier: Apache-2.0
// The handle of a call that goes on while the program computes.
#pragma once

#include <memory>
#include <utility>

#include "tutti/export.h"

namespace tutti {

class AsyncState;  // the implementation: runtime/job/async_state.hpp

/// An asynchronous call of this rank, from push_async(), pushpull_async() or allreduce_async().
/// Copies are of the same call. One that was default-constructed is complete. Member functions may
/// be called from any thread.
class TUTTI_API Pending {
 public:
  Pending() = default;
  explicit Pending(std::shared_ptr<AsyncState> state) : state_(std::move(state)) {}

  /// True once the call is complete or has failed, so that wait() does not block. Local.
  [[nodiscard]] bool ready() const noexcept;
  /// Returns when the call is complete on this rank: its results are there, and its values belong
  /// to the program again. Ranks may wait at different times, in any order.
  /// Errors  the error of the call, at each wait: mismatch, invalid_argument, out_of_memory,
  ///         user_code, timeout or communication, on all ranks alike. Ranks that are out of step
  ///         cannot go on: one whose call meets a call of another kind, such as a barrier, or that
  ///         gives it another priority. Then the group has failed. invalid_argument in an updater,
  ///         if the call is not complete.
  void wait() const;

 private:
  std::shared_ptr<AsyncState> state_;
};

/// How an asynchronous call treats its values, and when it is carried out.
struct AsyncOptions {
  /// Calls of a higher priority go first, among those that are ready on all ranks. The priority of
  /// a call must be equal on all ranks.
  int priority = 0;
  /// Values in ordinary memory are copied before the call returns. With true they are read later,
  /// and must stay as they are until the call is complete. Values from allocate() always must.
  bool borrow = false;
};

}  // namespace tutti
