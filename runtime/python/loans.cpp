// SPDX-License-Identifier: Apache-2.0
// Loans of arrays of other libraries: by the buffer protocol, or by DLPack.
#include <cstring>
#include <optional>
#include <utility>

#include "tutti/error.hpp"
#include "tutti/gpu.hpp"

#include "runtime/python/arguments.hpp"
#include "runtime/python/array.hpp"

namespace tutti::python {

namespace {

constexpr const char* kElements =
    "float16, bfloat16, float32, float64, int8, uint8, int32 or int64";

/// The dtype of a buffer's format, which is one of the struct module.
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

TensorView view_of(const dlpack::Tensor& tensor, const Where& where) {
  const auto dtype = dlpack::dtype_of(tensor.dtype);
  if (!dtype) {
    refuse_dtype(where, "DLPack's type " + std::to_string(tensor.dtype.code) + " of " +
                            std::to_string(tensor.dtype.bits) + " bits");
  }
  if (!dlpack::is_row_major(tensor)) refuse_strides(where);
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

/// The 16-bit integers of a NumPy array with ml_dtypes' bfloat16; nothing for any other array.
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

/// True for a tensor of torch for which a gradient is computed. It is not given away: writes to it
/// would not be part of the gradient.
bool needs_gradient(nb::handle given) {
  return nb::object(nb::getattr(given, "requires_grad", nb::none())).is(nb::bool_(true));
}

/// Calls __dlpack__(). `stream` is the stream in DLPack's numbers that the array's owner lets wait;
/// nothing for an array in the host's memory.
nb::object export_dlpack(nb::handle given, std::optional<std::intptr_t> stream) {
  if (nb::isinstance<Array>(given)) return nb::inst_ptr<Array>(given)->to_dlpack(true);
  nb::dict options;
  if (stream) options["stream"] = nb::int_(*stream);
  options["max_version"] = nb::make_tuple(1, 0);
  try {
    return given.attr("__dlpack__")(**options);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  PyDict_DelItemString(options.ptr(), "max_version");
  return given.attr("__dlpack__")(**options);  // a library from before DLPack 1.0
}

}  // namespace

const dlpack::Table* table_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, dlpack::kTableAttribute, nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::kTableName) == 0) return nullptr;
  const auto* const table =
      static_cast<const dlpack::Table*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::kTableName));
  return table->major == dlpack::kTableMajor ? table : nullptr;
}

Loans::Loans(Loans&& other) noexcept
    : streams_(std::exchange(other.streams_, {})),
      buffers_(std::exchange(other.buffers_, {})),
      plain_(std::exchange(other.plain_, {})),
      versioned_(std::exchange(other.versioned_, {})) {}

/// Gives all arrays back. Owners may run code that uses these loans again.
void Loans::give_back() noexcept {
  streams_.end();  // before an owner uses the memory again
  auto buffers = std::exchange(buffers_, {});
  const auto plain = std::exchange(plain_, {});
  const auto versioned = std::exchange(versioned_, {});
  for (Py_buffer& buffer : buffers) PyBuffer_Release(&buffer);
  for (dlpack::Managed* const managed : plain) {
    if (managed->destroy != nullptr) managed->destroy(managed);
  }
  for (dlpack::ManagedVersioned* const managed : versioned) {
    if (managed != nullptr && managed->destroy != nullptr) managed->destroy(managed);
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
    if (const auto found = borrow_by_table(given, access, where)) return *found;
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

/// Borrows by the buffer protocol. Nothing if the array has no buffer; it may still have DLPack.
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

void Loans::wait_for(int gpu, void* stream, const Where& where) {
  try {
    streams_.add(gpu, stream);
  } catch (const Error& error) {
    refuse(where() + ": " + error.what());
  }
}

/// DLPack's number of the stream that the owner of an array on a GPU lets wait: "none" where the
/// owner's own stream is known and the library's waits for that, or else the library's, of which
/// the default stream is 1. Nothing for an array in the host's memory, and for the library's own
/// arrays.
std::optional<std::intptr_t> Loans::order(nb::handle given, const Where& where) {
  constexpr std::intptr_t kNone = -1;
  if (nb::isinstance<Array>(given)) return std::nullopt;
  const std::optional<int> index = gpu_of(given);
  if (!index) return std::nullopt;
  if (const auto stream = current_stream(given, table_of(given.type()), *index)) {
    wait_for(*index, *stream, where);
    return kNone;
  }
  streams_.add_unknown(*index);
  const auto own = reinterpret_cast<std::intptr_t>(stream_of(gpu(*index)));
  return own == 0 ? 1 : own;
}

/// Borrows by DLPack's table, in a fraction of the time that __dlpack__() takes. Nothing where that
/// call has to say why the array is not given away.
std::optional<TensorView> Loans::borrow_by_table(nb::handle given, Access access,
                                                 const Where& where) {
  const dlpack::Table* const table = table_of(given.type());
  if (table == nullptr || needs_gradient(given)) return std::nullopt;
  versioned_.push_back(nullptr);
  dlpack::ManagedVersioned*& managed = versioned_.back();
  if (table->from_object(given.ptr(), &managed) != 0) {
    PyErr_Clear();
    managed = nullptr;
    return std::nullopt;
  }
  if (managed->major != dlpack::kMajor) return std::nullopt;
  // A type that only looks like a tensor has no memory.
  const dlpack::Tensor& tensor = managed->tensor;
  if (tensor.data == nullptr) return std::nullopt;
  if (tensor.device.kind == dlpack::kCuda) {
    const int index = tensor.device.index;
    if (index < 0 || index >= num_gpus()) return std::nullopt;
    const auto stream = current_stream(given, table, index);
    if (!stream) return std::nullopt;
    wait_for(index, *stream, where);
  }
  if (access == Access::write && (managed->flags & dlpack::kReadOnly) != 0) refuse_read_only(where);
  return view_of(tensor, where);
}

TensorView Loans::borrow_dlpack(nb::handle given, Access access, const Where& where) {
  const nb::object capsule = export_dlpack(given, order(given, where));
  PyObject* const object = capsule.ptr();
  if (PyCapsule_IsValid(object, dlpack::kVersionedName) != 0) {
    auto* const managed = static_cast<dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(object, dlpack::kVersionedName));
    PyCapsule_SetName(object, dlpack::kUsedVersionedName);
    versioned_.push_back(managed);
    if (managed->major != dlpack::kMajor) {  // of other versions only the destruction is known
      refuse(where() + ": expected a capsule of DLPack " + std::to_string(dlpack::kMajor) +
             "; its __dlpack__() gave one of DLPack " + std::to_string(managed->major) +
             ", although it was asked for no later one");
    }
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

}  // namespace tutti::python
