// SPDX-License-Identifier: Apache-2.0
// Arguments of calls from Python: keys, arrays, dtypes, settings.
#pragma once

#include <cstdint>
#include <functional>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/arguments.hpp"
#include "tutti/row_sparse.hpp"
#include "tutti/settings.hpp"

#include "runtime/python/dlpack.hpp"
#include "runtime/python/streams.hpp"

namespace tutti::python {

namespace nb = nanobind;

enum class Access : bool { read, write };

/// An argument that is True or False, of Python or of NumPy.
struct Flag {
  bool value = false;
  operator bool() const { return value; }  // NOLINT(google-explicit-constructor): it is one
};

/// Throws invalid_argument with this text.
[[noreturn]] void refuse(const std::string& text);
std::string name_of_type(nb::handle given);
/// True if an object's type has this name, and is of this module.
bool is_of_type(nb::handle object, const char* module, const char* name) noexcept;

/// str() and repr() of an object. Their exceptions come out.
std::string text_of(nb::handle object);
std::string repr_of(nb::handle object);

/// The bytes of a path: of a str, which need not be UTF-8, of bytes or of an os.PathLike.
/// Errors  invalid_argument, which says what was given.
std::string path_text(nb::handle given, const std::string& what);

Key read_key(nb::handle given);
/// A device as arrays name it, "cpu" or "gpu(1)", or as torch does, "cuda:1": the text that str()
/// makes of the argument.
Device read_device(nb::handle given);

/// Makes the name of an argument, for a message.
using Where = std::function<std::string()>;

/// Errors  invalid_argument: the elements lie at odd addresses.
void require_aligned(const TensorView& view, const Where& where);

/// DLPack's table of a type of arrays; null if it has none that is known here.
const dlpack::Table* table_of(nb::handle type);

/// Arrays of other libraries, borrowed without copies as long as the object lives. Made and
/// destroyed with the interpreter's lock.
class Loans {
 public:
  Loans() = default;
  Loans(Loans&& other) noexcept;
  Loans& operator=(Loans&&) = delete;
  ~Loans() { give_back(); }

  /// Gives the arrays back to their owners.
  void give_back() noexcept;
  /// Borrows an array. Errors  invalid_argument, with the name that `where` makes: no array,
  /// another dtype, not contiguous, read-only, elements at odd addresses.
  TensorView borrow(nb::handle given, Access access, const Where& where);
  TensorView borrow(nb::handle given, Access access, const char* where) {
    return borrow(given, access, [where] { return std::string(where); });
  }

 private:
  TensorView borrow_any(nb::handle given, Access access, const Where& where);
  std::optional<TensorView> borrow_buffer(nb::handle given, Access access, const Where& where);
  std::optional<TensorView> borrow_by_table(nb::handle given, Access access, const Where& where);
  TensorView borrow_dlpack(nb::handle given, Access access, const Where& where);
  void wait_for(int gpu, void* stream, const Where& where);
  std::optional<std::intptr_t> order(nb::handle given, const Where& where);

  BorrowedStreams streams_;
  std::vector<Py_buffer> buffers_;
  std::vector<dlpack::Managed*> plain_;
  std::vector<dlpack::ManagedVersioned*> versioned_;  ///< entries may be null
};

/// One key or many, with the arrays of each: `kv.push(3, a)`, `kv.push([5, 7], [a, b])`,
/// `kv.push({5: a, 7: [b, c]})`.
class Items {
 public:
  /// Reads the keys; of a dict also the arrays of each.
  explicit Items(nb::handle keys);

  /// `given` is None where the keys were a dict.
  void read_values(nb::handle given, const char* argument = "values");
  void read_outputs(nb::handle given, const char* argument = "out");

  [[nodiscard]] Keys keys() const {
    return is_single_ ? Keys(keys_.front()) : Keys(std::span<const Key>(keys_));
  }
  [[nodiscard]] Values values() const { return list<Values>(values_); }
  [[nodiscard]] Outputs outputs() const { return list<Outputs>(outputs_); }
  [[nodiscard]] bool is_single() const { return is_single_; }
  [[nodiscard]] bool has_values() const { return !values_.flat.empty(); }
  [[nodiscard]] const std::vector<Key>& key_list() const { return keys_; }
  /// Gives the arrays back to their owners, when the call is complete. With the interpreter's lock.
  void give_back() noexcept {
    loans_.give_back();
    const nb::object values = std::move(of_dict_);
  }

 private:
  template <class View>
  struct List {
    bool is_nested = false;
    std::vector<View> flat;
    std::vector<std::vector<View>> nested;
  };

  template <class Argument, class View>
  static Argument list(const List<View>& given) {
    if (given.is_nested) return Argument(given.nested);
    return Argument(std::span<const View>(given.flat));
  }
  template <class View>
  void read(nb::handle given, const char* argument, Access access, List<View>& into);
  [[nodiscard]] std::string place(const char* argument, std::size_t index) const;

  bool is_single_ = false;
  std::vector<Key> keys_;
  nb::object of_dict_;
  Loans loans_;
  List<ConstTensorView> values_;
  List<TensorView> outputs_;
};

/// True for a list or a tuple, or for another sequence that is not an array itself. Most are lists.
[[nodiscard]] bool is_list(nb::handle given);

/// Settings of the environment, with those that keyword arguments replace: `timeout=60`.
Settings read_settings(const nb::kwargs& given);

/// A name with its options as one text: "sgd,learning_rate=0.1" of "sgd" and
/// {"learning_rate": 0.1}.
std::string option_text(const std::string& name, const nb::dict& given);

}  // namespace tutti::python

template <>
struct nanobind::detail::type_caster<tutti::python::Flag> {
  NB_TYPE_CASTER(tutti::python::Flag, const_name("bool"))

  bool from_python(handle given, std::uint8_t /*flags*/, cleanup_list* /*list*/) noexcept {
    if (PyBool_Check(given.ptr()) == 0 && !tutti::python::is_of_type(given, "numpy", "bool") &&
        !tutti::python::is_of_type(given, "numpy", "bool_")) {
      return false;
    }
    value.value = PyObject_IsTrue(given.ptr()) == 1;
    return true;
  }
  static handle from_cpp(tutti::python::Flag flag, rv_policy /*policy*/,
                         cleanup_list* /*list*/) noexcept {
    return handle(flag ? Py_True : Py_False).inc_ref();
  }
};
