// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls, and the arrays that they may still read or write.
#pragma once

#include <deque>
#include <memory>
#include <nanobind/nanobind.h>
#include <utility>

#include "tutti/pending.hpp"

#include "runtime/python/arguments.hpp"

namespace tutti::python {

/// The handle that a program has. The arrays are kept by the store as well, so that a handle may be
/// dropped while its call is under way.
struct PyPending {
  Pending pending;
  std::shared_ptr<Items> items;
};

/// The calls of one store or communicator that may be under way.
class UnderWay {
 public:
  void add(const PyPending& call) {
    drop_complete();
    calls_.push_back(call);
  }
  void drop_complete() {
    std::erase_if(calls_, [](const PyPending& call) { return call.pending.ready(); });
  }

 private:
  std::deque<PyPending> calls_;
};

}  // namespace tutti::python
