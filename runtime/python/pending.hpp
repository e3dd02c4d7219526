// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls, and the arrays that they may still read or write.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>
#include <utility>
#include <vector>

#include "tutti/pending.hpp"

#include "runtime/python/arguments.hpp"
#include "runtime/python/calls.hpp"

namespace tutti::python {

/// The handle of a call that a program has. The arrays are kept by the store as well, so that a
/// handle may be dropped while its call is under way. It is used with the interpreter's lock.
class PyPending {
 public:
  PyPending(Pending pending, std::shared_ptr<Items> items)
      : pending_(std::move(pending)), items_(std::move(items)) {}

  [[nodiscard]] bool is_under_way() const { return !pending_.ready(); }
  /// True if the call is complete. Then its arrays are the program's again.
  [[nodiscard]] bool ready() const {
    const bool is_complete = pending_.ready();
    if (is_complete) items_->give_back();
    return is_complete;
  }
  /// Errors  invalid_argument in a forked process, in which the call does not go on.
  void require_own_process(const char* what) const { python::require_own_process(what, forks_); }
  void wait() const {
    if (!ready()) require_own_process("wait");
    try {
      blocking([&] { pending_.wait(); });
    } catch (...) {
      static_cast<void>(ready());
      throw;
    }
    items_->give_back();
  }

 private:
  Pending pending_;
  std::shared_ptr<Items> items_;
  unsigned forks_ = num_forks();
};

/// The calls of one store or communicator that may be under way.
class UnderWay {
 public:
  UnderWay() = default;
  UnderWay(UnderWay&&) = default;
  UnderWay& operator=(UnderWay&&) = delete;
  ~UnderWay() { leave(); }

  void add(const PyPending& call) {
    drop_complete(left_behind());
    drop_complete(calls_);
    calls_.push_back(call);
  }
  /// Called when the object is gone. Another object may keep the group, whose helper still reads
  /// and writes the arrays of calls that are not complete.
  void leave() {
    auto& left = left_behind();
    left.insert(left.end(), calls_.begin(), calls_.end());
    calls_.clear();
    drop_complete(left);
  }

 private:
  using Calls = std::vector<PyPending>;

  /// Drops the calls that are complete. Owners of their arrays may run code that makes calls, so
  /// they are dropped when the list is whole again.
  static void drop_complete(Calls& calls) {
    Calls complete;
    std::erase_if(calls, [&](const PyPending& call) {
      if (call.is_under_way()) return false;
      complete.push_back(call);
      return true;
    });
    for (const PyPending& call : complete) static_cast<void>(call.ready());
  }
  /// Calls that were left behind. There is one list per process, which never ends: Python may have
  /// ended before it.
  static Calls& left_behind() {
    static auto* const calls = new Calls;
    return *calls;
  }

  Calls calls_;
};

}  // namespace tutti::python
