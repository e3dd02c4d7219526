// SPDX-License-Identifier: Apache-2.0
// Loss scaling, and a store's account of the gradients that it scales or clips as a whole.
#pragma once

#include <cstdint>

namespace tutti {

/// The option loss_scale of an optimizer. The program multiplies its loss by KVStore::loss_scale()
/// before each push, so that small gradients do not vanish in 16 bits, and the update divides by
/// it. A push whose summed gradients are not finite updates nothing, on all ranks alike: no weight,
/// state or update count, and no schedule moves.
///
/// A dynamic scale is multiplied by backoff_factor after such a push, and by growth_factor after
/// growth_interval pushes in a row without one. A scale is a normal number of float32, and stays
/// one. Source  Micikevicius et al., ICLR 2018; names and defaults as in torch.amp.GradScaler.
struct LossScale {
  double init_scale = 65536;             ///< a normal number of float32, above 0
  bool is_dynamic = true;                ///< false: the scale is init_scale, whatever happens
  double growth_factor = 2;              ///< at least 1
  double backoff_factor = 0.5;           ///< above 0, at most 1
  std::uint64_t growth_interval = 2000;  ///< at least 1
};

/// The result of KVStore::gradient_scaling(), the same on all ranks after the same pushes.
struct GradientScaling {
  double loss_scale = 1;          ///< factor for the loss before the next push
  std::uint64_t good_pushes = 0;  ///< finite pushes in a row since a dynamic scale changed last
  std::uint64_t skipped = 0;      ///< pushes whose gradients were not finite
  double norm = 0;                ///< norm of the last push, as clip_global_norm compares it
  bool was_skipped = false;       ///< true if the last push updated nothing
};

}  // namespace tutti
