// SPDX-License-Identifier: Apache-2.0
#include "support/mlp_arithmetic.hpp"

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

}  // namespace apps
