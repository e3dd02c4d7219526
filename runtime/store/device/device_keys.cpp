// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/device_keys.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

void DeviceKeys::clear() {
  entries_.clear();
  rows_.clear();
  moved_.clear();
  num_partial_ = 0;
  stepped_.reset();
}

void DeviceKeys::add(Entry& entry) {
  entries_.push_back(&entry);
  rows_.push_back({.num_inputs = 0,
                   .output = entry.replica.bytes(),
                   .count = entry.shape().count(),
                   .dtype = entry.dtype()});
}

/// Adds a value to the last row. The inputs of a full row are summed into memory of their own,
/// which becomes its first input.
void DeviceKeys::add_value(const std::byte* value) {
  gpus::TensorRow& row = rows_.back();
  if (row.num_inputs == gpus::TensorRow::kMostInputs) {
    Entry& entry = *entries_.back();
    moved_.push_back(gpus_->allocate(entry.shape(), entry.dtype(), gpu(device_)));
    row.output = moved_.back().bytes();
    if (num_partial_ == partial_.size()) partial_.push_back(kernels().make_table());
    kernels().sum(stream(), *partial_[num_partial_++], {&row, 1});
    row.inputs[0] = row.output;
    row.num_inputs = 1;
    row.output = entry.replica.bytes();
  }
  row.inputs[static_cast<std::size_t>(row.num_inputs++)] = value;
}

const std::byte* DeviceKeys::keep(Tensor moved) {
  moved_.push_back(std::move(moved));
  return moved_.back().bytes();
}

void DeviceKeys::start_states(Group& group, const Optimizer& optimizer) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = *entries_[i];
    if (entry.updates == 0) tutti::start_states(group, optimizer, entry);
    for (std::size_t s = 0; s < entry.states.size(); ++s) {
      rows_[i].states[s] = entry.states[s].bytes();
    }
  }
}

void DeviceKeys::lay_out_without_sums() {
  layout_ = BucketLayout(rows_.size());
  value_rows_.clear();
  sums_.clear();
  cut_rounds();
}

void DeviceKeys::lay_out(const LayoutTraits& traits, bool may_shrink) {
  layout_ = BucketLayout(rows_, traits);
  make_bucket(may_shrink);
  add_sums();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    rows_[i].inputs = {sum_of(i)};
    rows_[i].num_inputs = 1;
  }
  if (layout_.reads_peer_windows()) read_peer_windows();
  cut_rounds();
}

void DeviceKeys::make_bucket(bool may_shrink) {
  if (layout_.reads_peer_windows()) return;
  // At least one grain, for keys without elements.
  const std::size_t bytes = std::max(layout_.bucket_bytes(), gpus::kGrain);
  const std::size_t there = bucket_ ? bucket_->size_bytes() : 0;
  const bool is_much_larger = may_shrink && there > 2 * bytes;
  if (there >= bytes && !is_much_larger) return;
  bucket_.reset();
  bucket_ = Tensor::zeros({static_cast<std::int64_t>(bytes)}, DType::uint8, gpu(device_));
}

/// Makes the launch of values, and the sums over the ranks, which read a large key where its value
/// is.
void DeviceKeys::add_sums() {
  value_rows_.clear();
  sums_.clear();
  for (const std::size_t key : layout_.launched()) {
    value_rows_.push_back(rows_[key]);
    value_rows_.back().output = sum_of(key);
  }
  for (const BucketLayout::RankSum& sum : layout_.rank_sums()) {
    std::byte* const to = place(sum.memory, sum.offset, sum.large_key);
    const bool reads_value = sum.is_large && !layout_.sums()[sum.large_key].is_launched;
    sums_.push_back({reads_value ? rows_[sum.large_key].inputs[0] : to, to, sum.count, sum.dtype});
  }
}

/// Makes the rows of updates read the windows of all ranks, where they would read this rank's, so
/// that they sum over the ranks.
void DeviceKeys::read_peer_windows() {
  const std::span<std::byte* const> windows = sum_over_ranks_.windows(device_);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (std::size_t rank = 0; rank < windows.size(); ++rank) {
      rows_[i].inputs[rank] = windows[rank] + layout_.sums()[i].offset;
    }
    rows_[i].num_inputs = static_cast<int>(windows.size());
    rows_[i].in_tree = true;
  }
}

