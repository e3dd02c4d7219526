// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a multilayer perceptron, compiled once for each instruction set.
//
// Matrices are dense and row-major: activations [batch][features], weights [outputs][inputs].
// Plain pointers and no std:: templates: the linker may take any variant's copy of a function that
// they share by name, and a std:: function compiled for AVX-512 must not end up in the rest of the
// program.
#pragma once

#include <cstdint>

namespace apps {

struct DenseLayer {
  int inputs;
  int outputs;
  const float* weight;  ///< [outputs][inputs]
  const float* bias;    ///< [outputs]
  bool relu;            ///< the activation is max(0, x); else it is x
};

/// The targets of sums over a batch.
struct DenseGradient {
  float* weight;
  float* bias;
};

/// Rows of a table of images, as network input: pixel * scale + shift.
struct PixelRows {
  const std::uint8_t* images;    ///< [any number][pixels]
  const std::uint32_t* indices;  ///< the rows to take
  int pixels;
  float scale;
  float shift;
};

/// One variant of the kernels. All functions take `batch` rows.
struct MlpKernels {
  const char* name;
  /// True if this processor can run it. Call it before any other function of the variant.
  bool (*supported)();
  void (*load)(const PixelRows& rows, int batch, float* output);
  void (*forward)(const DenseLayer& layer, int batch, const float* input, float* output);
  /// `delta` is the gradient of the loss with respect to the layer's sums, before the activation.
  void (*backward)(const DenseGradient& gradient, const DenseLayer& layer, int batch,
                   const float* input, const float* delta);
  /// The delta of the layer below; `input` is that layer's ReLU output.
  void (*backward_input)(const DenseLayer& layer, int batch, const float* delta, const float* input,
                         float* input_delta);
  /// Replaces the logits by their delta; returns the cross-entropy summed over the batch.
  double (*softmax_loss)(int batch, int classes, const std::uint8_t* labels, float* logits);
  int (*count_correct)(int batch, int classes, const std::uint8_t* labels, const float* logits);
};

namespace kernels_generic {
extern const MlpKernels kTable;
}
#if defined(__x86_64__)
namespace kernels_avx2 {
extern const MlpKernels kTable;
}
namespace kernels_avx512 {
extern const MlpKernels kTable;
}
#endif

}  // namespace apps
