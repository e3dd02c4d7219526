// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/tensor_ops.hpp"

namespace tutti::gpus {

namespace {

/// The GPU that holds a tensor, its kernels and its stream.
struct TensorGpu {
  TensorGpu(const char* operation, const ConstTensorView& tensor)
      : gpus(require_gpus(operation, tensor.device())),
        kernels(gpus->kernels(tensor.device().index)),
        stream(gpus->stream(tensor.device().index)) {}
  std::shared_ptr<Gpus> gpus;
  Kernels& kernels;
  Stream stream;
};

void copy_bytes(const TensorView& target, const ConstTensorView& source, const Wait& wait) {
  const bool on_gpu = target.device().kind == DeviceKind::gpu;
  const auto gpus = require_gpus("copy_from", on_gpu ? target.device() : source.device());
  if (on_gpu && source.device().kind == DeviceKind::gpu) {
    gpus->require("copy_from", source.device());
  }
  gpus->copy(target.bytes(), target.device(), source.bytes(), source.device(), target.size_bytes(),
             wait);
}

}  // namespace

void fill(const TensorView& target, double value) {
  const TensorGpu where("fill", target);
  where.kernels.fill(where.stream, target.bytes(), target.dtype(), target.count(), value);
}

void scale(const TensorView& target, double factor) {
  const TensorGpu where("tensor *=", target);
  where.kernels.scale(where.stream, target.bytes(), target.dtype(), target.count(), factor);
}

void add_scaled(const TensorView& target, double factor, const ConstTensorView& source) {
  const TensorGpu where("tensor +=", target);
  where.kernels.add_scaled(where.stream, target.bytes(), target.dtype(), target.count(), factor,
                           source.bytes());
}

void subtract_scaled(const TensorView& target, double factor, const ConstTensorView& source) {
  const TensorGpu where("tensor -=", target);
  where.kernels.subtract_scaled(where.stream, target.bytes(), target.dtype(), target.count(),
                                factor, source.bytes());
}

/// Copies a tensor. Elements are converted on the side that they come from: on its GPU, or on the
/// CPU before they are sent.
void copy(const TensorView& target, const ConstTensorView& source, const Wait& wait) {
  if (target.dtype() == source.dtype()) return copy_bytes(target, source, wait);
  if (target.device() == source.device()) {
    const TensorGpu where("copy_from", target);
    where.kernels.convert(where.stream, target.bytes(), target.dtype(), source.bytes(),
                          source.dtype(), target.count());
    return;
  }
  Tensor converted = Tensor::empty(source.shape(), target.dtype(), source.device());
  converted.view().copy_from(source);
  copy_bytes(target, converted, wait);
}

}  // namespace tutti::gpus
