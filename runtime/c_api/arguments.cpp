// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api/arguments.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace tutti::c_api {

namespace {

static_assert(TUTTI_FLOAT16 == static_cast<int>(DType::float16) + 1);
static_assert(TUTTI_BFLOAT16 == static_cast<int>(DType::bfloat16) + 1);
static_assert(TUTTI_FLOAT32 == static_cast<int>(DType::float32) + 1);
static_assert(TUTTI_FLOAT64 == static_cast<int>(DType::float64) + 1);
static_assert(TUTTI_INT8 == static_cast<int>(DType::int8) + 1);
static_assert(TUTTI_UINT8 == static_cast<int>(DType::uint8) + 1);
static_assert(TUTTI_INT32 == static_cast<int>(DType::int32) + 1);
static_assert(TUTTI_INT64 == static_cast<int>(DType::int64) + 1);
static_assert(TUTTI_SUM == static_cast<int>(ReduceOp::sum));
static_assert(TUTTI_PROD == static_cast<int>(ReduceOp::prod));
static_assert(TUTTI_MIN == static_cast<int>(ReduceOp::min));
static_assert(TUTTI_MAX == static_cast<int>(ReduceOp::max));
static_assert(TUTTI_AVG == static_cast<int>(ReduceOp::avg));
static_assert(TUTTI_CPU == static_cast<int>(DeviceKind::cpu));
static_assert(TUTTI_GPU == static_cast<int>(DeviceKind::gpu));
static_assert(TUTTI_MAX_DIMENSIONS == Shape::kMaxDimensions);

void require_range(const Place& place, int value, int least, int most, const char* what) {
  if (value >= least && value <= most) return;
  throw_invalid_argument(place, what, std::to_string(value));
}

TensorView read_tensor(const Place& here, const tutti_tensor& tensor) {
  const DType dtype = read_dtype(here, tensor.dtype);
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(dtype) != 0) {
    throw_invalid_argument({&here, "data"},
                           "an address that is a multiple of " + std::to_string(size_of(dtype)) +
                               ", the bytes of an element",
                           "another one");
  }
  return {tensor.data, read_shape(here, tensor.shape, tensor.ndim), dtype,
          read_device(here, tensor.device_kind, tensor.device_index)};
}

std::vector<TensorView> read_tensors(const Place& place, const tutti_tensor* list, int count) {
  std::vector<TensorView> tensors;
  int index = 0;
  for (const tutti_tensor& tensor : read_list(place, list, count)) {
    tensors.push_back(read_tensor({place.outer, place.name, index++}, tensor));
  }
  return tensors;
}

}  // namespace

Device read_device(const Place& here, int kind, int index) {
  require_range({&here, "device_kind"}, kind, TUTTI_CPU, TUTTI_GPU, "0 (cpu) or 1 (gpu)");
  if (index < 0)
    throw_invalid_argument({&here, "device_index"}, "at least 0", std::to_string(index));
  return {static_cast<DeviceKind>(kind), index};
}

Settings read_settings(const Place& here, const char* const* list) {
  if (list == nullptr) return Settings::from_environment();
  std::map<std::string, std::string> variables;
  for (int i = 0; list[i] != nullptr; ++i) {
    const std::string entry = list[i];
    const auto equals = entry.find('=');
    if (entry.rfind("TUTTI_", 0) != 0 || equals == entry.npos) {
      throw_invalid_argument({&here, "settings", i}, "TUTTI_<name>=<value>", "'" + entry + "'");
    }
    variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  const Place place{&here, "settings"};
  std::vector<std::string> unknown;
  Settings settings = in_place(place, [&] { return Settings::from_variables(variables, unknown); });
  if (unknown.empty()) return settings;
  throw Error(ErrorCode::invalid_argument, place.describe() + ": " + unknown.front());
}

Key read_key(const Place& here, const tutti_key* key) {
  const tutti_key& given = required(here, "key", key);
  return given.text == nullptr ? Key(given.number) : Key(given.text);
}

DType read_dtype(const Place& here, int dtype) {
  require_range({&here, "dtype"}, dtype, TUTTI_FLOAT16, TUTTI_INT64, "1 (float16) to 8 (int64)");
  return static_cast<DType>(dtype - 1);
}

ReduceOp read_op(const Place& here, int op) {
  require_range({&here, "op"}, op, TUTTI_SUM, TUTTI_AVG,
                "0 (sum), 1 (prod), 2 (min), 3 (max) or 4 (avg)");
  return static_cast<ReduceOp>(op);
}

Shape read_shape(const Place& here, const std::int64_t* shape, int ndim) {
  require_range({&here, "ndim"}, ndim, 0, TUTTI_MAX_DIMENSIONS, "0 to 8");
  const Place place{&here, "shape"};
  return in_place(place, [&] { return Shape(read_list(place, shape, ndim)); });
}

TensorView read_tensor(const Place& here, const char* name, const tutti_tensor* tensor) {
  const tutti_tensor& given = required(here, name, tensor);
  return read_tensor(Place{&here, name}, given);
}

Items read_items(const Place& here, const tutti_item* items, int num_items, Sides sides) {
  Items all;
  int index = 0;
  for (const tutti_item& item : read_list({&here, "items"}, items, num_items)) {
    const Place place{&here, "items", index++};
    all.keys.push_back(read_key(place, &item.key));
    if (sides != Sides::outputs) {
      all.values.push_back(read_tensors({&place, "values"}, item.values, item.num_values));
    }
    if (sides != Sides::values) {
      all.outputs.push_back(read_tensors({&place, "outputs"}, item.outputs, item.num_outputs));
    }
  }
  return all;
}

RowsItems read_items(const Place& here, const tutti_rows_item* items, int num_items) {
  RowsItems all;
  int index = 0;
  for (const tutti_rows_item& item : read_list({&here, "items"}, items, num_items)) {
    const Place place{&here, "items", index++};
    all.keys.push_back(read_key(place, &item.key));
    all.values.emplace_back();
    int number = 0;
    for (const tutti_rows& value : read_list({&place, "values"}, item.values, item.num_values)) {
      const Place at{&place, "values", number++};
      all.values.back().push_back(
          row_sparse(read_tensor(at, "ids", &value.ids), read_tensor(at, "rows", &value.rows)));
    }
  }
  return all;
}

tutti_tensor to_c(const void* data, const Shape& shape, DType dtype, Device device) {
  return {.data = const_cast<void*>(data),  // documented as read only where it is
          .shape = shape.dimensions().data(),
          .ndim = static_cast<int>(shape.dimensions().size()),
          .dtype = static_cast<int>(dtype) + 1,
          .device_kind = static_cast<int>(device.kind),
          .device_index = device.index};
}

tutti_tensor to_c(const ConstTensorView& view) {
  return to_c(view.bytes(), view.shape(), view.dtype(), view.device());
}

tutti_key to_c(const Key& key) {
  if (key.is_string()) return {.text = key.text().c_str(), .number = 0};
  return {.text = nullptr, .number = key.number()};
}

}  // namespace tutti::c_api
