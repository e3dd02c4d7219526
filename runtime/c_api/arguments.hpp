// SPDX-License-Identifier: Apache-2.0
// Converts between the structs of the C API and the library's types. All arguments of the caller
// are checked, except that a pointer which is not null points to as many elements as the caller
// says.
//
// Errors  invalid_argument with the place of the argument, what was expected and what it is.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/c/row_sparse.h"
#include "tutti/communicator.hpp"
#include "tutti/key.hpp"
#include "tutti/row_sparse.hpp"
#include "tutti/settings.hpp"
#include "tutti/tensor.hpp"

#include "runtime/c_api/status.hpp"

namespace tutti::c_api {

/// The settings in a list of texts, or those of the environment if `list` is null.
Settings read_settings(const Place& here, const char* const* list);

Key read_key(const Place& here, const tutti_key* key);
DType read_dtype(const Place& here, int dtype);
ReduceOp read_op(const Place& here, int op);
Device read_device(const Place& here, int kind, int index);
Shape read_shape(const Place& here, const std::int64_t* shape, int ndim);
TensorView read_tensor(const Place& here, const char* name, const tutti_tensor* tensor);

/// The items of a call: values[i] and outputs[i] are those of keys[i].
struct Items {
  using Lists = std::vector<std::vector<TensorView>>;
  std::vector<Key> keys;
  Lists values{};
  Lists outputs{};
};
enum class Sides { values, outputs, both };  ///< the tensors of an item that a call needs
Items read_items(const Place& here, const tutti_item* items, int num_items, Sides sides);

/// The items of a push of rows, like Items.
struct RowsItems {
  std::vector<Key> keys;
  std::vector<std::vector<RowSparseView>> values{};
};
RowsItems read_items(const Place& here, const tutti_rows_item* items, int num_items);

/// A list as a span. Errors: invalid_argument for NULL with a count, or a negative count.
template <class T>
std::span<const T> read_list(Place place, const T* list, int count) {
  if (count < 0) throw_invalid_argument(place, "a count of at least 0", std::to_string(count));
  if (list == nullptr && count > 0)
    throw_invalid_argument(place, "a list of " + std::to_string(count), "NULL");
  return {list, static_cast<std::size_t>(count)};
}

/// A tensor or key for C. A tensor refers to the shape, which must live as long as the result.
tutti_tensor to_c(const void* data, const Shape& shape, DType dtype, Device device = cpu());
tutti_tensor to_c(const ConstTensorView& view);
tutti_key to_c(const Key& key);

}  // namespace tutti::c_api
