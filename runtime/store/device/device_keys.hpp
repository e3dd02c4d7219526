// SPDX-License-Identifier: Apache-2.0
// The keys of a push that are on one GPU: their rows, the memory of their sums, and the launches.
// Key i is entries()[i].
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/sum_over_ranks.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/updates.hpp"
#include "runtime/store/device/bucket_layout.hpp"
#include "runtime/store/device/device_squares.hpp"

namespace tutti {

class DeviceKeys {
 public:
  DeviceKeys(std::shared_ptr<gpus::Gpus> gpus, int device, gpus::SumOverRanks& sum_over_ranks)
      : gpus_(std::move(gpus)), device_(device), sum_over_ranks_(sum_over_ranks) {}
  DeviceKeys(const DeviceKeys&) = delete;
  DeviceKeys& operator=(const DeviceKeys&) = delete;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::span<Entry* const> entries() const { return entries_; }

  // The calls below prepare a push, in this order. Local. Errors: out_of_memory.

  void clear();
  void add(Entry& entry);
  /// Gives the last key its next value: memory of this GPU that stays as it is until the push has
  /// run. Values beyond those that a launch takes are summed here.
  void add_value(const std::byte* value);
  /// Keeps the copy of a value from elsewhere until drop_moved().
  const std::byte* keep(Tensor moved);
  /// Gives the keys their states of the optimizer.
  void start_states(Group& group, const Optimizer& optimizer);
  /// Lays the keys out for a push that makes sums and gives them to updates. `may_shrink`: the
  /// bucket may be larger than it needs to be, because of keys of earlier pushes.
  void lay_out(const LayoutTraits& traits, bool may_shrink);
  void lay_out_without_sums();
  /// Makes the launches. `sums_values`: sum_values() will be called.
  void prepare(const UpdateRule& rule, bool sums_values);
  /// Replaces a key's only value, which is elsewhere than in the last push, whose keys and launches
  /// stay valid. prepare() follows.
  void replace_value(std::size_t key, const std::byte* value);

  // The calls that carry the push out, in the order of the device's stream:

  /// Sums this rank's values, in the places of the layout.
  void sum_values();
  /// Sums the keys of the first round over the ranks; or prepares the launch of updates to read the
  /// windows of all ranks. Collective. Errors: those of gpus::Reducer.
  void sum_over_ranks();
  /// Sets the steps of the next update() by an optimizer, whose gradients are multiplied by
  /// `factor`.
  void set_steps(const Optimizer& optimizer, std::uint64_t most_updates, double factor);
  /// Updates the replicas by the optimizer: the first round's, then each further round's behind its
  /// sum over the ranks. Collective where there are several rounds. Errors: those of gpus::Reducer.
  void update(const Optimizer& optimizer);
  /// Assigns the sums that are not made in replicas.
  void assign();
  void drop_moved() { moved_.clear(); }

  /// The memory of a key's sum, after lay_out().
  [[nodiscard]] std::byte* sum_of(std::size_t key);
  /// The row that sums the values of a small key.
  [[nodiscard]] const gpus::TensorRow& values_of(std::size_t key) const {
    return value_rows_[layout_.sums()[key].index];
  }
  [[nodiscard]] std::byte* bucket() { return bucket_->bytes(); }
  /// The sums over the ranks of the first round.
  [[nodiscard]] std::span<const gpus::Sum> first_sums() const;
  [[nodiscard]] bool has_moved() const { return !moved_.empty(); }

  /// Launches the squares of all sums, which then come to the host; with a GradientScaler.
  void launch_squares() { squares_->launch(rounds_[0].rows); }
  [[nodiscard]] const DeviceSquares& squares() const { return *squares_; }

 private:
  /// One launch of updates. Kept from push to push, since freeing its memory waits for the GPU.
  struct UpdateLaunch {
    std::vector<gpus::TensorRow> rows;
    std::vector<UpdateStep> steps;  ///< the step of each row, with an optimizer
    std::unique_ptr<gpus::LaunchTable> table;
  };

  [[nodiscard]] gpus::Kernels& kernels() const { return gpus_->kernels(device_); }
  [[nodiscard]] gpus::Stream stream() const { return gpus_->stream(device_); }
  [[nodiscard]] std::byte* place(BucketLayout::Memory memory, std::size_t offset, std::size_t key);
  void make_bucket(bool may_shrink);
  void add_sums();
  void read_peer_windows();
  void cut_rounds();

  std::shared_ptr<gpus::Gpus> gpus_;
  int device_;
  gpus::SumOverRanks& sum_over_ranks_;
  std::vector<Entry*> entries_;
  std::vector<gpus::TensorRow> rows_;  ///< the row of each key, until it is in a round
  std::vector<Tensor> moved_;          ///< copies of values from elsewhere
  std::vector<std::unique_ptr<gpus::LaunchTable>> partial_;  ///< sums of some of a key's values
  std::size_t num_partial_ = 0;                              ///< number of them that this push uses

  BucketLayout layout_;
  std::optional<Tensor> bucket_;
  std::vector<gpus::TensorRow> value_rows_;  ///< rows of layout_.launched()
  std::unique_ptr<gpus::LaunchTable> value_table_;
  std::vector<gpus::Sum> sums_;  ///< the sums of layout_.rank_sums()
  std::vector<UpdateLaunch> rounds_;
  std::optional<std::uint64_t> stepped_;  ///< fingerprint of the optimizer that made the steps
  std::unique_ptr<DeviceSquares> squares_;
};

}  // namespace tutti