void DeviceKeys::cut_rounds() {
  const auto rounds = layout_.rounds();
  if (rounds_.size() < rounds.size()) rounds_.resize(rounds.size());
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    UpdateLaunch& launch = rounds_[i];
    if (launch.table == nullptr) launch.table = kernels().make_table();
    launch.rows.clear();
    for (const std::size_t key : rounds[i].keys) launch.rows.push_back(rows_[key]);
  }
}

void DeviceKeys::prepare(const UpdateRule& rule, bool sums_values) {
  if (value_table_ == nullptr) value_table_ = kernels().make_table();
  if (sums_values) kernels().prepare(stream(), *value_table_, value_rows_, nullptr);
  if (rule.updater() != nullptr) return;
  for (std::size_t i = 0; i < layout_.rounds().size(); ++i) {
    kernels().prepare(stream(), *rounds_[i].table, rounds_[i].rows, rule.optimizer());
  }
  if (rule.scaler == nullptr) return;
  if (squares_ == nullptr) squares_ = std::make_unique<DeviceSquares>(gpus_, device_);
  squares_->prepare(rounds_[0].rows);
}

void DeviceKeys::replace_value(std::size_t key, const std::byte* value) {
  if (!layout_.has_sums()) {
    rounds_[0].rows[key].inputs[0] = value;
  } else if (const BucketLayout::KeySum& sum = layout_.sums()[key]; sum.is_launched) {
    value_rows_[sum.index].inputs[0] = value;
  } else {
    sums_[sum.index].from = value;
  }
}

void DeviceKeys::sum_values() {
  const gpus::NamedRange range(gpus_->accelerator(), "sum of values");
  kernels().sum(stream(), *value_table_, value_rows_);
}

void DeviceKeys::sum_over_ranks() {
  const gpus::NamedRange range(gpus_->accelerator(), "sum over ranks");
  if (layout_.reads_peer_windows()) return sum_over_ranks_.begin_reading(device_);
  sum_over_ranks_.allreduce(gpus_, device_, first_sums());
}

/// Sets the steps. Without a schedule only the counts change from push to push, unless the program
/// changes the optimizer.
void DeviceKeys::set_steps(const Optimizer& optimizer, std::uint64_t most_updates, double factor) {
  const bool has_schedule = optimizer.options().schedule.has_value();
  const std::uint64_t fingerprint = optimizer.fingerprint();
  const bool stand = std::exchange(stepped_, fingerprint) == fingerprint && !has_schedule;
  for (std::size_t i = 0; i < layout_.rounds().size(); ++i) {
    std::vector<UpdateStep>& steps = rounds_[i].steps;
    if (!stand) steps.clear();
    const std::vector<std::size_t>& keys = layout_.rounds()[i].keys;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const Entry& entry = *entries_[keys[k]];
      if (stand) {
        steps[k].count = entry.updates + 1;
      } else {
        steps.push_back(optimizer.step(entry.key, entry.updates + 1, most_updates));
      }
      steps[k].gradient_factor = factor;
    }
  }
}

void DeviceKeys::update(const Optimizer& optimizer) {
  std::span<const gpus::Sum> sums = sums_;
  for (std::size_t i = 0; i < layout_.rounds().size(); ++i) {
    const std::size_t num_sums = layout_.rounds()[i].num_rank_sums;
    if (i > 0) sum_over_ranks_.allreduce(gpus_, device_, sums.first(num_sums));
    sums = sums.subspan(num_sums);
    const UpdateLaunch& launch = rounds_[i];
    kernels().update(stream(), *launch.table, launch.rows, optimizer, launch.steps);
  }
}

void DeviceKeys::assign() { kernels().sum(stream(), *rounds_[0].table, rounds_[0].rows); }

std::byte* DeviceKeys::place(BucketLayout::Memory memory, std::size_t offset, std::size_t key) {
  switch (memory) {
    case BucketLayout::Memory::bucket:
      return bucket_->bytes() + offset;
    case BucketLayout::Memory::peer_window:
      return sum_over_ranks_.own_window(device_) + offset;
    case BucketLayout::Memory::replica:
      break;
  }
  return entries_[key]->replica.bytes();
}

std::byte* DeviceKeys::sum_of(std::size_t key) {
  const BucketLayout::KeySum& sum = layout_.sums()[key];
  return place(sum.memory, sum.offset, key);
}

std::span<const gpus::Sum> DeviceKeys::first_sums() const {
  return std::span(sums_).first(layout_.rounds()[0].num_rank_sums);
}

}  // namespace tutti
