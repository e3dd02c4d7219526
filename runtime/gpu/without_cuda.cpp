// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/gpus.hpp"

namespace tutti::gpus {

Found find_accelerator() { return {nullptr, "this build has no GPU support (nvcc was not found)"}; }

}  // namespace tutti::gpus
