// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/array.hpp"

#include <array>
#include <string>
#include <utility>

#include "tutti/error.hpp"
#include "tutti/gpu.hpp"

#include "runtime/python/arguments.hpp"
#include "runtime/python/calls.hpp"
#include "runtime/python/dlpack.hpp"

namespace tutti::python {

namespace {

const char* format_of(DType dtype) {
  constexpr std::array<const char*, 8> kFormats = {"e", nullptr, "f", "d", "b", "B", "i", "q"};
  return kFormats[static_cast<std::size_t>(dtype)];
}

/// The kind and index of the array's device, in DLPack's numbers.
std::pair<std::int32_t, std::int32_t> device_of(const Array& array) {
  const bool is_gpu = array.device().kind == DeviceKind::gpu;
  return {is_gpu ? dlpack::kCuda : dlpack::kCpu, is_gpu ? array.device().index : 0};
}

/// One view of an array that another library holds.
struct Held {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  Array array;
  dlpack::Managed plain{};
  dlpack::ManagedVersioned versioned{};

  explicit Held(Array held) : array(std::move(held)) {
    const auto dimensions = array.shape().dimensions();
    shape.assign(dimensions.begin(), dimensions.end());
    strides.assign(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    ++array.lease()->views;
  }

  [[nodiscard]] dlpack::Tensor tensor() {
    const auto [kind, index] = device_of(array);
    return {array.view().bytes(),
            {kind, index},
            static_cast<std::int32_t>(shape.size()),
            dlpack::type_of(array.dtype()),
            shape.data(),
            strides.data(),
            0};
  }

  static void destroy(void* held) {
    if (Py_IsInitialized() == 0) return;  // the process ends
    const nb::gil_scoped_acquire acquired;
    auto* const self = static_cast<Held*>(held);
    --self->array.lease()->views;
    delete self;
  }
};

template <class Managed>
void destroy_unused(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // the capsule's consumer destroys it
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->destroy(managed);
}

int get_buffer(PyObject* self, Py_buffer* buffer, int flags) {
  buffer->obj = nullptr;
  return nb::inst_ptr<Array>(self)->fill(self, buffer, flags);
}

void release_buffer(PyObject* self, Py_buffer* /*buffer*/) {
  --nb::inst_ptr<Array>(self)->lease()->views;
}

nb::tuple dimensions_of(const Array& array) {
  nb::list dimensions;
  for (const std::int64_t length : array.shape().dimensions()) dimensions.append(length);
  return nb::tuple(dimensions);
}

std::string repr_of_array(const Array& array) {
  return "<tutti.Array " + to_string(array.shape()) + " " + to_string(array.dtype()) + " on " +
         to_string(array.device()) + (array.is_writable() ? ">" : ", read-only>");
}

void require_device(const Array& array, const nb::object& asked) {
  if (asked.is_none()) return;
  const auto [kind, index] = device_of(array);
  if (asked.equal(nb::make_tuple(kind, index))) return;
  const std::string text = "an array on " + to_string(array.device()) +
                           " goes to no other device; expected dl_device None or (" +
                           std::to_string(kind) + ", " + std::to_string(index) + "), got " +
                           repr_of(asked);
  throw nb::buffer_error(text.c_str());
}

nb::object export_dlpack(const Array& array, const nb::object& /*stream*/,
                         const nb::object& max_version, const nb::object& dl_device,
                         const nb::object& copy) {
  require_device(array, dl_device);
  int major = 0;
  if (!max_version.is_none() &&
      (!nb::isinstance<nb::tuple>(max_version) || nb::len(max_version) != 2 ||
       !nb::try_cast(max_version[nb::int_(0)], major))) {
    throw nb::type_error("max_version: expected two numbers, (1, 0), or None");
  }
  const bool is_copied = !copy.is_none() && nb::cast<bool>(copy);
  nb::object capsule =
      is_copied ? array.copy().to_dlpack(major >= 1, true) : array.to_dlpack(major >= 1);
  if (array.device().kind == DeviceKind::gpu) {  // the copy is made in the library's stream, too
    const nb::gil_scoped_release released;
    synchronize(array.device());
  }
  return capsule;
}

}  // namespace

Array::Array(std::byte* data, const Shape& shape, DType dtype, Device device, bool is_writable,
             std::shared_ptr<void> owner)
    : data_(data),
      shape_(shape),
      dtype_(dtype),
      device_(device),
      is_writable_(is_writable),
      owner_(std::move(owner)),
      dimensions_(shape.dimensions().begin(), shape.dimensions().end()),
      strides_(dimensions_.size(), static_cast<Py_ssize_t>(size_of(dtype))) {
  for (std::size_t i = strides_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * dimensions_[i];
}

Array Array::of(Tensor tensor) {
  const auto owner = kept_by_this_process(std::move(tensor));
  return {owner->bytes(), owner->shape(), owner->dtype(), owner->device(), true, owner};
}

Array Array::of(const ConstTensorView& view) {
  const auto owner = kept_by_this_process(ConstTensorView(view));
  return {const_cast<std::byte*>(view.bytes()),
          view.shape(),
          view.dtype(),
          view.device(),
          false,
          owner};
}

Array Array::lent(const ConstTensorView& view) {
  return {const_cast<std::byte*>(view.bytes()),
          view.shape(),
          view.dtype(),
          view.device(),
          false,
          nullptr};
}

Array Array::lent(const TensorView& view) {
  return {view.bytes(), view.shape(), view.dtype(), view.device(), true, nullptr};
}

Array Array::bits() const {
  Array other = *this;
  other.dtype_ = DType::float16;
  return other;
}

Array Array::copy() const {
  Tensor other = Tensor::empty(shape_, dtype_, device_);
  other.view().copy_from(view());
  return of(std::move(other));
}

TensorView Array::view() const {
  require_lease();
  return {data_, shape_, dtype_, device_};
}

void Array::require_lease() const {
  if (!lease_->is_over) return;
  throw Error(ErrorCode::invalid_argument,
              "this array was an updater's, which has returned: its memory is the library's again; "
              "keep a copy, numpy.array(array)");
}

int Array::fill(PyObject* self, Py_buffer* buffer, int flags) const {
  std::string refused;
  if (lease_->is_over) {
    refused = "this array was an updater's, which has returned; keep a copy, numpy.array(array)";
  } else if (device_.kind == DeviceKind::gpu) {
    refused = "an array on " + to_string(device_) +
              " has no buffer in the host's memory; use "
              "from_dlpack() of a library for GPUs";
  } else if ((flags & PyBUF_WRITABLE) != 0 && !is_writable_) {
    refused = "this array is read-only: it shows what the store holds; push() changes that";
  } else if (format_of(dtype_) == nullptr && (flags & PyBUF_FORMAT) != 0) {
    refused =
        "bfloat16 has no buffer format; use array.numpy(), which needs ml_dtypes, or "
        "torch.from_dlpack(array)";
  }
  if (!refused.empty()) {
    PyErr_SetString(PyExc_BufferError, refused.c_str());
    return -1;
  }
  buffer->obj = Py_NewRef(self);
  buffer->buf = data_;
  buffer->len = static_cast<Py_ssize_t>(shape_.count() * size_of(dtype_));
  buffer->itemsize = static_cast<Py_ssize_t>(size_of(dtype_));
  buffer->readonly = is_writable_ ? 0 : 1;
  buffer->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format_of(dtype_)) : nullptr;
  buffer->ndim = (flags & PyBUF_ND) != 0 ? static_cast<int>(dimensions_.size()) : 1;
  buffer->shape = (flags & PyBUF_ND) != 0 ? const_cast<Py_ssize_t*>(dimensions_.data()) : nullptr;
  buffer->strides =
      (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? const_cast<Py_ssize_t*>(strides_.data()) : nullptr;
  buffer->suboffsets = nullptr;
  buffer->internal = nullptr;
  ++lease_->views;
  return 0;
}

nb::object Array::to_dlpack(bool is_versioned, bool is_copied) const {
  require_lease();
  auto* const held = new Held(*this);
  PyObject* capsule = nullptr;
  if (is_versioned) {
    const std::uint64_t flags =
        (is_writable_ ? 0 : dlpack::kReadOnly) | (is_copied ? dlpack::kIsCopied : 0);
    held->versioned = {1,     0,
                       held,  [](dlpack::ManagedVersioned* self) { Held::destroy(self->owner); },
                       flags, held->tensor()};
    capsule = PyCapsule_New(&held->versioned, dlpack::kVersionedName, [](PyObject* unused) {
      destroy_unused<dlpack::ManagedVersioned>(unused, dlpack::kVersionedName);
    });
  } else {
    held->plain = {held->tensor(), held, [](dlpack::Managed* self) { Held::destroy(self->owner); }};
    capsule = PyCapsule_New(&held->plain, dlpack::kName, [](PyObject* unused) {
      destroy_unused<dlpack::Managed>(unused, dlpack::kName);
    });
  }
  if (capsule == nullptr) {
    Held::destroy(held);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

DType read_dtype(nb::handle given) {
  nb::object name = nb::borrow(given);
  for (const char* attribute : {"name", "__name__"}) {
    if (nb::isinstance<nb::str>(given) || !nb::hasattr(given, attribute)) continue;
    name = given.attr(attribute);
    break;
  }
  std::string text = text_of(name);
  if (const auto dot = text.rfind('.'); dot != std::string::npos) text.erase(0, dot + 1);
  return parse_dtype(text);
}

Shape read_shape(nb::handle given) {
  const auto length = [](nb::handle item) {
    if (PyBool_Check(item.ptr()) || PyIndex_Check(item.ptr()) == 0) {
      throw Error(ErrorCode::invalid_argument,
                  "shape: expected whole numbers, such as (2, 3); got " + repr_of(item));
    }
    const Py_ssize_t number = PyNumber_AsSsize_t(item.ptr(), PyExc_OverflowError);
    if (number == -1 && PyErr_ExceptionMatches(PyExc_OverflowError) != 0) {
      PyErr_Clear();
      throw Error(ErrorCode::invalid_argument,
                  "shape: expected whole numbers of 63 bits; got " + repr_of(item));
    }
    if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return static_cast<std::int64_t>(number);
  };
  // Arrays of NumPy with one element have an index, too.
  if (PyIndex_Check(given.ptr()) != 0 && PySequence_Check(given.ptr()) == 0) {
    const std::int64_t only = length(given);
    return Shape(std::span(&only, 1));
  }
  if (PySequence_Check(given.ptr()) == 0 || PyUnicode_Check(given.ptr()) != 0 ||
      PyBytes_Check(given.ptr()) != 0 || PyByteArray_Check(given.ptr()) != 0) {
    throw Error(ErrorCode::invalid_argument,
                "shape: expected whole numbers, such as (2, 3); got " + repr_of(given));
  }
  std::vector<std::int64_t> dimensions;
  for (const nb::handle item : given) dimensions.push_back(length(item));
  return Shape(dimensions);
}

void bind_array(nb::module_& module) {
  static PyType_Slot slots[] = {
      {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
      {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
      {0, nullptr},
  };
  nb::class_<Array>(
      module, "Array", nb::type_slots(slots),
      "Memory of the library: dense, row-major, never copied. It has arithmetic, and goes to "
      "other libraries by numpy.asarray(array) and torch.from_dlpack(array).")
      .def_prop_ro("shape", dimensions_of, nb::sig("def shape(self) -> tuple[int, ...]"),
                   "Lengths, the slowest first.")
      .def_prop_ro(
          "dtype", [](const Array& array) { return to_string(array.dtype()); },
          "The element type's name: \"float32\".")
      .def_prop_ro(
          "device", [](const Array& array) { return to_string(array.device()); },
          "Where it lies: \"cpu(0)\".")
      .def_prop_ro(
          "readonly", [](const Array& array) { return !array.is_writable(); },
          "True for what the store holds, which push() alone changes.")
      .def_prop_ro(
          "size", [](const Array& array) { return array.shape().count(); }, "Number of elements.")
      .def_prop_ro(
          "nbytes",
          [](const Array& array) { return array.shape().count() * size_of(array.dtype()); },
          "Number of bytes.")
      .def_prop_ro(
          "ndim", [](const Array& array) { return array.shape().dimensions().size(); },
          "Number of dimensions.")
      .def("__dlpack__", export_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none())
      .def("__dlpack_device__",
           [](const Array& array) {
             const auto [kind, index] = device_of(array);
             return nb::make_tuple(kind, index);
           })
      .def(
          "_bits", [](const Array& array) { return array.bits(); },
          "The same memory as float16, for bfloat16, which buffers have no name for.")
      .def("__repr__", repr_of_array);
}

}  // namespace tutti::python
