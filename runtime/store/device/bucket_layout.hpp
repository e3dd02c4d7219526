// SPDX-License-Identifier: Apache-2.0
// The layout of a push on a GPU: which launches, sums over the ranks and rounds it has, and where
// each key is summed. It is computed from the sizes and types of the keys and the number of values
// of each, and touches no memory: its results are offsets.
//
//   bucket    | small keys of float16 | of float32 | ... | sums of large keys |
//               one sum over the ranks for each type       one for each key
//
// A launch sums the values of this rank's small keys into their places, which are then summed over
// the ranks. If the sums of all keys fit into memory that the kernels of all ranks read (see
// gpus::Reducer), they are made there, and the launch of updates sums over the ranks.
//
// A large key (1 MiB and more) is summed from where its value is, if the reducer takes inputs, so
// that its place has the sum alone. A key that is assigned is summed into its replica. The sums of
// large keys that an optimizer takes one by one share a window of the bucket, in rounds:
//
//   round 0   small keys | key 2 | key 5 |      sum over ranks, then update
//   round 1              | key 6     |          the same, behind it in the stream
//
// So the sums of large keys take no more memory than the window, or than the largest of them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tutti/dtype.hpp"

#include "runtime/gpu/kernels.hpp"

namespace tutti {

/// The use of the sums of a push's keys.
enum class SumUse {
  assign,           ///< a sum is the new value of its replica
  update,           ///< an optimizer takes it, for each key by itself
  update_together,  ///< an optimizer needs all sums at once: a norm of all gradients
  call_updater      ///< the program's updater is given sums that have been made
};

/// The inputs of a layout besides the keys. Equal on all ranks.
struct LayoutTraits {
  bool takes_inputs = false;          ///< the reducer sums a value from where it is
  std::size_t peer_window_bytes = 0;  ///< memory that the kernels of all ranks read; 0: none
  std::size_t unit = 256;  ///< bytes that a sum over the ranks of small keys is a multiple of
  SumUse use = SumUse::assign;
};

class BucketLayout {
 public:
  static constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
  static constexpr std::size_t kRoundBytes = std::size_t{32} << 20;

  enum class Memory { bucket, peer_window, replica };

  /// The place where the sum of a key is made.
  struct KeySum {
    Memory memory = Memory::bucket;
    std::size_t offset = 0;   ///< from the memory's begin; 0 of a replica
    bool is_large = false;    ///< it is a sum over the ranks by itself
    bool is_launched = true;  ///< a launch puts the sum of this rank's values there first
    std::size_t index = 0;    ///< its index in launched(), or else in rank_sums()
    std::size_t round = 0;
  };

  /// Elements of one type, side by side, that are summed over the ranks: small keys, or a large
  /// one.
  struct RankSum {
    Memory memory = Memory::bucket;
    std::size_t offset = 0;
    std::size_t count = 0;
    DType dtype = DType::float32;
    std::size_t large_key = 0;
    bool is_large = false;
  };

  /// The next sums over the ranks, which are one call, and the keys that the launch of updates
  /// behind it takes.
  struct Round {
    std::size_t num_rank_sums = 0;
    std::vector<std::size_t> keys;  ///< without keys that are assigned where their sums are made
  };

  BucketLayout() = default;
  /// A layout without sums over ranks: one round, whose launch takes the values of all keys.
  explicit BucketLayout(std::size_t num_keys);
  BucketLayout(std::span<const gpus::TensorRow> keys, const LayoutTraits& traits);

  [[nodiscard]] bool has_sums() const { return !sums_.empty(); }
  /// True if the launch of updates sums over the ranks itself, from the windows of all of them.
  [[nodiscard]] bool reads_peer_windows() const { return reads_peer_windows_; }
  /// The place of each key's sum; empty without sums.
  [[nodiscard]] std::span<const KeySum> sums() const { return sums_; }
  /// Keys whose values are summed by a launch, in the order of its rows.
  [[nodiscard]] std::span<const std::size_t> launched() const { return launched_; }
  [[nodiscard]] std::span<const RankSum> rank_sums() const { return rank_sums_; }
  /// The rounds of the push: at least one, if there are keys.
  [[nodiscard]] std::span<const Round> rounds() const { return rounds_; }
  [[nodiscard]] std::size_t bucket_bytes() const { return bucket_bytes_; }

 private:
  std::size_t lay_out_small(std::span<const gpus::TensorRow> keys, const LayoutTraits& traits);
  void place_large(std::span<const gpus::TensorRow> keys, const LayoutTraits& traits);
  void add_large_sums(std::span<const gpus::TensorRow> keys);
  void launch(std::size_t key);
  void cut_rounds(std::size_t num_small_sums);

  std::vector<KeySum> sums_;
  std::vector<std::size_t> launched_;
  std::vector<RankSum> rank_sums_;
  std::vector<Round> rounds_;
  std::size_t bucket_bytes_ = 0;
  bool reads_peer_windows_ = false;
};

}  // namespace tutti
