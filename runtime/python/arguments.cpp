// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/arguments.hpp"

#include <charconv>
#include <map>
#include <utility>

#include "tutti/error.hpp"

extern char** environ;

namespace tutti::python {

namespace {

/// Clears the exception that was raised, and returns its text.
std::string take_exception() {
  const nb::python_error raised;
  const nb::object value = nb::borrow(raised.value());
  return text_of(value);
}

bool has_method(nb::handle given, const char* name) {
  const nb::object found = nb::getattr(given, name, nb::none());
  return PyCallable_Check(found.ptr()) != 0;
}

/// True for a dict, or another mapping.
bool is_mapping(nb::handle given) {
  return PyDict_Check(given.ptr()) != 0 ||
         (PyUnicode_Check(given.ptr()) == 0 && PyMapping_Check(given.ptr()) != 0 &&
          has_method(given, "keys") && has_method(given, "values"));
}

/// A number of NumPy or PyTorch as Python's own number; any other value as it is.
nb::object plain_number(nb::handle value) {
  const nb::object dimensions = nb::getattr(value, "ndim", nb::none());
  if (!dimensions.equal(nb::int_(0)) || !has_method(value, "item")) return nb::borrow(value);
  return value.attr("item")();
}

bool is_path(nb::handle value) {
  return PyUnicode_Check(value.ptr()) != 0 || PyBytes_Check(value.ptr()) != 0 ||
         nb::hasattr(value, "__fspath__");
}

std::string setting_text(const std::string& name, nb::handle given) {
  if (given.is_none()) return {};
  if (is_path(given)) return path_text(given, "setting " + name);
  const nb::object value = plain_number(given);
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True ? "1" : "0";
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    std::string text;
    for (const nb::handle item : value) {
      text += (text.empty() ? "" : ",") + setting_text(name, item);
    }
    return text;
  }
  if (nb::isinstance<nb::dict>(value)) {
    refuse("setting " + name + ": expected text or a number; got a dict");
  }
  return text_of(value);
}

std::string utf8_of(PyObject* text) {
  const nb::object owned = nb::steal(text);
  Py_ssize_t length = 0;
  const char* const bytes = text == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(text, &length);
  if (bytes == nullptr) throw nb::python_error();
  return {bytes, static_cast<std::size_t>(length)};
}

}  // namespace

std::string path_text(nb::handle given, const std::string& what) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(given.ptr(), &bytes) == 0) {
    refuse(what + ": expected a path, a str or an os.PathLike; " + take_exception());
  }
  const nb::object owned = nb::steal(bytes);
  return {PyBytes_AsString(bytes), static_cast<std::size_t>(PyBytes_Size(bytes))};
}

bool is_list(nb::handle given) {
  PyObject* const object = given.ptr();
  if (PyList_Check(object) != 0 || PyTuple_Check(object) != 0) return true;
  return PySequence_Check(object) != 0 && PyObject_CheckBuffer(object) == 0 &&
         PyUnicode_Check(object) == 0 && !nb::hasattr(given, "__dlpack__") && !is_mapping(given);
}

void refuse(const std::string& text) { throw Error(ErrorCode::invalid_argument, text); }

std::string name_of_type(nb::handle given) {
  return nb::cast<std::string>(nb::object(given.type().attr("__name__")));
}

bool is_of_type(nb::handle object, const char* module, const char* name) noexcept {
  const auto is = [type = object.type()](const char* attribute, const char* text) {
    const nb::object found = nb::getattr(type, attribute, nb::none());
    return PyUnicode_Check(found.ptr()) != 0 &&
           PyUnicode_CompareWithASCIIString(found.ptr(), text) == 0;
  };
  return is("__name__", name) && is("__module__", module);
}

std::string text_of(nb::handle object) { return utf8_of(PyObject_Str(object.ptr())); }
std::string repr_of(nb::handle object) { return utf8_of(PyObject_Repr(object.ptr())); }

Key read_key(nb::handle given) {
  PyObject* const object = given.ptr();
  if (PyUnicode_Check(object) != 0) {
    Py_ssize_t length = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(object, &length);
    if (text == nullptr) refuse("key: expected text of UTF-8; " + take_exception());
    return Key(std::string_view(text, static_cast<std::size_t>(length)));
  }
  if (PyBool_Check(object) != 0 || PyIndex_Check(object) == 0) {
    refuse("key: expected an int or a str; got a " + name_of_type(given));
  }
  const nb::object number = nb::steal(PyNumber_Index(object));
  if (!number.is_valid()) refuse("key: " + take_exception());
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) {
    refuse("key: expected a number of 64 bits; got " + text_of(number));
  }
  return Key(std::int64_t{value});
}

