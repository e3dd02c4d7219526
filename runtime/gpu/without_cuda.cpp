// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/gpus.hpp"

namespace tutti::gpus {

Found find_accelerator() {
  return {nullptr,
          "this build has no GPU support (cmake found no nvcc, pip found no GPU, or TUTTI_CUDA was "
          "OFF)"};
}

}  // namespace tutti::gpus
