// SPDX-License-Identifier: Apache-2.0
// Tensors: Tensor owns its memory, TensorView and ConstTensorView borrow it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "tutti/dtype.hpp"
#include "tutti/export.h"
#include "tutti/shape.hpp"

namespace tutti {

/// A borrowed, read-only tensor: dense and row-major.
///
/// A view does not keep a caller's memory alive. A view into a store (KVStore::view) does keep the
/// memory that it shows, also when the store is gone.
class TUTTI_API ConstTensorView {
 public:
  ConstTensorView(const void* data, Shape shape, DType dtype, Device device = cpu(),
                  std::shared_ptr<const void> keep_alive = nullptr)
      : data_(static_cast<const std::byte*>(data)),
        shape_(shape),
        dtype_(dtype),
        device_(device),
        keep_alive_(std::move(keep_alive)) {}

  [[nodiscard]] const std::byte* bytes() const noexcept { return data_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] std::size_t count() const noexcept { return shape_.count(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return count() * size_of(dtype_); }

  /// The elements. Errors: invalid_argument if T is not the element type, or if they are on a GPU.
  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    require_dtype(dtype_of<T>);
    return {reinterpret_cast<const T*>(data_), count()};
  }

  /// A copy of the elements as T, from any element type and device, converted as by copy_from.
  template <Element T>
  [[nodiscard]] std::vector<T> to_vector() const {
    std::vector<T> elements(count());
    copy_to(elements.data(), dtype_of<T>, 0, shape_);
    return elements;
  }

  /// One element as T, from any element type and device, converted as by copy_from. `index` counts
  /// in row-major order. Errors: invalid_argument if there is no such element.
  template <Element T = double>
  [[nodiscard]] T value(std::size_t index = 0) const {
    require_index(index);
    T element{};
    copy_to(&element, dtype_of<T>, index, {});
    return element;
  }

 protected:
  void require_dtype(DType asked) const;

 private:
  void require_index(std::size_t index) const;
  /// Copies elements from `first` on; `shape` says how many.
  void copy_to(void* target, DType dtype, std::size_t first, const Shape& shape) const;

  const std::byte* data_;
  Shape shape_;
  DType dtype_;
  Device device_;
  std::shared_ptr<const void> keep_alive_;
};

/// `factor * view`, not yet computed: an operand of the arithmetic of TensorView.
struct ScaledView {
  ConstTensorView view;
  double factor;
};
inline ScaledView operator*(double factor, ConstTensorView view) {
  return {std::move(view), factor};
}
inline ScaledView operator*(ConstTensorView view, double factor) {
  return {std::move(view), factor};
}

/// A borrowed, writable tensor. It cannot be rebound: assignment is deleted, so that an updater
/// that writes `stored = input` does not compile instead of doing nothing; use copy_from.
///
/// Arithmetic is elementwise, in place, in the element type (16-bit floats compute in float32;
/// a factor is converted to the type computed in). Shapes, dtypes and devices must be equal. On a
/// GPU it is put into the device's stream (gpu.hpp). Errors: invalid_argument.
class TUTTI_API TensorView : public ConstTensorView {
 public:
  TensorView(void* data, Shape shape, DType dtype, Device device = cpu())
      : ConstTensorView(data, shape, dtype, device) {}
  TensorView(const TensorView&) = default;
  TensorView& operator=(const TensorView&) = delete;

  [[nodiscard]] std::byte* bytes() const noexcept {
    return const_cast<std::byte*>(ConstTensorView::bytes());  // it was given to us writable
  }
  template <class T>
  [[nodiscard]] std::span<T> values() const {
    require_dtype(dtype_of<T>);
    return {reinterpret_cast<T*>(bytes()), count()};
  }

  const TensorView& operator+=(const ScaledView& right) const;
  const TensorView& operator-=(const ScaledView& right) const;
  const TensorView& operator+=(const ConstTensorView& right) const { return *this += 1.0 * right; }
  const TensorView& operator-=(const ConstTensorView& right) const { return *this -= 1.0 * right; }
  const TensorView& operator*=(double factor) const;

  void fill(double value) const;

