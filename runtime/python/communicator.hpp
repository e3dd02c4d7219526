// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nanobind/nanobind.h>

#include "tutti/communicator.hpp"
#include "tutti/statistics.hpp"

#include "runtime/python/calls.hpp"
#include "runtime/python/pending.hpp"

namespace tutti::python {

/// A communicator as an object of Python. Its destruction may wait for a thread that runs Python
/// code.
class PyCommunicator {
 public:
  PyCommunicator(Communicator communicator, bool is_asynchronous)
      : communicator_(std::make_unique<Communicator>(std::move(communicator))),
        is_asynchronous_(is_asynchronous) {}
  PyCommunicator(PyCommunicator&&) = default;
  PyCommunicator& operator=(PyCommunicator&&) = delete;
  ~PyCommunicator() { close(); }

  /// Closes the communicator. In a forked process it leaves everything as it is: the group is its
  /// parent's.
  void close() {
    if (!communicator_) return;
    if (occupancy_->is_inherited()) {
      static_cast<void>(communicator_.release());
      return;
    }
    {
      const nb::gil_scoped_release released;
      communicator_.reset();
    }
    under_way_.leave();
  }
  /// Errors  invalid_argument once it is closed.
  [[nodiscard]] Communicator& get() const;
  [[nodiscard]] Occupancy& occupancy() const { return *occupancy_; }
  [[nodiscard]] UnderWay& under_way() { return under_way_; }
  /// Settings::asynchronous, which also holds for stores over it.
  [[nodiscard]] bool is_asynchronous() const { return is_asynchronous_; }

 private:
  std::unique_ptr<Occupancy> occupancy_ = std::make_unique<Occupancy>();
  UnderWay under_way_;  // its arrays outlive the calls
  std::unique_ptr<Communicator> communicator_;
  bool is_asynchronous_;
};

/// Reads arguments. An error about them on this rank becomes an error of all ranks. An exception of
/// Python code meanwhile, a generator of keys for example, is raised here as it is, and is a
/// UserCodeError on the others.
template <class Ranks, class Read>
void read_on_all(Ranks& ranks, Read&& read) {
  try {
    read();
  } catch (const Error&) {
    const std::exception_ptr error = std::current_exception();
    blocking([&] { ranks.agree([&] { std::rethrow_exception(error); }); });
  } catch (const nb::python_error& raised) {
    const Error error(ErrorCode::user_code, "the arguments raised " + text_of_exception(raised));
    try {
      blocking([&] { ranks.agree([&] { throw error; }); });
    } catch (const Error&) {  // NOLINT: the others have the error, and this rank has the original
    }
    throw;
  }
}

/// The statistics as a dict of Python's own types.
nb::dict to_python(const Statistics& statistics);

void bind_communicator(nb::module_& module);
void bind_reductions(nb::module_& module);
void bind_blocks(nb::class_<PyCommunicator>& type);
void bind_store(nb::module_& module);
void bind_optimizers(nb::module_& module);

}  // namespace tutti::python
