// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/calls.hpp"

#include <atomic>
#include <exception>
#include <pthread.h>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "tutti/program.hpp"

#include "runtime/python/arguments.hpp"

namespace tutti::python {

namespace {

/// True while this thread is in a call without the interpreter's lock.
thread_local bool is_blocking = false;
thread_local const InCallback* innermost_callback = nullptr;

/// The number of forks. It is one per process, as forks are.
std::atomic<unsigned>& fork_counter() noexcept {
  static std::atomic<unsigned> counter{0};
  return counter;
}

/// The id of Python's main thread.
std::atomic<unsigned long>& main_thread() noexcept {
  static std::atomic<unsigned long> main_thread{0};
  return main_thread;
}

/// True if a handler of a signal has raised an exception, which stays in this thread's state, where
/// blocking() finds it. Python runs handlers on its main thread alone. When Python ends, another
/// thread that asks for its lock never gets it.
bool signal_raised() noexcept {
  if (!is_blocking || PyThread_get_thread_ident() != main_thread().load()) return false;
  if (Py_IsInitialized() == 0) return false;
  const nb::gil_scoped_acquire acquired;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

/// The exception of Python that is nested in an error, if there is one.
nb::object original_of(const std::exception& error) {
  try {
    std::rethrow_if_nested(error);
  } catch (nb::python_error& original) {
    return nb::borrow(original.value());
  } catch (...) {
  }
  return nb::none();
}

void raise(const Error& error) {
  const nb::object make = nb::module_::import_("tutti._errors").attr("make");
  const std::string_view what = error.what();  // may have names of files, in which any bytes may be
  const nb::object text = nb::steal(
      PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "backslashreplace"));
  if (!text.is_valid()) throw nb::python_error();
  const nb::object exception =
      make(std::string(to_string(error.code())), text, error.recoverable(), error.reporter(),
           error.scope() == ErrorScope::agreed, exit_code(error.code()), original_of(error));
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
}

}  // namespace

void watch_signals() {
  const nb::object thread = nb::module_::import_("threading").attr("main_thread")();
  main_thread() = nb::cast<unsigned long>(thread.attr("ident"));
  set_interrupt_check(signal_raised);
}

void translate_errors(nb::module_& /*module*/) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(error);
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError, "an argument is of another type, or text that is not UTF-8");
    }
  });
}

std::string text_of_exception(const nb::python_error& raised) {
  const std::string type = nb::type_name(raised.type()).c_str();
  try {
    return type + ": " + text_of(raised.value());
  } catch (const nb::python_error&) {  // its own text cannot be had
    return type;
  }
}

void watch_forks() {
  fork_counter();
  pthread_atfork(nullptr, nullptr, [] { ++fork_counter(); });
}

unsigned num_forks() noexcept { return fork_counter().load(std::memory_order_relaxed); }

Blocking::Blocking() noexcept : before_(std::exchange(is_blocking, true)) {}
Blocking::~Blocking() { is_blocking = before_; }

InCallback::InCallback(const Occupancy* store) noexcept
    : store_(store), outer_(std::exchange(innermost_callback, this)) {}
InCallback::~InCallback() { innermost_callback = outer_; }

void require_own_process(const char* what, unsigned forks) {
  if (forks == num_forks()) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(what) +
                  ": this process was forked after the store or communicator was made, and is no "
                  "rank of it; arrays that view() and allocate() gave before can be read here; for "
                  "more, make a store of its own with tutti.create(\"local\")");
}

bool Occupancy::is_in_callback() const noexcept {
  for (auto callback = innermost_callback; callback != nullptr; callback = callback->outer_) {
    if (callback->store_ == this) return true;
  }
  return false;
}

void Occupancy::require_free(const char* what) const {
  const bool is_in_use = owner_ != std::thread::id() || is_in_callback();
  if (is_inherited() || !is_in_use) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(what) +
                  ": a call of this object is under way, perhaps the one that has called this; "
                  "make it when that has returned");
}

Occupancy::Turn::Turn(Occupancy& occupancy, const char* what) : occupancy_(occupancy) {
  occupancy.require_own_process(what);
  const bool is_own = occupancy.owner_ == std::this_thread::get_id();
  if ((is_own && innermost_callback != nullptr) || occupancy.is_in_callback()) return;
  if (is_own) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what) +
                    ": this thread is in a call of this object, which a signal's handler or the "
                    "code of an argument has interrupted; make this one when that has returned");
  }
  if (occupancy.owner_ != std::thread::id()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what) +
                    ": another thread is in a call of this object, which one thread uses at a "
                    "time; hold a threading.Lock around its calls");
  }
  occupancy.owner_ = std::this_thread::get_id();
  is_outermost_ = true;
}

Occupancy::Turn::~Turn() {
  if (is_outermost_) occupancy_.owner_ = {};
}

std::shared_ptr<PyObject> shared(nb::object object) {
  return {object.release().ptr(), [](PyObject* owned) {
            if (Py_IsInitialized() == 0) return;
            const nb::gil_scoped_acquire acquired;
            Py_XDECREF(owned);
          }};
}

}  // namespace tutti::python
