// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/arguments.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "tutti/error.hpp"
#include "tutti/gpu.hpp"

#include "runtime/python/array.hpp"

extern char** environ;

namespace tutti::python {

namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text);
}

std::string name_of_type(nb::handle given) {
  return nb::cast<std::string>(nb::object(given.type().attr("__name__")));
}

/// What was raised, as text; nothing is raised any more.
std::string take_exception() {
  const nb::python_error raised;
  const nb::object value = nb::borrow(raised.value());
  return text_of(value);
}

constexpr const char* kElements =
    "float16, bfloat16, float32, float64, int8, uint8, int32 or int64";

/// From a format of the struct module, as buffers have it.
std::optional<DType> dtype_of_format(const char* format, Py_ssize_t item_bytes) {
  if (format == nullptr) return DType::uint8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (std::strlen(format) != 1) return std::nullopt;
  switch (*format) {
    case 'e':
      return DType::float16;
    case 'f':
      return DType::float32;
    case 'd':
      return DType::float64;
    case 'b':
      return DType::int8;
    case 'B':
      return DType::uint8;
    case 'i':
    case 'l':
    case 'q':
      return item_bytes == 4 ? DType::int32 : DType::int64;
    default:
      return std::nullopt;
  }
}

[[noreturn]] void refuse_dtype(const Where& where, const std::string& got) {
  refuse(where() + ": expected elements of " + kElements + "; got " + got);
}

[[noreturn]] void refuse_strides(const Where& where) {
  refuse(where() +
         ": expected a dense row-major (C-contiguous) array; got one with gaps or in "
         "another order; pass a copy, numpy.ascontiguousarray(a) or a.contiguous()");
}

[[noreturn]] void refuse_read_only(const Where& where) {
  refuse(where() + ": expected a writable array; got one that is read-only");
}

