// SPDX-License-Identifier: Apache-2.0
// The checks of a push of keys on GPUs, before anything is done.
#pragma once

#include <span>

#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/push_plan.hpp"
#include "runtime/store/core/updates.hpp"

namespace tutti {

/// Errors  invalid_argument: keys on GPUs and on the cpu in one list, or, with several ranks, on
///         two GPUs; a dtype that the compression does not pack; an optimizer that has no kernels
///         or does not take the dtype, or scales gradients that are compressed.
void require_pushable(std::span<const PushItem> items, int ranks, const UpdateRule& rule,
                      const GradientCompression& compression);

}  // namespace tutti