  /// Copies the elements from any device, converting them where the element types differ.
  void copy_from(const ConstTensorView& source) const;
};

/// Owns its elements; moves, does not copy (clone() says so where a copy is meant).
///
/// Memory is aligned to 128 bytes. Memory of a GPU is kept for later tensors when one is destroyed.
/// A tensor from KVStore::allocate or Communicator::allocate lives in memory that the node's other
/// ranks can read, and is pushed without any copy; it keeps that memory mapped.
class TUTTI_API Tensor {
 public:
  static Tensor empty(Shape shape, DType dtype = DType::float32, Device device = cpu());
  static Tensor full(Shape shape, double value, DType dtype = DType::float32,
                     Device device = cpu());
  static Tensor zeros(Shape shape, DType dtype = DType::float32, Device device = cpu()) {
    return full(shape, 0.0, dtype, device);
  }
  static Tensor ones(Shape shape, DType dtype = DType::float32, Device device = cpu()) {
    return full(shape, 1.0, dtype, device);
  }
  /// A copy of a list, vector, array or span, of its element type: `from({1.0f, 2.0f})`,
  /// `from<std::int64_t>({7, 9})`, `from(vector)`, `from(vector, {2, 3})`. Without a shape it has
  /// one dimension. Errors: invalid_argument if the shape has another number of elements.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    require_count(values.size(), shape);
    Tensor tensor = empty(shape, dtype_of<T>);
    std::copy(values.begin(), values.end(), tensor.template values<T>().begin());
    return tensor;
  }
  template <class T>
  static Tensor from(std::span<const T> values) {
    return from<T>(values, {static_cast<std::int64_t>(values.size())});
  }
  template <Element T>
  static Tensor from(std::initializer_list<T> values) {
    return from(std::span<const T>(values.begin(), values.size()));
  }
  template <Element T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape) {
    return from(std::span<const T>(values.begin(), values.size()), shape);
  }
  template <std::ranges::contiguous_range Range>
  requires Element<std::ranges::range_value_t<Range>>
  static Tensor from(const Range& values) {
    return from(std::span<const std::ranges::range_value_t<Range>>(values));
  }
  template <std::ranges::contiguous_range Range>
  requires Element<std::ranges::range_value_t<Range>>
  static Tensor from(const Range& values, const Shape& shape) {
    return from(std::span<const std::ranges::range_value_t<Range>>(values), shape);
  }
  /// Takes memory that was allocated elsewhere; `owner` frees it.
  static Tensor adopt(std::shared_ptr<void> owner, void* data, Shape shape, DType dtype,
                      Device device = cpu());

  /// A tensor that was moved from has no memory and no elements: its shape is (0).
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }

  [[nodiscard]] Tensor clone() const;

  [[nodiscard]] TensorView view() noexcept { return {bytes(), shape_, dtype_, device_}; }
  [[nodiscard]] ConstTensorView view() const noexcept { return {bytes(), shape_, dtype_, device_}; }
  /// A view that keeps the memory, also when this tensor is gone.
  [[nodiscard]] ConstTensorView shared() const { return {data_, shape_, dtype_, device_, owner_}; }
  operator TensorView() noexcept { return view(); }             // NOLINT: implicit on purpose
  operator ConstTensorView() noexcept { return view(); }        // NOLINT: implicit on purpose
  operator ConstTensorView() const noexcept { return view(); }  // NOLINT: implicit on purpose

  [[nodiscard]] std::byte* bytes() noexcept { return data_; }
  [[nodiscard]] const std::byte* bytes() const noexcept { return data_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] std::size_t count() const noexcept { return shape_.count(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return count() * size_of(dtype_); }
  template <class T>
  [[nodiscard]] std::span<T> values() {
    return view().values<T>();
  }
  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    return view().values<T>();
  }
  /// Elements as those of ConstTensorView.
  template <Element T>
  [[nodiscard]] std::vector<T> to_vector() const {
    return view().template to_vector<T>();
  }
  template <Element T = double>
  [[nodiscard]] T value(std::size_t index = 0) const {
    return view().template value<T>(index);
  }
  void fill(double value) { view().fill(value); }

 private:
  static void require_count(std::size_t values, const Shape& shape);

  Tensor(std::shared_ptr<void> owner, std::byte* data, Shape shape, DType dtype, Device device)
      : owner_(std::move(owner)), data_(data), shape_(shape), dtype_(dtype), device_(device) {}
  void swap(Tensor& other) noexcept {
    std::swap(owner_, other.owner_), std::swap(data_, other.data_), std::swap(shape_, other.shape_);
    std::swap(dtype_, other.dtype_), std::swap(device_, other.device_);
  }

  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  Shape shape_{0};
  DType dtype_ = DType::float32;
  Device device_;
};

/// Borrows memory of the caller's: `view(vector.data(), {2, 3})`.
template <class T>
TensorView view(T* data, Shape shape, Device device = cpu()) {
  return {data, shape, dtype_of<T>, device};
}
template <class T>
ConstTensorView view(const T* data, Shape shape, Device device = cpu()) {
  return {data, shape, dtype_of<T>, device};
}

}  // namespace tutti
