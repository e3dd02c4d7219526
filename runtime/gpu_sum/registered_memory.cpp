// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_sum/registered_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/gpu_sum/allgather.hpp"

namespace tutti::gpus {

namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;  // CUDA maps no less

/// What grows does so by half, so that it is seldom registered anew.
std::size_t size_for(std::size_t bytes, std::size_t before) {
  return (std::max(bytes, before + before / 2) + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

/// A push that was refused leaves memory behind that is registered on no rank, and that not all
/// ranks have.
std::byte* RegisteredMemory::take(std::size_t bytes) {
  const bool fits = bytes <= current_.bytes;
  const std::size_t size = size_for(bytes, current_.bytes);
  if (next_.memory != nullptr && (fits || next_.bytes != size)) {
    node_->release(std::exchange(next_, {}).memory);
  }
  if (fits) return current_.memory;
  if (next_.memory == nullptr) next_ = {node_->allocate(size), size};
  return next_.memory;
}

void RegisteredMemory::use(const std::function<void()>& settle) {
  if (next_.memory == nullptr) return;
  const auto describe = [&] {
    return "registration of " + std::to_string(next_.bytes) + " bytes for sums of GPUs";
  };
  group_.engine().run({.kind = collectives::Kind::barrier,
                       .digest = Digest().add(std::uint64_t{next_.bytes}).value(),
                       .segments = {},
                       .describe = describe,
                       .verb = collectives::Verb::sum_of_gpus});
  if (is_in_use()) {
    settle();
    node_->release(current_.memory);
  }
  current_ = std::exchange(next_, {});
  require_one_answer(node_->register_memory(current_.memory, current_.bytes));
}

/// Ranks whose memory is registered and ranks whose memory is not would sum in different ways.
void RegisteredMemory::require_one_answer(bool is_registered) {
  const std::uint8_t own = is_registered ? 1 : 0;
  const auto all = allgather(group_, own, "exchange of what NCCL has registered");
  const auto& topology = group_.topology();
  const auto yes = std::ranges::find(all, 1);
  const auto no = std::ranges::find(all, 0);
  if (yes != all.end() && no != all.end()) {
    throw Error(ErrorCode::communication,
                "NCCL has registered memory for sums on " +
                    name_of(topology, static_cast<int>(yes - all.begin())) + " and none on " +
                    name_of(topology, static_cast<int>(no - all.begin())) +
                    "; give all ranks the same NCCL_* variables, or take TUTTI_NCCL_WINDOWS=0");
  }
  if (is_registered || topology.rank != 0) return;
  group_.log().warn(
      "NCCL registers no memory here, and sums as it does with TUTTI_NCCL_WINDOWS=0: "
      "the GPUs do not reach each other's memory, or NCCL's variables forbid it");
}

}  // namespace tutti::gpus
