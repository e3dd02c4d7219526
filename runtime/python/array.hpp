// SPDX-License-Identifier: Apache-2.0
// tutti.Array: the library's memory as an array of Python.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <vector>

#include "tutti/tensor.hpp"

namespace tutti::python {

namespace nb = nanobind;

/// The views of an array that are alive, and whether more may be made: an updater's arrays are the
/// library's again when it returns.
struct Lease {
  int views = 0;
  bool is_over = false;
};

class Array {
 public:
  Array(std::byte* data, const Shape& shape, DType dtype, Device device, bool is_writable,
        std::shared_ptr<void> owner);
  /// An array that owns the tensor.
  static Array of(Tensor tensor);
  /// A read-only array that keeps the view's memory alive.
  static Array of(const ConstTensorView& view);
  /// An array that is lent to an updater.
  static Array lent(const ConstTensorView& view);
  static Array lent(const TensorView& view);

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] bool is_writable() const { return is_writable_; }
  [[nodiscard]] const std::shared_ptr<Lease>& lease() const { return lease_; }
  [[nodiscard]] TensorView view() const;

  /// Fills a buffer of Python. Returns -1 with an exception set if it cannot.
  int fill(PyObject* self, Py_buffer* buffer, int flags) const;
  /// An array of the same memory, as float16.
  [[nodiscard]] Array bits() const;
  /// A writable array in memory of its own.
  [[nodiscard]] Array copy() const;
  [[nodiscard]] nb::object to_dlpack(bool is_versioned, bool is_copied = false) const;

 private:
  void require_lease() const;

  std::byte* data_;
  Shape shape_;
  DType dtype_;
  Device device_;
  bool is_writable_;
  std::shared_ptr<void> owner_;
  std::shared_ptr<Lease> lease_ = std::make_shared<Lease>();
  std::vector<Py_ssize_t> dimensions_;
  std::vector<Py_ssize_t> strides_;  ///< in bytes
};

/// Reads a dtype: "float32"; also numpy.float32, torch.float32 and dtypes of arrays.
DType read_dtype(nb::handle given);
/// Reads a shape: 7, (2, 3) or [2, 3].
Shape read_shape(nb::handle given);

void bind_array(nb::module_& module);

}  // namespace tutti::python
