// SPDX-License-Identifier: Apache-2.0
// In place of mlp_gpu.cu, in a build without CUDA.
#include <tutti/error.hpp>
#include <tutti/gpu.hpp>

#include "support/mlp_arithmetic.hpp"

namespace apps {

std::unique_ptr<MlpArithmetic> gpu_arithmetic(tutti::Device device, int /*pixels*/,
                                              int /*max_batch*/) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument,
                     "training on " + to_string(device) + ": " + tutti::describe_gpus());
}

}  // namespace apps
