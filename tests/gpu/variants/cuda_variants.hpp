// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/gpu/variants/variant.hpp"

namespace test::variants {

void add_load_variants(Variants& variants, int device);
void add_launch_variants(Variants& variants, int device);

}  // namespace test::variants
