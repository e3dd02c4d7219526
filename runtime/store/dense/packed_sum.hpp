// SPDX-License-Identifier: Apache-2.0
// A sum of compressed gradients: every rank's packed gradient comes to every rank.
//
//   rank 0: g + residual -> packed |p0|p1|p2|      the keys' packed elements end to end, in packets
//   rank 1: g + residual -> packed |p0|p1|p2|
//
//   one allgather, packet by packet:  p0 of rank 0, p0 of rank 1, p1 of rank 0, p1 of rank 1, ...
//
// When the last rank's part of a packet has arrived, it is unpacked and summed in the canonical
// order, tile by tile, and handed on while it is in the cache, while the next packets travel. Only
// then are the values that were sent taken from the residual: a call that the ranks do not agree on
// changes nothing.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/compression/codec.hpp"
#include "collectives/node/call.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

class PackedSum final : public collectives::Consumer {
 public:
  explicit PackedSum(Group& group) : group_(group) {}

  /// The gradients to sum. Segment i is entries[i]: its input is this rank's gradient, its outputs
  /// get the sum, unless `consumer` takes it. All must outlive the allgather. If the gradients are
  /// packed elsewhere, neither inputs nor residuals are used.
  struct Job {
    const collectives::Codec& codec;
    std::span<Entry* const> entries;
    std::span<const collectives::Segment> sums;
    collectives::Consumer* consumer;
    bool is_packed_elsewhere = false;
  };
  /// Packs this rank's gradients. Errors: out_of_memory.
  void stage(const Job& job);
  /// This rank's packed gradients, key after key without gaps if their codec can cut.
  [[nodiscard]] std::byte* packed() { return packed_->bytes(); }
  /// The segments of the allgather, whose consumer this is.
  [[nodiscard]] std::span<const collectives::Segment> segments() const { return segments_; }

  /// Receives bytes of a packet of one rank.
  void consume(std::size_t segment, std::size_t first, std::size_t count,
               const std::byte* packed) override;

 private:
  /// Elements of one key, packed at `offset` in a packet.
  struct Part {
    std::size_t key;
    std::size_t first;
    std::size_t count;
    std::size_t offset;
  };
  struct Packet {
    std::size_t first_part;
    std::size_t begin;  ///< offset in packed_
    std::size_t bytes = 0;
  };

  void cut();
  void cut_key(std::size_t key, std::size_t packet_bytes);
  void make_room();
  void pack();
  void lay_out();
  [[nodiscard]] std::span<const Part> parts_of(std::size_t packet) const;
  [[nodiscard]] bool packs(const Part& part) const;
  [[nodiscard]] bool sums_up(const Part& part) const;
  [[nodiscard]] bool has_residuals() const;
  void finish(std::size_t packet);
  void hand_on(const Part& part);
  [[nodiscard]] const float* gradient_of(const Part& part) const;
  [[nodiscard]] float* residual_of(const Part& part) const;

  Group& group_;
  std::optional<Job> job_;
  std::vector<Part> parts_;
  std::vector<Packet> packets_;
  std::optional<Tensor> packed_;  ///< in the arena; keeps its size from push to push
  std::vector<collectives::Segment> segments_;
  std::vector<std::vector<std::byte>> arrived_;  ///< each rank's current packet
  std::vector<const std::byte*> sources_;        ///< each rank's packed elements of a part
  collectives::Codec::Workspace workspace_;
  std::vector<float> tile_;
};

}  // namespace tutti
