// SPDX-License-Identifier: Apache-2.0
#include "support/mlp.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>

namespace apps {

namespace {

class CpuArithmetic final : public MlpArithmetic {
 public:
  explicit CpuArithmetic(const MlpKernels& kernels) : kernels_(kernels) {}

  [[nodiscard]] std::string name() const override { return kernels_.name; }
  [[nodiscard]] tutti::Device device() const override { return tutti::cpu(); }

  void load(const PixelRows& rows, int batch, float* output) override {
    kernels_.load(rows, batch, output);
  }
  void forward(const DenseLayer& layer, int batch, const float* input, float* output) override {
    kernels_.forward(layer, batch, input, output);
  }
  void backward(const DenseGradient& gradient, const DenseLayer& layer, int batch,
                const float* input, const float* delta) override {
    kernels_.backward(gradient, layer, batch, input, delta);
  }
  void backward_input(const DenseLayer& layer, int batch, const float* delta, const float* input,
                      float* input_delta) override {
    kernels_.backward_input(layer, batch, delta, input, input_delta);
  }
  double softmax_loss(int batch, int classes, const std::uint8_t* labels, float* logits) override {
    return kernels_.softmax_loss(batch, classes, labels, logits);
  }
  int count_correct(int batch, int classes, const std::uint8_t* labels,
                    const float* logits) override {
    return kernels_.count_correct(batch, classes, labels, logits);
  }

 private:
  const MlpKernels& kernels_;
};

}  // namespace

std::unique_ptr<MlpArithmetic> cpu_arithmetic(const MlpKernels& kernels) {
  return std::make_unique<CpuArithmetic>(kernels);
}

std::span<const MlpKernels* const> all_kernels() noexcept {
#if defined(__x86_64__)
  static constexpr std::array kAll{&kernels_avx512::kTable, &kernels_avx2::kTable,
                                   &kernels_generic::kTable};
#else
  static constexpr std::array kAll{&kernels_generic::kTable};
#endif
  return kAll;
}

const MlpKernels& best_kernels() noexcept {
  const auto all = all_kernels();
  return **std::ranges::find_if(all,
                                [](const MlpKernels* kernels) { return kernels->supported(); });
}

Mlp::Mlp(const std::vector<int>& widths, int max_batch, std::unique_ptr<MlpArithmetic> arithmetic)
    : arithmetic_(std::move(arithmetic)),
      labels_(static_cast<std::size_t>(max_batch)),
      indices_(labels_.size()),
      gradients_(widths.size() - 1) {
  for (std::size_t layer = 0; layer < widths.size(); ++layer) {
    const std::int64_t count = std::int64_t{widths[layer]} * max_batch;
    const bool last = layer + 1 == widths.size();
    const auto zeros = [&](std::int64_t elements) {
      return tutti::Tensor::zeros({elements}, tutti::DType::float32, device());
    };
    activations_.push_back(zeros(count));
    deltas_.push_back(zeros(layer == 0 || last ? 0 : count));
    if (last) break;
    layers_.push_back({.inputs = widths[layer],
                       .outputs = widths[layer + 1],
                       .weight = nullptr,
                       .bias = nullptr,
                       .relu = layer + 2 < widths.size()});
  }
}

void Mlp::bind(int layer, const LayerMemory& memory) {
  const auto index = static_cast<std::size_t>(layer);
  layers_[index].weight = memory.weight;
  layers_[index].bias = memory.bias;
  gradients_[index] = {memory.weight_gradient, memory.bias_gradient};
}

float* Mlp::forward(const Batch& batch) {
  if (batch.indices.size() > labels_.size()) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       "a batch of " + std::to_string(batch.indices.size()) +
                           " images: the model was made for at most " +
                           std::to_string(labels_.size()));
  }
  const int size = static_cast<int>(batch.indices.size());
  for (std::size_t row = 0; row < batch.indices.size(); ++row) {
    labels_[row] = batch.images.labels[batch.indices[row]];
  }
  const PixelRows rows{.images = batch.images.pixels.data(),
                       .indices = batch.indices.data(),
                       .pixels = layers_.front().inputs,
                       .scale = 1.0F / (255.0F * kPixelDeviation),
                       .shift = -kPixelMean / kPixelDeviation};
  arithmetic_->load(rows, size, activation(0));
  for (int layer = 0; layer < num_layers(); ++layer) {
    arithmetic_->forward(layers_[static_cast<std::size_t>(layer)], size, activation(layer),
                         activation(layer + 1));
  }
  return activation(num_layers());
}

double Mlp::loss(const Batch& batch) {
  float* const logits = forward(batch);
  return arithmetic_->softmax_loss(static_cast<int>(batch.indices.size()), layers_.back().outputs,
                                   labels_.data(), logits);
}

double Mlp::gradients(const Batch& batch, const std::function<void(int)>& done, double loss_scale) {
  const double summed_loss = loss(batch);
  const int size = static_cast<int>(batch.indices.size());
  const float* above = activation(num_layers());  // which has become the logits' delta
  if (loss_scale != 1) {
    const std::int64_t count = std::int64_t{size} * layers_.back().outputs;
    tutti::view(activation(num_layers()), {count}, device()) *= loss_scale;
  }
  for (int index = num_layers() - 1; index >= 0; --index) {
    const DenseLayer& layer = layers_[static_cast<std::size_t>(index)];
    arithmetic_->backward(gradients_[static_cast<std::size_t>(index)], layer, size,
                          activation(index), above);
    if (index > 0) {
      arithmetic_->backward_input(layer, size, above, activation(index), delta(index));
      above = delta(index);
    }
    if (done) done(index);
  }
  return summed_loss;
}

int Mlp::count_correct(const LabelledImages& images, std::size_t first, std::size_t last) {
  int correct = 0;
  for (std::size_t begin = first; begin < last; begin += indices_.size()) {
    const auto indices = std::span(indices_).first(std::min(indices_.size(), last - begin));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
    const float* const logits = forward({images, indices});
    correct += arithmetic_->count_correct(static_cast<int>(indices.size()), layers_.back().outputs,
                                          labels_.data(), logits);
  }
  return correct;
}

#if !defined(APPS_WITH_CUDA)  // else mlp_gpu.cu defines it
std::unique_ptr<MlpArithmetic> gpu_arithmetic(tutti::Device device, int /*pixels*/,
                                              int /*max_batch*/) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument,
                     "training on " + to_string(device) + ": " + tutti::describe_gpus());
}
#endif

}  // namespace apps
