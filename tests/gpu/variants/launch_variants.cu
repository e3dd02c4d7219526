// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/variants/cuda_variants.cuh"
#include "tests/gpu/variants/cuda_variants.hpp"

namespace test::variants {

void add_launch_variants(Variants& variants, int device) {
  add_variants<CudaVariantMachine>(variants, device, LaunchShapes());
}

}  // namespace test::variants
