// SPDX-License-Identifier: Apache-2.0
// The frame of every call from Python: the interpreter's lock is given back while the library
// works, signals of Python end a wait, and one thread at a time is in a store.
#pragma once

#include <atomic>
#include <memory>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <string>
#include <thread>
#include <utility>

#include "tutti/error.hpp"

namespace tutti::python {

namespace nb = nanobind;

/// Makes this module's waits look for signals of Python, such as that of Ctrl-C.
void watch_signals();

/// Registers the translation of tutti::Error to the exceptions of tutti._errors.
void translate_errors(nb::module_& module);

/// An exception as text: "ValueError: no such key".
std::string text_of_exception(const nb::python_error& raised);

/// Counts the forks between the process that loaded the module and this one.
void watch_forks();
unsigned num_forks() noexcept;

/// Errors  invalid_argument: this process was forked after there had been `forks` of them.
void require_own_process(const char* what, unsigned forks);

/// Owns an object of the library that a forked process must not destroy: there it is leaked,
/// because the resources that it would free or end belong to the process that made it.
template <class Object>
std::shared_ptr<Object> kept_by_this_process(Object object) {
  return {new Object(std::move(object)), [forks = num_forks()](const Object* kept) {
            if (forks == num_forks()) delete kept;
          }};
}

/// While an object lives, the interpreter's lock is free, and waits of this thread can be
/// interrupted.
class Blocking {
 public:
  Blocking() noexcept;
  ~Blocking();
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

 private:
  bool before_;
  nb::gil_scoped_release released_;
};

class Occupancy;

/// Marks that this thread runs Python code on behalf of a call, such as an updater: one of a store,
/// which an asynchronous push calls on a thread of the library.
class InCallback {
 public:
  explicit InCallback(const Occupancy* store = nullptr) noexcept;
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  friend class Occupancy;

  nb::gil_scoped_acquire acquired_;
  const Occupancy* store_;
  const InCallback* outer_;
};

/// Lets one thread at a time into an object. A callback may call the objects that its caller is in,
/// and the object whose callback it is.
class Occupancy {
 public:
  class Turn {
   public:
    /// Errors  invalid_argument, if another thread is in a call, or those of require_own_process().
    Turn(Occupancy& occupancy, const char* what);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Occupancy& occupancy_;
    bool is_outermost_ = false;
  };

  /// True in a process that was forked after the object was made.
  [[nodiscard]] bool is_inherited() const noexcept { return forks_ != num_forks(); }
  /// Errors  invalid_argument: this process was forked after the object was made.
  void require_own_process(const char* what) const { python::require_own_process(what, forks_); }
  /// For calls that end the object. Errors  invalid_argument: a call of it is under way, or this
  /// thread is in its updater.
  void require_free(const char* what) const;

 private:
  /// True if this thread runs a callback of the object.
  [[nodiscard]] bool is_in_callback() const noexcept;

  unsigned forks_ = num_forks();
  std::thread::id owner_{};  // read and written with the interpreter's lock
};

/// Carries out a program's close(). Errors: those of Occupancy::require_free().
template <class Object>
void close_by_program(Object& object) {
  object.occupancy().require_free("close");
  object.close();
}

/// A Python object that threads of the library may drop.
std::shared_ptr<PyObject> shared(nb::object object);

/// Runs `call` without the interpreter's lock. If a signal of Python ended it, the exception of its
/// handler is thrown in its place.
template <class Call>
decltype(auto) blocking(Call&& call) {
  try {
    const Blocking blocking;
    return call();
  } catch (const Error&) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    throw;
  }
}

}  // namespace tutti::python
