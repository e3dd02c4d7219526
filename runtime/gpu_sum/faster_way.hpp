// SPDX-License-Identifier: Apache-2.0
// Which of two ways sums faster over several nodes, measured when a group first sums on GPUs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// How long NCCL has to connect all nodes, and a sum that is tried has to end, where another way is
/// there: it may be that nobody has set NCCL up for this network.
[[nodiscard]] Patience patience_of_trial(Group& group);

struct FasterWay {
  bool is_nccl = false;
  std::string text;  ///< the times, or what has gone wrong with NCCL
};

/// Sums about so many bytes a few times by each of both, beside no other work, and compares the
/// slowest rank's best times. All ranks find the same. What goes wrong with `nccl` is no error, and
/// then it is aborted. Collective. Errors: those of `staged`; out_of_memory (recoverable).
FasterWay find_faster_way(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                          Reducer& staged, const std::shared_ptr<NodeCollectives>& nccl,
                          std::size_t bytes);

}  // namespace tutti::gpus
