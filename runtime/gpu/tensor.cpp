// SPDX-License-Identifier: Apache-2.0
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>

#include "tutti/error.hpp"

#include "runtime/base/elements.hpp"
#include "runtime/base/tensor_bytes.hpp"
#include "runtime/gpu/tensor_ops.hpp"

namespace tutti {
namespace {

constexpr std::align_val_t kAlignment{128};

using elements::computed;
using elements::convert;
using elements::convert_factor;

[[noreturn]] void throw_unfit(const char* operation, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, std::string(operation) + ": " + why);
}

bool is_on_gpu(const ConstTensorView& tensor) { return tensor.device().kind == DeviceKind::gpu; }

void require_shape(const char* operation, const TensorView& target, const ConstTensorView& source) {
  if (source.shape() == target.shape()) return;
  throw_unfit(operation, "expected shape " + to_string(target.shape()) +
                             " like the tensor written to, got " + to_string(source.shape()));
}

void require_like(const char* operation, const TensorView& target, const ConstTensorView& source) {
  require_shape(operation, target, source);
  if (source.dtype() != target.dtype()) {
    throw_unfit(operation, std::string("expected dtype ") + to_string(target.dtype()) +
                               " like the tensor written to, got " + to_string(source.dtype()) +
                               " (copy_from converts)");
  }
  const bool same_memory = source.device().kind == DeviceKind::cpu && !is_on_gpu(target);
  if (same_memory || source.device() == target.device()) return;
  throw_unfit(operation, "expected a tensor on " + to_string(target.device()) +
                             " like the one written to, got one on " + to_string(source.device()) +
                             " (copy_from copies between devices)");
}

// Computes target[i] = step(target[i], source[i]) in the type that T is computed in.
template <class T, class Step>
void update(const TensorView& target, const ConstTensorView& source, Step step) {
  T* out = target.values<T>().data();
  const T* in = source.values<T>().data();
  const std::size_t count = target.count();
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = elements::stored<T>(step(computed(out[i]), computed(in[i])));
  }
}

template <class To, class From>
void copy_converted(std::span<To> target, std::span<const From> source) {
  std::ranges::transform(source, target.begin(), [](From value) { return convert<To>(value); });
}

}  // namespace

void ConstTensorView::require_dtype(DType asked) const {
  if (device_.kind == DeviceKind::gpu) {
    throw_unfit("values",
                "the elements are on " + to_string(device_) +
                    ", where this program cannot read them; copy_from copies them to a tensor "
                    "on the cpu");
  }
  if (asked == dtype_) return;
  throw_unfit("values", std::string("expected dtype ") + to_string(dtype_) +
                            " of this tensor, got " + to_string(asked));
}

void ConstTensorView::require_index(std::size_t index) const {
  if (index < count()) return;
  throw_unfit("value", "expected an index below " + std::to_string(count()) +
                           ", the number of elements, got " + std::to_string(index));
}

void ConstTensorView::copy_to(void* target, DType dtype, std::size_t first,
                              const Shape& shape) const {
  const ConstTensorView part(data_ + first * size_of(dtype_), shape, dtype_, device_);
  TensorView(target, shape, dtype).copy_from(part);
}

const TensorView& TensorView::operator+=(const ScaledView& right) const {
  require_like("tensor +=", *this, right.view);
  if (is_on_gpu(*this)) {
    gpus::add_scaled(*this, right.factor, right.view);
    return *this;
  }
  visit(dtype(), [&]<class T>(T) {
    const auto factor = convert_factor<T>(right.factor);
    update<T>(*this, right.view, [=](auto mine, auto other) { return mine + factor * other; });
  });
  return *this;
}

const TensorView& TensorView::operator-=(const ScaledView& right) const {
  require_like("tensor -=", *this, right.view);
  if (is_on_gpu(*this)) {
    gpus::subtract_scaled(*this, right.factor, right.view);
    return *this;
  }
  visit(dtype(), [&]<class T>(T) {
    const auto factor = convert_factor<T>(right.factor);
    update<T>(*this, right.view, [=](auto mine, auto other) { return mine - factor * other; });
  });
  return *this;
}

const TensorView& TensorView::operator*=(double right) const {
  if (is_on_gpu(*this)) {
    gpus::scale(*this, right);
    return *this;
  }
  visit(dtype(), [&]<class T>(T) {
    const auto factor = convert_factor<T>(right);
    update<T>(*this, *this, [=](auto mine, auto) { return mine * factor; });
  });
  return *this;
}

void TensorView::fill(double value) const {
  if (is_on_gpu(*this)) return gpus::fill(*this, value);
  visit(dtype(), [&]<class T>(T) { std::ranges::fill(values<T>(), convert<T>(value)); });
}

void TensorView::copy_from(const ConstTensorView& source) const {
  require_shape("copy_from", *this, source);
  if (is_on_gpu(*this) || is_on_gpu(source)) return gpus::copy(*this, source);
  if (source.dtype() == dtype()) {
    if (count() > 0) std::memmove(bytes(), source.bytes(), size_bytes());
    return;
  }
  visit(dtype(), [&]<class To>(To) {
    visit(source.dtype(),
          [&]<class From>(From) { copy_converted(values<To>(), source.values<From>()); });
  });
}

Tensor Tensor::empty(Shape shape, DType dtype, Device device) {
  if (device.kind == DeviceKind::gpu) {
    return gpus::require_gpus("tensor", device)->allocate(shape, dtype, device);
  }
  const auto throw_out_of_memory = [&] {
    throw Error(ErrorCode::out_of_memory,
                "tensor: no memory for shape " + to_string(shape) + " of " + to_string(dtype) +
                    " in this process; use a smaller one, or raise ulimit -v if it is set");
  };
  const std::optional<std::size_t> bytes = bytes_of(shape, dtype);
  if (!bytes) throw_out_of_memory();
  void* data = ::operator new(*bytes, kAlignment, std::nothrow);
  if (data == nullptr) throw_out_of_memory();
  std::shared_ptr<void> owner(data, [](void* memory) { ::operator delete(memory, kAlignment); });
  return {std::move(owner), static_cast<std::byte*>(data), shape, dtype, device};
}

void Tensor::require_count(std::size_t values, const Shape& shape) {
  if (values == shape.count()) return;
  throw_unfit("tensor from values", "expected " + std::to_string(shape.count()) +
                                        " values for shape " + to_string(shape) + ", got " +
                                        std::to_string(values));
}

Tensor Tensor::full(Shape shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill(value);
  return tensor;
}

Tensor Tensor::adopt(std::shared_ptr<void> owner, void* data, Shape shape, DType dtype,
                     Device device) {
  return {std::move(owner), static_cast<std::byte*>(data), shape, dtype, device};
}

Tensor Tensor::clone() const {
  Tensor copy = empty(shape_, dtype_, device_);
  copy.view().copy_from(view());
  return copy;
}

}  // namespace tutti
