// SPDX-License-Identifier: Apache-2.0
// nanobind's text about arguments that no function takes is a list of several lines. Here it
// becomes a sentence, at the functions' own entry points, because nanobind has no other place for
// it.
#include "runtime/python/type_errors.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/python/arguments.hpp"

namespace tutti::python {

namespace {

constexpr std::string_view kListing =
    "(): incompatible function arguments. The following argument types are supported:\n    1. ";
constexpr std::string_view kGiven = "\nInvoked with types: ";

/// The parameters in a signature: "keys: int, priority: int = 0" of "push(self, keys: int,
/// priority: int = 0) -> None".
std::string_view parameters_of(std::string_view signature) {
  signature = signature.substr(0, signature.rfind(") -> "));
  signature.remove_prefix(std::min(signature.find('(') + 1, signature.size()));
  if (!signature.starts_with("self")) return signature;
  signature.remove_prefix(4);
  return signature.starts_with(", ") ? signature.substr(2) : signature;
}

/// The types of given arguments without braces: "int, priority: str" of "int, kwargs = { priority:
/// str }".
std::string without_braces(std::string_view given) {
  constexpr std::string_view kNamed = "kwargs = { ";
  const std::size_t named = given.find(kNamed);
  if (named == given.npos) return std::string(given);
  std::string_view rest = given.substr(named + kNamed.size());
  rest = rest.substr(0, rest.rfind(" }"));
  return std::string(given.substr(0, named)).append(rest);
}

/// The sentence for an error about arguments; nothing for any other error.
std::string sentence_of(std::string_view text) {
  const std::size_t listing = text.find(kListing);
  const std::size_t given_at = text.rfind(kGiven);
  if (listing == text.npos || given_at == text.npos) return {};
  std::string_view signature = text.substr(listing + kListing.size());
  signature = signature.substr(0, signature.find('\n'));
  std::string_view given = text.substr(given_at + kGiven.size());
  const bool is_method = signature.find("(self") != signature.npos;
  if (is_method) {  // the first of the given types is that of the object
    const std::size_t comma = given.find(", ");
    given = comma == given.npos ? std::string_view() : given.substr(comma + 2);
  }
  const std::string_view name = text.substr(0, listing);
  return std::string(name.empty() ? "value of an attribute" : name) + ": expected (" +
         std::string(parameters_of(signature)) + "); got (" + without_braces(given) + ")";
}

/// Replaces the exception that is raised by one with a short text, if it is about arguments. An
/// exception in making the text is raised instead.
void shorten() noexcept {
  try {
    nb::python_error raised;
    const std::string sentence = sentence_of(text_of(raised.value()));
    if (sentence.empty()) {
      raised.restore();
    } else {
      PyErr_SetString(PyExc_TypeError, sentence.c_str());
    }
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
}

/// The entry points of nanobind's functions, of which there are few: each has a number here. One
/// list per process, as the module is.
constexpr std::size_t kMostEntries = 8;
std::array<vectorcallfunc, kMostEntries>& entries() noexcept {
  static constinit std::array<vectorcallfunc, kMostEntries> known{};
  return known;
}

template <std::size_t kEntry>
PyObject* enter(PyObject* function, PyObject* const* arguments, std::size_t count,
                PyObject* names) {
  PyObject* const result = entries()[kEntry](function, arguments, count, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0) shorten();
  return result;
}

template <std::size_t... kEntry>
constexpr std::array<vectorcallfunc, kMostEntries> all_of(std::index_sequence<kEntry...>) {
  return {enter<kEntry>...};
}
constexpr auto kOurs = all_of(std::make_index_sequence<kMostEntries>());

/// Makes a function of nanobind's go through this file's entry points. Their place is the first
/// one behind Python's own head of the object, which the stable ABI of Python does not tell.
void guard(nb::handle function) {
  if (!is_of_type(function, "nanobind", "nb_func") &&
      !is_of_type(function, "nanobind", "nb_method")) {
    return;
  }
#ifdef Py_LIMITED_API
  constexpr Py_ssize_t offset = sizeof(PyVarObject);
#else
  const Py_ssize_t offset = Py_TYPE(function.ptr())->tp_vectorcall_offset;
#endif
  auto& entry =
      *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function.ptr()) + offset);
  if (std::ranges::find(kOurs, entry) != kOurs.end()) return;
  auto& known = entries();
  auto* place = std::ranges::find(known, entry);
  if (place == known.end()) place = std::ranges::find(known, nullptr);
  if (place == known.end()) return;  // more entry points than were ever seen: its text stays long
  *place = entry;
  entry = kOurs[static_cast<std::size_t>(place - known.begin())];
}

void guard_all(nb::handle members) {
  for (const nb::handle member : members.attr("values")()) {
    guard(member);
    if (PyObject_TypeCheck(member.ptr(), &PyProperty_Type) == 0) continue;
    for (const char* side : {"fget", "fset"}) guard(nb::object(member.attr(side)));
  }
}

}  // namespace

void shorten_type_errors(const nb::module_& module) {
  const nb::object members = module.attr("__dict__");
  guard_all(members);
  for (const nb::handle member : members.attr("values")()) {
    if (PyType_Check(member.ptr()) != 0) guard_all(nb::object(member.attr("__dict__")));
  }
}

}  // namespace tutti::python
