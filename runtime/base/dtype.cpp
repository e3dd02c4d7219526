// SPDX-License-Identifier: Apache-2.0
#include "tutti/dtype.hpp"

#include <array>
#include <string>

#include "tutti/error.hpp"

#include "collectives/kernels/reduce_float16.hpp"

namespace tutti {
namespace {

constexpr std::array kAllTypes = {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                                  DType::int8,    DType::uint8,    DType::int32,   DType::int64};

}  // namespace

const char* to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::int8:
      return "int8";
    case DType::uint8:
      return "uint8";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
  }
  return "unknown";
}

DType parse_dtype(std::string_view name) {
  std::string names;
  for (const DType dtype : kAllTypes) {
    if (name == to_string(dtype)) return dtype;
    if (!names.empty()) names += ", ";
    names += to_string(dtype);
  }
  throw Error(ErrorCode::invalid_argument,
              "unknown element type '" + std::string(name) + "'; expected one of " + names);
}

Float16::Float16(float value) noexcept : bits(collectives::float16_from_float(value)) {}

Float16::operator float() const noexcept { return collectives::float_from_float16(bits); }

BFloat16::BFloat16(float value) noexcept : bits(collectives::bfloat16_from_float(value)) {}

}  // namespace tutti
