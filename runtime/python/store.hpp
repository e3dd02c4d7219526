// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nanobind/nanobind.h>
#include <utility>

#include "tutti/error.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizer.hpp"

#include "runtime/python/calls.hpp"
#include "runtime/python/pending.hpp"

namespace tutti::python {

/// A store as an object of Python.
class PyStore {
 public:
  PyStore(KVStore store, bool is_asynchronous)
      : store_(std::make_unique<KVStore>(std::move(store))), is_asynchronous_(is_asynchronous) {}
  PyStore(PyStore&&) = default;
  PyStore& operator=(PyStore&&) = delete;
  ~PyStore() { close(); }

  /// Closes the store. In a forked process it leaves everything as it is: the store is its
  /// parent's.
  void close() {
    if (!store_) return;
    if (occupancy_->is_inherited()) {
      static_cast<void>(store_.release());
      return;
    }
    {
      const nb::gil_scoped_release released;  // a thread of the library may run an updater
      store_.reset();
    }
    under_way_.leave();
  }
  [[nodiscard]] KVStore& get() const {
    if (store_) return *store_;
    throw Error(ErrorCode::invalid_argument, "this store is closed; create a new one");
  }
  [[nodiscard]] Occupancy& occupancy() const { return *occupancy_; }
  [[nodiscard]] UnderWay& under_way() { return under_way_; }
  /// True if push() may return before the push is complete: Settings::asynchronous.
  [[nodiscard]] bool is_asynchronous() const { return is_asynchronous_; }
  /// Keeps the optimizer that the store runs, if it runs one.
  void keep(std::shared_ptr<Optimizer> optimizer) { optimizer_ = std::move(optimizer); }
  [[nodiscard]] std::shared_ptr<Optimizer> optimizer() const { return optimizer_; }

 private:
  std::unique_ptr<Occupancy> occupancy_ = std::make_unique<Occupancy>();
  UnderWay under_way_;  // its arrays outlive the store's calls
  std::unique_ptr<KVStore> store_;
  bool is_asynchronous_;
  std::shared_ptr<Optimizer> optimizer_;
};

/// Runs a call without arrays, in turn and without the interpreter's lock.
template <class Call>
auto simple(PyStore& self, const char* what, Call&& call) {
  const Occupancy::Turn turn(self.occupancy(), what);
  KVStore& store = self.get();
  return blocking([&] { return call(store); });
}

/// Adds the methods with paths, such as save and load, and verify and statistics.
void bind_files(nb::class_<PyStore>& type);

}  // namespace tutti::python
