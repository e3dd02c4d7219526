// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// Sums by staging chunks through the hosts; staged_reducer.cpp has the picture.
class StagedReducer final : public Reducer {
 public:
  /// `node` joins this rank's node, where there are several; null sums by way of the host. Errors:
  /// out_of_memory.
  StagedReducer(Group& group, std::shared_ptr<Gpus> gpus, int device,
                std::shared_ptr<NodeCollectives> node);
  ~StagedReducer() override;

  [[nodiscard]] bool takes_turns() const override { return node_ != nullptr; }
  void allreduce(std::span<const Sum> sums) override;
  void finish() override;
  void await() override;
  void check() override;
  [[nodiscard]] std::string describe() const override;

 private:
  static constexpr std::size_t kBuffers = 4;
  static constexpr std::size_t kLag = 2;  ///< chunks whose copy from the device is under way
  static constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

  /// Pinned memory between the device and the network, for this rank's share of a chunk.
  struct StagingBuffer {
    std::byte* host = nullptr;
    Event reduced = nullptr;   ///< the node's sum is in the device's memory
    Event arrived = nullptr;   ///< the sum is on the host
    Event returned = nullptr;  ///< it is in the device's memory again
  };
  struct Chunk {
    std::byte* data;    ///< in the device's memory
    std::byte* share;   ///< this rank's part of it
    std::size_t count;  ///< elements of the share
    DType dtype;
  };

  template <class Body>
  void carry_out(Body body) {
    gpus::carry_out(group_, body, [&] { abort_beside(node_); });
  }
  void pipeline(std::span<const Sum> sums);
  [[nodiscard]] std::vector<Chunk> cut(std::span<const Sum> sums) const;
  void send_off(const Chunk& chunk, StagingBuffer& buffer);
  void exchange(const Chunk& chunk, StagingBuffer& buffer);
  void bring_back(const Chunk& chunk, StagingBuffer& buffer);
  void await(Event event);
  [[nodiscard]] std::string wait_between() const;
  [[nodiscard]] std::byte* allocate_apart();
  [[nodiscard]] bool has_ended() noexcept;

  Group& group_;
  std::shared_ptr<Gpus> gpus_;
  Accelerator& accelerator_;
  int device_;
  std::shared_ptr<NodeCollectives> node_;
  Patience patience_;
  Tensor memory_;  ///< memory of the buffers, in the arena
  bool is_pinned_ = false;
  std::byte* apart_ = nullptr;  ///< pinned, in place of memory_
  Stream down_ = nullptr;       ///< copies to the host
  Stream up_ = nullptr;         ///< copies back to the device
  Event begun_ = nullptr;
  Event ended_ = nullptr;
  std::array<StagingBuffer, kBuffers> buffers_{};
};

}  // namespace tutti::gpus
