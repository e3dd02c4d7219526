// SPDX-License-Identifier: Apache-2.0
// The structures of DLPack, whose layout libraries of arrays agree on.
// Source  https://dmlc.github.io/dlpack/latest/c_api.html, versions 0.8, 1.0 and 1.3.
#pragma once

#include <cstdint>
#include <optional>

#include "tutti/dtype.hpp"

namespace tutti::python::dlpack {

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCuda = 2;
inline constexpr std::int32_t kCudaHost = 3;

struct Device {
  std::int32_t kind;
  std::int32_t index;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: row-major
  std::uint64_t byte_offset;
};

inline bool is_row_major(const Tensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.dimensions; i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

struct Managed {
  Tensor tensor;
  void* owner;
  void (*destroy)(Managed*);
};

inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::uint64_t kReadOnly = 1;
inline constexpr std::uint64_t kIsCopied = 2;

struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* owner;
  void (*destroy)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

/// A table of functions that the type of an array may have as kTableAttribute: they give its memory
/// away without a call of Python, and without waiting for any stream. They return 0, or set a
/// Python exception. The table stays for the life of the process.
struct Table {
  std::uint32_t major;
  std::uint32_t minor;
  const Table* before;
  void* allocate;
  int (*from_object)(void* object, ManagedVersioned** managed);
  void* to_object;
  int (*tensor_from_object)(void* object, Tensor* tensor);  ///< gives nothing away
  /// Stream of the work on arrays.
  int (*current_stream)(std::int32_t kind, std::int32_t index, void** stream);
};
inline constexpr std::uint32_t kTableMajor = 1;
inline constexpr const char* kTableAttribute = "__dlpack_c_exchange_api__";
inline constexpr const char* kTableName = "dlpack_exchange_api";

inline constexpr const char* kName = "dltensor";
inline constexpr const char* kUsedName = "used_dltensor";
inline constexpr const char* kVersionedName = "dltensor_versioned";
inline constexpr const char* kUsedVersionedName = "used_dltensor_versioned";

inline constexpr std::uint8_t kInt = 0;
inline constexpr std::uint8_t kUnsigned = 1;
inline constexpr std::uint8_t kFloat = 2;
inline constexpr std::uint8_t kBfloat = 4;

constexpr DataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::bfloat16:
      return {kBfloat, bits, 1};
    case DType::uint8:
      return {kUnsigned, bits, 1};
    case DType::int8:
    case DType::int32:
    case DType::int64:
      return {kInt, bits, 1};
    case DType::float16:
    case DType::float32:
    case DType::float64:
      break;
  }
  return {kFloat, bits, 1};
}

inline std::optional<DType> dtype_of(DataType type) {
  for (int i = 0; i <= static_cast<int>(DType::int64); ++i) {
    const DataType known = type_of(static_cast<DType>(i));
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) {
      return static_cast<DType>(i);
    }
  }
  return std::nullopt;
}

}  // namespace tutti::python::dlpack
