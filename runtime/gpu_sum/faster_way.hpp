// SPDX-License-Identifier: Apache-2.0
// The faster of two ways to sum over several nodes, measured when a group first sums on GPUs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// The time that NCCL has to connect all nodes, and that a sum which is tried has to end, where
/// another way is there: it may be that nobody has set NCCL up for this network.
[[nodiscard]] Patience patience_of_trial(Group& group);

struct FasterWay {
  bool is_nccl = false;
  std::string text;  ///< the times, or the error of NCCL
};

/// Sums about so many bytes a few times each way, beside no other work, and compares the slowest
/// rank's best times. All ranks find the same. A failure of `nccl` is no error, and aborts it.
/// Collective. Errors: those of `staged`; out_of_memory (recoverable).
FasterWay find_faster_way(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                          Reducer& staged, const std::shared_ptr<NodeCollectives>& nccl,
                          std::size_t bytes);

}  // namespace tutti::gpus
