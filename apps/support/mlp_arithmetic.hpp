// SPDX-License-Identifier: Apache-2.0
// Where a multilayer perceptron computes: the cpu, by one of the variants of its kernels, or a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tutti/tensor.hpp>

#include "support/mlp_kernels.hpp"

namespace apps {

/// The functions of MlpKernels, on memory of device(). Labels, images and indices are the cpu's; a
/// layer's parameters and gradients are where the activations are.
class MlpArithmetic {
 public:
  virtual ~MlpArithmetic() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual tutti::Device device() const = 0;

  virtual void load(const PixelRows& rows, int batch, float* output) = 0;
  virtual void forward(const DenseLayer& layer, int batch, const float* input, float* output) = 0;
  virtual void backward(const DenseGradient& gradient, const DenseLayer& layer, int batch,
                        const float* input, const float* delta) = 0;
  virtual void backward_input(const DenseLayer& layer, int batch, const float* delta,
                              const float* input, float* input_delta) = 0;
  virtual double softmax_loss(int batch, int classes, const std::uint8_t* labels,
                              float* logits) = 0;
  virtual int count_correct(int batch, int classes, const std::uint8_t* labels,
                            const float* logits) = 0;
};

std::unique_ptr<MlpArithmetic> cpu_arithmetic(const MlpKernels& kernels);

/// With cuBLAS, in the device's stream. `pixels` and `max_batch` are the largest of all calls.
/// Errors  invalid_argument: a build without CUDA, a machine without cuBLAS.
std::unique_ptr<MlpArithmetic> gpu_arithmetic(tutti::Device device, int pixels, int max_batch);

}  // namespace apps