bool is_row_major(const dlpack::Tensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.dimensions; i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

TensorView view_of(const dlpack::Tensor& tensor, const Where& where) {
  const auto dtype = dlpack::dtype_of(tensor.dtype);
  if (!dtype) {
    refuse_dtype(where, "DLPack's type " + std::to_string(tensor.dtype.code) + " of " +
                            std::to_string(tensor.dtype.bits) + " bits");
  }
  if (!is_row_major(tensor)) refuse_strides(where);
  Device device = cpu();
  if (tensor.device.kind == dlpack::kCuda) {
    device = gpu(tensor.device.index);
  } else if (tensor.device.kind != dlpack::kCpu && tensor.device.kind != dlpack::kCudaHost) {
    refuse(where() +
           ": expected an array in the host's memory or on a CUDA GPU; got one on DLPack's "
           "device type " +
           std::to_string(tensor.device.kind));
  }
  const auto dimensions = static_cast<std::size_t>(tensor.dimensions);
  return {static_cast<std::byte*>(tensor.data) + tensor.byte_offset,
          Shape(std::span<const std::int64_t>(tensor.shape, dimensions)), *dtype, device};
}

/// The 16-bit integers that an array of NumPy with ml_dtypes' bfloat16 holds; else nothing.
nb::object bits_of_bfloat16(nb::handle given) {
  if (!nb::hasattr(given, "dtype") || !nb::hasattr(given, "view")) return {};
  const nb::object dtype = given.attr("dtype");
  if (!nb::hasattr(dtype, "name")) return {};
  const nb::object name = dtype.attr("name");
  if (!nb::isinstance<nb::str>(name) || text_of(name) != "bfloat16") {
    return {};
  }
  return given.attr("view")("uint16");
}

/// The library reads and writes a GPU's memory in its own stream of the device, which the owner of
/// the array lets wait for its work. The default stream is 1.
nb::object stream_for(nb::handle given) {
  // Torch's tensors tell it in a hundredth of the time.
  const bool is_elsewhere =
      nb::hasattr(given, "is_cuda") && nb::object(given.attr("is_cuda")).is(nb::bool_(false));
  if (is_elsewhere || !nb::hasattr(given, "__dlpack_device__")) return {};
  const nb::object device = given.attr("__dlpack_device__")();
  int kind = 0;
  int index = 0;
  if (!nb::isinstance<nb::tuple>(device) || nb::len(device) != 2 ||
      !nb::try_cast(device[0], kind) || !nb::try_cast(device[1], index) || kind != dlpack::kCuda ||
      index < 0 || index >= num_gpus()) {
    return {};
  }
  const auto stream = reinterpret_cast<std::uintptr_t>(stream_of(gpu(index)));
  return nb::int_(stream == 0 ? 1 : stream);
}

nb::object export_dlpack(nb::handle given) {
  nb::dict options;
  const nb::object stream = stream_for(given);
  if (stream.is_valid()) options["stream"] = stream;
  options["max_version"] = nb::make_tuple(1, 0);
  try {
    return given.attr("__dlpack__")(**options);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  PyDict_DelItemString(options.ptr(), "max_version");
  return given.attr("__dlpack__")(**options);  // a library of before DLPack 1.0
}

bool has_method(nb::handle given, const char* name) {
  const nb::object found = nb::getattr(given, name, nb::none());
  return PyCallable_Check(found.ptr()) != 0;
}

/// A dict, or another mapping.
bool is_mapping(nb::handle given) {
  return PyDict_Check(given.ptr()) != 0 ||
         (PyUnicode_Check(given.ptr()) == 0 && PyMapping_Check(given.ptr()) != 0 &&
          has_method(given, "keys") && has_method(given, "values"));
}

std::string setting_text(const std::string& name, nb::handle value) {
  if (value.is_none()) return {};
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

bool is_list(nb::handle given) {
  PyObject* const object = given.ptr();
  if (PyList_Check(object) != 0 || PyTuple_Check(object) != 0) return true;
  return PySequence_Check(object) != 0 && PyObject_CheckBuffer(object) == 0 &&
         PyUnicode_Check(object) == 0 && !nb::hasattr(given, "__dlpack__") && !is_mapping(given);
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

Loans::Loans(Loans&& other) noexcept
    : buffers_(std::exchange(other.buffers_, {})),
      plain_(std::exchange(other.plain_, {})),
      versioned_(std::exchange(other.versioned_, {})) {}

/// Owners may run code that uses these loans again.
void Loans::give_back() noexcept {
  auto buffers = std::exchange(buffers_, {});
  const auto plain = std::exchange(plain_, {});
  const auto versioned = std::exchange(versioned_, {});
  for (Py_buffer& buffer : buffers) PyBuffer_Release(&buffer);
  for (dlpack::Managed* const managed : plain) {
    if (managed->destroy != nullptr) managed->destroy(managed);
  }
  for (dlpack::ManagedVersioned* const managed : versioned) {
    if (managed->destroy != nullptr) managed->destroy(managed);
  }
}

void require_aligned(const TensorView& view, const Where& where) {
  const std::size_t size = size_of(view.dtype());
  if (reinterpret_cast<std::uintptr_t>(view.bytes()) % size == 0) return;
  refuse(where() + ": expected memory that begins at a multiple of " + std::to_string(size) +
         " bytes, the size of its elements; give a copy, such as numpy.array(values)");
}

TensorView Loans::borrow(nb::handle given, Access access, const Where& where) {
  const TensorView view = borrow_any(given, access, where);
  require_aligned(view, where);
  return view;
}

TensorView Loans::borrow_any(nb::handle given, Access access, const Where& where) {
  try {
    if (nb::isinstance<Array>(given)) {
      const Array& own = *nb::inst_ptr<Array>(given);
      if (access == Access::write && !own.is_writable()) refuse_read_only(where);
      if (own.device().kind == DeviceKind::gpu || own.dtype() == DType::bfloat16) {
        return borrow_dlpack(given, access, where);
      }
    }
    if (PyObject_CheckBuffer(given.ptr()) != 0) {
      if (const auto found = borrow_buffer(given, access, where)) return *found;
    }
    if (nb::hasattr(given, "__dlpack__")) return borrow_dlpack(given, access, where);
  } catch (nb::python_error& error) {
    refuse(where() + ": its " + name_of_type(given) +
           " does not give its memory away: " + text_of(nb::borrow(error.value())));
  }
  refuse(where() +
         ": expected an array that has the buffer protocol or DLPack, such as NumPy's or "
         "PyTorch's; got a " +
         name_of_type(given));
}

/// Nothing if the array has no buffer; it may still have DLPack.
std::optional<TensorView> Loans::borrow_buffer(nb::handle given, Access access,
                                               const Where& where) {
  Py_buffer buffer;
  std::optional<DType> dtype;
  if (PyObject_GetBuffer(given.ptr(), &buffer, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    PyErr_Clear();
    const nb::object bits = bits_of_bfloat16(given);
    if (!bits.is_valid()) return std::nullopt;
    if (PyObject_GetBuffer(bits.ptr(), &buffer, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
      throw nb::python_error();
    }
    dtype = DType::bfloat16;
  } else {
    dtype = dtype_of_format(buffer.format, buffer.itemsize);
  }
  buffers_.push_back(buffer);
  if (!dtype) {
    const std::string name = nb::hasattr(given, "dtype") ? text_of(nb::object(given.attr("dtype")))
                                                         : "format " + std::string(buffer.format);
    refuse_dtype(where, name);
  }
  if (PyBuffer_IsContiguous(&buffer, 'C') == 0) refuse_strides(where);
  if (access == Access::write && buffer.readonly != 0) refuse_read_only(where);
  static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
  const std::span<const std::int64_t> dimensions(
      reinterpret_cast<const std::int64_t*>(buffer.shape), static_cast<std::size_t>(buffer.ndim));
  return TensorView(buffer.buf, Shape(dimensions), *dtype);
}

TensorView Loans::borrow_dlpack(nb::handle given, Access access, const Where& where) {
  const nb::object capsule = export_dlpack(given);
  PyObject* const object = capsule.ptr();
  if (PyCapsule_IsValid(object, dlpack::kVersionedName) != 0) {
    auto* const managed = static_cast<dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(object, dlpack::kVersionedName));
    PyCapsule_SetName(object, dlpack::kUsedVersionedName);
    versioned_.push_back(managed);
    const bool is_read_only = (managed->flags & dlpack::kReadOnly) != 0;
    if (access == Access::write && is_read_only) refuse_read_only(where);
    return view_of(managed->tensor, where);
  }
  if (PyCapsule_IsValid(object, dlpack::kName) == 0) {
    refuse(where() + ": its __dlpack__() gave no capsule of DLPack");
  }
  auto* const managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(object, dlpack::kName));
  PyCapsule_SetName(object, dlpack::kUsedName);
  plain_.push_back(managed);
  return view_of(managed->tensor, where);
}

namespace {

/// They are no list of keys, although they give integers one by one.
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
