// SPDX-License-Identifier: Apache-2.0
// Where the sums of large keys are made that an optimizer reads: a window of the bucket, in rounds.
//
//   round 0   small keys | key 2 | key 5 |      sum over ranks, then update
//   round 1              | key 6     |          the same, behind it in the stream
//
// So the sums of large keys take no more memory than the window, or than the largest of them.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"

namespace tutti {

/// Gives large keys their places, in order.
class SumWindow {
 public:
  static constexpr std::size_t kBytes = std::size_t{32} << 20;

  struct Place {
    std::size_t round;
    std::size_t begin;  ///< in the window
  };

  /// Returns equal places on all ranks, whose rounds are collective.
  Place add(std::size_t bytes) {
    if (end_ > 0 && end_ + bytes > kBytes) {
      ++round_;
      end_ = 0;
    }
    const Place place{round_, end_};
    end_ += bytes;
    bytes_ = std::max(bytes_, end_);
    return place;
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t round_ = 0;
  std::size_t end_ = 0;
  std::size_t bytes_ = 0;
};

/// The parts and rows of a push in rounds. Empty: one round is all.
class UpdateRounds {
 public:
  /// Anew: key i, whose row of updates is i, is in round of_key[i]. `num_small` parts come first; a
  /// key that is_large has a part of its own, in order.
  void cut(gpus::Kernels& kernels, std::size_t num_small, std::span<const std::size_t> of_key,
           const std::vector<bool>& is_large) {
    rounds_.clear();
    const std::size_t last = of_key.empty() ? 0 : *std::ranges::max_element(of_key);
    if (last == 0) return;
    rounds_.resize(last + 1);
    rounds_[0].num_parts = num_small;
    for (std::size_t key = 0; key < of_key.size(); ++key) {
      Round& round = rounds_[of_key[key]];
      round.keys.push_back(key);
      if (is_large[key]) ++round.num_parts;
    }
    while (tables_.size() < rounds_.size()) tables_.push_back(kernels.make_table());
  }

  [[nodiscard]] bool empty() const { return rounds_.empty(); }
  [[nodiscard]] std::span<const gpus::Part> first(std::span<const gpus::Part> parts) const {
    return empty() ? parts : parts.first(rounds_[0].num_parts);
  }

  void prepare(gpus::Kernels& kernels, gpus::Stream stream,
               std::span<const gpus::TensorRow> updates, const Optimizer& optimizer) {
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
      Round& round = rounds_[i];
      round.updates.clear();
      for (const std::size_t key : round.keys) round.updates.push_back(updates[key]);
      kernels.prepare(stream, *tables_[i], round.updates, &optimizer);
    }
  }

  /// Calls sum(parts of a round), but for the first, which has been summed, and update(table, rows,
  /// steps) after each.
  template <class Sum, class Update>
  void run(std::span<const gpus::Part> parts, std::span<const UpdateStep> steps, Sum sum,
           Update update) {
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
      Round& round = rounds_[i];
      if (i > 0) sum(parts.first(round.num_parts));
      parts = parts.subspan(round.num_parts);
      round.steps.clear();
      for (const std::size_t key : round.keys) round.steps.push_back(steps[key]);
      update(*tables_[i], round.updates, round.steps);
    }
  }

 private:
  struct Round {
    std::size_t num_parts = 0;  ///< behind those of the rounds before
    std::vector<std::size_t> keys;
    std::vector<gpus::TensorRow> updates;
    std::vector<UpdateStep> steps;
  };
  std::vector<Round> rounds_;
  /// One for each round, and more where a push had more: to free their memory waits for the GPU.
  std::vector<std::unique_ptr<gpus::LaunchTable>> tables_;
};

}  // namespace tutti
