// SPDX-License-Identifier: Apache-2.0
// A multilayer perceptron: dense layers with ReLU between them, softmax cross-entropy at the end.
//
// The network owns no weights: they and their gradients lie where the caller says, for example in a
// store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tutti/tensor.hpp>

#include "support/fashion_mnist.hpp"
#include "support/mlp_kernels.hpp"

namespace apps {

/// The arithmetic of a network on one device: on the CPU, by one of the variants of its kernels, or
/// on a GPU. Its functions are those of MlpKernels, on memory of device(). Labels, images and
/// indices are in the CPU's memory; a layer's parameters and gradients are where the activations
/// are.
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

/// Arithmetic on a GPU, with cuBLAS, in the device's stream. `pixels` and `max_batch` are the
/// largest of all calls.
/// Errors  invalid_argument: a build without CUDA, a machine without cuBLAS.
std::unique_ptr<MlpArithmetic> gpu_arithmetic(tutti::Device device, int pixels, int max_batch);

/// All variants that were compiled, the fastest first; the last one runs on every processor.
std::span<const MlpKernels* const> all_kernels() noexcept;
/// The first variant that this processor can run.
const MlpKernels& best_kernels() noexcept;

/// The memory of one layer's parameters, which are read, and of its gradients, which are written;
/// row-major.
struct LayerMemory {
  const float* weight;  ///< [outputs][inputs]
  const float* bias;    ///< [outputs]
  float* weight_gradient;
  float* bias_gradient;
};

/// Some images of a set, in the order in which they are taken.
struct Batch {
  const LabelledImages& images;
  std::span<const std::uint32_t> indices;
};

class Mlp {
 public:
  /// `widths` are input, hidden layers, classes: {784, 256, 128, 10}. All memory is allocated here,
  /// where the arithmetic is done.
  Mlp(const std::vector<int>& widths, int max_batch, std::unique_ptr<MlpArithmetic> arithmetic);
  Mlp(const std::vector<int>& widths, int max_batch, const MlpKernels& kernels = best_kernels())
      : Mlp(widths, max_batch, cpu_arithmetic(kernels)) {}

  [[nodiscard]] int num_layers() const noexcept { return static_cast<int>(layers_.size()); }
  [[nodiscard]] tutti::Device device() const { return arithmetic_->device(); }

  /// Sets a layer's memory, which may change its content between calls, but not its address.
  void bind(int layer, const LayerMemory& memory);

  /// Writes all gradients, summed over the batch; returns the loss, summed over the batch.
  /// `done(layer)` is called when a layer's gradients are complete, the last layer's first, and its
  /// weights are read no more. The gradients are those of the loss times `loss_scale`.
  double gradients(const Batch& batch, const std::function<void(int)>& done = {},
                   double loss_scale = 1);
  /// The loss alone, summed over the batch.
  double loss(const Batch& batch);
  /// The number of images first .. last-1 whose labels the network predicts.
  int count_correct(const LabelledImages& images, std::size_t first, std::size_t last);

 private:
  float* forward(const Batch& batch);  // returns the logits
  float* activation(int layer) noexcept {
    return reinterpret_cast<float*>(activations_[static_cast<std::size_t>(layer)].bytes());
  }
  float* delta(int layer) noexcept {
    return reinterpret_cast<float*>(deltas_[static_cast<std::size_t>(layer)].bytes());
  }

  std::unique_ptr<MlpArithmetic> arithmetic_;
  std::vector<std::uint8_t> labels_;    // labels of the batch
  std::vector<std::uint32_t> indices_;  // indices of count_correct's batch
  std::vector<DenseLayer> layers_;
  std::vector<DenseGradient> gradients_;
  std::vector<tutti::Tensor> activations_;  // [0] is the input, [i + 1] the output of layer i
  std::vector<tutti::Tensor> deltas_;       // for the hidden activations; [0] is never needed
};

}  // namespace apps
