// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set. This file is compiled several times: APPS_KERNELS is the
// namespace of this variant, and Eigen's namespace is renamed with it, so that the linker never
// merges instantiations for different instruction sets.
#define APPS_JOIN_TWICE(left, right) left##right
#define APPS_JOIN(left, right) APPS_JOIN_TWICE(left, right)
#define Eigen APPS_JOIN(Eigen_, APPS_KERNELS)  // NOLINT: the namespace of another library
#define EIGEN_DONT_PARALLELIZE
#include "support/mlp_kernels.hpp"

#include <Eigen/Core>

namespace apps::APPS_KERNELS {
namespace {

// A row-major [batch][features] matrix is Eigen's default, column-major, features x batch.
using Matrix = Eigen::Map<Eigen::MatrixXf>;
using ConstMatrix = Eigen::Map<const Eigen::MatrixXf>;
using ConstVector = Eigen::Map<const Eigen::VectorXf>;

bool supported() {
#if defined(__AVX512F__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("fma");
#elif defined(__AVX2__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

void load(const PixelRows& rows, int batch, float* output) {
  for (int row = 0; row < batch; ++row) {
    const std::uint8_t* const image =
        rows.images + static_cast<std::int64_t>(rows.indices[row]) * rows.pixels;
    float* const target = output + static_cast<std::int64_t>(row) * rows.pixels;
    for (int pixel = 0; pixel < rows.pixels; ++pixel) {
      target[pixel] = static_cast<float>(image[pixel]) * rows.scale + rows.shift;
    }
  }
}

void forward(const DenseLayer& layer, int batch, const float* input, float* output) {
  const ConstMatrix weight(layer.weight, layer.inputs, layer.outputs);
  const ConstMatrix below(input, layer.inputs, batch);
  const ConstVector bias(layer.bias, layer.outputs);
  Matrix sums(output, layer.outputs, batch);
  sums.noalias() = weight.transpose() * below;
  if (layer.relu) {
    for (int row = 0; row < batch; ++row) sums.col(row) = (sums.col(row) + bias).cwiseMax(0.0f);
  } else {
    for (int row = 0; row < batch; ++row) sums.col(row) += bias;
  }
}

void backward(const DenseGradient& gradient, const DenseLayer& layer, int batch, const float* input,
              const float* delta) {
  const ConstMatrix below(input, layer.inputs, batch);
  const ConstMatrix above(delta, layer.outputs, batch);
  Matrix(gradient.weight, layer.inputs, layer.outputs).noalias() = below * above.transpose();
  Eigen::Map<Eigen::VectorXf> bias(gradient.bias, layer.outputs);
  bias = above.col(0);
  for (int row = 1; row < batch; ++row) bias += above.col(row);
}

void backward_input(const DenseLayer& layer, int batch, const float* delta, const float* input,
                    float* input_delta) {
  const ConstMatrix weight(layer.weight, layer.inputs, layer.outputs);
  const ConstMatrix above(delta, layer.outputs, batch);
  const ConstMatrix activation(input, layer.inputs, batch);
  Matrix below(input_delta, layer.inputs, batch);
  below.noalias() = weight * above;
  below.array() *= (activation.array() > 0.0f).cast<float>();
}

double softmax_loss(int batch, int classes, const std::uint8_t* labels, float* logits) {
  double loss = 0.0;
  for (int row = 0; row < batch; ++row) {
    Eigen::Map<Eigen::ArrayXf> sums(logits + static_cast<std::int64_t>(row) * classes, classes);
    sums -= sums.maxCoeff();
    const float right = sums[labels[row]];
    sums = sums.exp();
    const float total = sums.sum();
    loss += static_cast<double>(__builtin_logf(total) - right);
    sums /= total;
    sums[labels[row]] -= 1.0f;
  }
  return loss;
}

int count_correct(int batch, int classes, const std::uint8_t* labels, const float* logits) {
  int correct = 0;
  for (int row = 0; row < batch; ++row) {
    const float* const sums = logits + static_cast<std::int64_t>(row) * classes;
    int best = 0;
    for (int label = 1; label < classes; ++label) {
      if (sums[label] > sums[best]) best = label;
    }
    correct += best == labels[row] ? 1 : 0;
  }
  return correct;
}

}  // namespace

#define APPS_TEXT_TWICE(name) #name
#define APPS_TEXT(name) APPS_TEXT_TWICE(name)
constinit const MlpKernels kTable{.name = &APPS_TEXT(APPS_KERNELS)[sizeof("kernels_") - 1],
                                  .supported = supported,
                                  .load = load,
                                  .forward = forward,
                                  .backward = backward,
                                  .backward_input = backward_input,
                                  .softmax_loss = softmax_loss,
                                  .count_correct = count_correct};

}  // namespace apps::APPS_KERNELS