Device read_device(nb::handle given) {
  const std::string text = text_of(given);
  const std::size_t length = text.find_first_of("(:");
  const std::string kind = text.substr(0, length);
  std::string number = length == std::string::npos ? "0" : text.substr(length + 1);
  if (length != std::string::npos && text[length] == '(') {
    if (!number.ends_with(')')) number.clear();
    if (!number.empty()) number.pop_back();
  }
  int index = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  const bool is_number = error == std::errc() && end == number.data() + number.size() && index >= 0;
  if (is_number && kind == "cpu") return cpu(index);
  if (is_number && (kind == "gpu" || kind == "cuda")) return gpu(index);
  refuse("device: expected \"cpu\", \"gpu(0)\" or \"cuda:0\"; got \"" + text + "\"");
}

namespace {

/// True for bytes, which are no list of keys, although they give integers one by one.
bool is_bytes(nb::handle given) {
  return PyBytes_Check(given.ptr()) != 0 || PyByteArray_Check(given.ptr()) != 0 ||
         PyMemoryView_Check(given.ptr()) != 0;
}

}  // namespace

Items::Items(nb::handle keys) {
  nb::object list = nb::borrow(keys);
  if (is_mapping(keys)) {
    of_dict_ = nb::steal(PyMapping_Values(keys.ptr()));
    if (!of_dict_.is_valid()) throw nb::python_error();
    list = nb::steal(PyMapping_Keys(keys.ptr()));
    if (!list.is_valid()) throw nb::python_error();
  } else if (PyUnicode_Check(keys.ptr()) != 0 || PyIndex_Check(keys.ptr()) != 0 || is_bytes(keys) ||
             PyObject_HasAttrString(keys.ptr(), "__iter__") == 0) {
    is_single_ = true;
    keys_.push_back(read_key(keys));
    return;
  }
  for (const nb::handle key : list) keys_.push_back(read_key(key));
}

std::string Items::place(const char* argument, std::size_t index) const {
  if (is_single_) return std::string(argument) + " of key " + to_string(keys_.front());
  if (index < keys_.size()) return std::string(argument) + " of key " + to_string(keys_[index]);
  return std::string(argument) + "[" + std::to_string(index) + "]";
}

template <class View>
void Items::read(nb::handle given, const char* argument, Access access, List<View>& into) {
  if (of_dict_.is_valid()) {
    if (!given.is_none()) {
      refuse(std::string(argument) + ": the keys are a dict, which has them already; leave it out");
    }
    given = of_dict_;
  }
  std::size_t index = 0;
  const Where where = [&] { return place(argument, index); };
  if (!is_list(given)) {
    into.flat.push_back(loans_.borrow(given, access, where));
    return;
  }
  for (const nb::handle item : given) into.is_nested = into.is_nested || is_list(item);
  for (const nb::handle item : given) {
    if (!into.is_nested) {
      into.flat.push_back(loans_.borrow(item, access, where));
    } else {
      auto& group = into.nested.emplace_back();
      if (!is_list(item)) {
        group.push_back(loans_.borrow(item, access, where));
      } else {
        for (const nb::handle one : item) group.push_back(loans_.borrow(one, access, where));
      }
    }
    ++index;
  }
}

void Items::read_values(nb::handle given, const char* argument) {
  read(given, argument, Access::read, values_);
}

void Items::read_outputs(nb::handle given, const char* argument) {
  read(given, argument, Access::write, outputs_);
}

Settings read_settings(const nb::kwargs& given) {
  if (given.empty()) return Settings::from_environment();
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("TUTTI_") && equals != std::string::npos) {
      variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  Settings settings;
  try {
    std::map<std::string, std::string> own;
    for (const auto [name, value] : given) {
      std::string variable = nb::cast<std::string>(name);
      const std::string text = setting_text(variable, value);
      if (variable == "asynchronous") variable = "async";
      for (char& letter : variable) {
        if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
      }
      if (!value.is_none()) own["TUTTI_" + variable] = text;
    }
    std::vector<std::string> misspelt;
    settings = Settings::from_variables(own, misspelt);
    if (!misspelt.empty()) refuse("keyword argument: " + misspelt.front());
    for (const auto& [name, text] : own) variables[name] = text;
    settings = Settings::from_variables(variables, misspelt);
  } catch (const Error& error) {
    settings = Settings{};
    settings.environment_error = error.what();  // thrown on all ranks alike
  }
  return settings;
}

std::string option_text(const std::string& name, const nb::dict& given) {
  std::string text = name;
  for (const auto [option, value] : given) {
    const std::string key = nb::cast<std::string>(option);
    const bool is_list = nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value);
    text += "," + key + "=";
    if (value.is_none()) {
      text += "none";
    } else if (is_list) {
      std::string items;
      for (const nb::handle item : value) {
        items += (items.empty() ? "" : ":") + setting_text(key, item);
      }
      text += items;
    } else {
      text += setting_text(key, value);
    }
  }
  return text;
}

}  // namespace tutti::python
