// SPDX-License-Identifier: Apache-2.0
// What safetensors calls the element types of a store.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "tutti/dtype.hpp"

namespace tutti::checkpoint {

inline constexpr std::array kDTypeNames = {
    std::pair{DType::float16, "F16"}, std::pair{DType::bfloat16, "BF16"},
    std::pair{DType::float32, "F32"}, std::pair{DType::float64, "F64"},
    std::pair{DType::int8, "I8"},     std::pair{DType::uint8, "U8"},
    std::pair{DType::int32, "I32"},   std::pair{DType::int64, "I64"}};

constexpr const char* name_of(DType dtype) {
  for (const auto& [type, name] : kDTypeNames) {
    if (type == dtype) return name;
  }
  return "";
}

constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (const auto& [type, known] : kDTypeNames) {
    if (name == known) return type;
  }
  return std::nullopt;
}

}  // namespace tutti::checkpoint
