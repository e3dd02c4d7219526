// SPDX-License-Identifier: Apache-2.0
// The comparison of whole replicas between ranks, which heals those that differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/kvstore.hpp"

#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// Compares the ranks' replicas and optimizer states, chunk by chunk.
///
///   1  every rank digests its chunks; an allreduce gives all ranks the least and the greatest
///      digest of each chunk, and an allgather all digests of the chunks where these differ
///   2  a chunk whose digests differ has a majority if more than half of the ranks agree
///   3  a rank of the majority broadcasts the chunk; the ranks of the minority take it over
///
/// All ranks come to the same conclusions, because they have the same digests.
class Comparison {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 10;

  explicit Comparison(Group& group) : group_(group) {}

  /// Compares all bytes of the entries; `optimizer` is for messages, null without one. Collective.
  /// Rank 0 warns of chunks that were healed. Errors: divergence (agreed) if a chunk has no
  /// majority; nothing is changed then. Keys on GPUs are compared, and healed, as copies in the
  /// host's memory.
  VerifyResult run(std::span<Entry* const> entries, const Optimizer* optimizer);

 private:
  VerifyResult run_on_host(std::span<Entry* const> entries);
  struct Chunk {
    Entry* entry;
    std::size_t tensor;
    std::size_t first;
    std::size_t bytes;
  };
  struct Finding {
    Chunk chunk;
    std::vector<std::uint64_t> digests;  ///< each rank's digest of the chunk
    int source;                          ///< lowest rank of the majority; -1 without one
  };

  void compare(std::span<const Chunk> chunks, std::vector<Finding>& findings);
  void gather(std::span<const Chunk> chunks, std::span<const std::int64_t> own,
              std::vector<std::size_t>& different, std::vector<Finding>& findings);
  void heal(const Finding& finding);
  [[nodiscard]] std::string describe(const Chunk& chunk) const;
  [[nodiscard]] std::string describe_healed(const Finding& finding) const;
  [[noreturn]] void throw_divergence(const std::vector<Finding>& findings) const;

  Group& group_;
  const Optimizer* optimizer_ = nullptr;
};

}  // namespace tutti
