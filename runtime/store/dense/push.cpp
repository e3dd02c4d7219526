// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/dense/push.hpp"

#include <algorithm>
#include <unordered_map>

#include "tutti/error.hpp"

#include "collectives/kernels/reduce.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/store/core/user_updater.hpp"
#include "runtime/store/device/on_host.hpp"
#include "runtime/store/verify/comparison.hpp"

namespace tutti {

namespace {

constexpr std::size_t kCopiedBytes = std::size_t{256} << 10;

}  // namespace

/// Values that are on GPUs come to the host first.
void Push::bring_values(PushItem& item) {
  for (std::size_t i = 0; i < item.values.size(); ++i) {
    const ConstTensorView& value = item.values[i];
    if (value.device().kind == DeviceKind::cpu) continue;
    brought_.push_back(group_.allocate(value.shape(), value.dtype()));
    group_.copy(brought_.back(), value);
    std::vector<ConstTensorView> values;
    for (std::size_t j = 0; j < item.values.size(); ++j) {
      values.push_back(j == i ? brought_.back().view() : item.values[j]);
    }
    item.values = std::move(values);
  }
}

/// The single value, or the sum of several in the arena. A value that lies in another key's replica
/// is copied, too: peers read it while they write that replica.
const std::byte* Push::input_of(PushItem& item) {
  Entry& entry = *item.entry;
  bring_values(item);
  const std::byte* value = item.values.front().bytes();
  if (item.values.size() == 1) {
    if (value == item.known_apart || value == entry.replica.bytes()) return value;
    if (!table_.holds(value)) return item.known_apart = value;
  }
  if (!entry.sum) entry.sum = group_.allocate(entry.shape(), entry.dtype());
  std::vector<const std::byte*> sources;
  for (const ConstTensorView& one : item.values) sources.push_back(one.bytes());
  std::byte* sum = entry.sum->bytes();
  collectives::reduce({ReduceOp::sum, entry.dtype(), entry.dtype()}, sources, std::span(&sum, 1),
                      entry.shape().count(), collectives::Stores::cached);
  return sum;
}

std::byte* Push::scratch(std::size_t bytes) {
  if (!merged_ || merged_->size_bytes() < bytes) {
    merged_.reset();
    merged_ = group_.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8);
  }
  return merged_->bytes();
}

/// A large result that the updater does not change is written into its output at once, which
/// saves reading it again. Below kCopiedBytes it comes from the cache.
void Push::take_outputs(std::span<const KeyGroup<TensorView>> outputs) {
  writes_outputs_ = false;
  std::size_t bytes = 0;
  for (const Entry* entry : list_.entries()) bytes += entry->replica.size_bytes();
  const bool is_assign = rule_.optimizer() == nullptr && rule_.updater() == nullptr;
  if (outputs.empty() || bytes < kCopiedBytes || !is_assign) return;
  std::unordered_map<Key, std::size_t> index;
  for (std::size_t i = 0; i < list_.entries().size(); ++i) index[list_.entries()[i]->key] = i;
  for (const auto& [key, tensors] : outputs) {
    if (tensors.front().device().kind == DeviceKind::gpu) return;
  }
  for (const auto& [key, tensors] : outputs) {
    segments_[index.at(key)].second_output = tensors.front().bytes();
  }
  writes_outputs_ = outputs_are_apart();
  if (writes_outputs_) return;
  for (collectives::Segment& segment : segments_) segment.second_output = nullptr;
}

/// True if no output meets another one, a replica, or another key's input.
bool Push::outputs_are_apart() const {
  struct Extent {
    const std::byte* begin;
    const std::byte* end;
  };
  std::vector<Extent> extents;
  for (const collectives::Segment& segment : segments_) {
    const std::size_t bytes = segment.count * size_of(segment.dtype);
    if (bytes == 0) continue;
    if (segment.second_output != nullptr && table_.holds(segment.second_output)) return false;
    if (segment.second_output != nullptr)
      extents.push_back({segment.second_output, segment.second_output + bytes});
    if (segment.second_output != segment.input)
      extents.push_back({segment.input, segment.input + bytes});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& left, const Extent& right) { return left.begin < right.begin; });
  const auto meet = [](const Extent& left, const Extent& right) { return left.end > right.begin; };
  return std::adjacent_find(extents.begin(), extents.end(), meet) == extents.end();
}

bool Push::needs_whole_sums() const {
  const Optimizer* optimizer = rule_.optimizer();
  return rule_.updater() != nullptr || (optimizer != nullptr && !optimizer->elementwise());
}

/// Only a schedule asks for it.
std::uint64_t Push::most_updates(const Optimizer& optimizer) const {
  return optimizer.options().schedule ? table_.most_updates() : 0;
}

void Push::stage(std::span<const KeyGroup<TensorView>> outputs) {
  segments_.clear();
  brought_.clear();
  std::size_t bytes = 0;
  const auto rounded = [](std::size_t size) {
    return (size + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  };
  for (PushItem& item : list_.items()) {
    Entry& entry = *item.entry;
    compression_.require_packable(entry);
    segments_.push_back(
        {input_of(item), entry.replica.bytes(), entry.shape().count(), entry.dtype()});
    bytes += rounded(entry.replica.size_bytes());
  }
  take_outputs(outputs);
  consumer_.reset();
  const Optimizer* optimizer = rule_.optimizer();
  if (optimizer != nullptr)
    consumer_.emplace(*optimizer, list_.entries(), most_updates(*optimizer));
  if (needs_whole_sums()) {
    std::byte* merged = scratch(bytes);
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      segments_[i].output = merged;
      merged += rounded(list_.entries()[i]->replica.size_bytes());
    }
  }
  stage_compression();
}

std::string Push::describe() const {
  return call_to_string("push", list_.entries()) + rule_.describe() + compression_.describe();
}

collectives::Operation Push::operation(collectives::FunctionRef<std::string()> describe) {
  const std::uint64_t fingerprint = rule_.fingerprint() ^ compression_.fingerprint();
  return {.kind = collectives::Kind::allreduce,
          .digest = Digest().add(fingerprint).add(list_.digest()).value(),
          .segments = {},
          .describe = describe,
          .first_key = list_.entries().empty() ? nullptr : &list_.entries()[0]->key,
          .keys = list_.entries().size(),
          .verb = collectives::Verb::push};
}

void Push::announce() {
  const auto text = [&] { return describe(); };
  group_.engine().meter().count_as(list_.tally(), list_.bytes());
  group_.engine().run(operation(text));
}

void Push::run() {
  const auto text = [&] { return describe(); };
  collectives::Operation operation = this->operation(text);
  operation.segments = segments_;
  operation.consumer = piecewise_consumer();
  compress(operation);
  group_.engine().meter().count_as(list_.tally(), list_.bytes());
  reduce(operation);
  sample_.commit();
  if (consumer_ && needs_whole_sums()) {
    group_.engine().begin_update();
    consumer_->update_whole(segments_);
    group_.engine().end_update();
  } else if (consumer_) {
    consumer_->commit();
  }
  if (const Updater* updater = rule_.updater()) call_updater(*updater);
}

/// With the comparison of what is about to change. Two replicas that still differ after they were
/// made equal have more wrong with them than a flipped bit.
void Push::reduce(collectives::Operation& operation) {
  operation.check = sample_.digest(list_.entries());
  for (int attempt = 0; !group_.engine().run(operation); ++attempt) {
    if (attempt == 2) {
      throw Error(ErrorCode::divergence,
                  operation.describe() +
                      ": replicas differ again and again, although all their "
                      "digests are equal when compared whole; nothing was changed",
                  ErrorScope::agreed, /*reporter=*/group_.topology().rank == 0);
    }
    healed_ += Comparison(group_).run(list_.entries(), rule_.optimizer()).healed;
    operation.check = sample_.digest(list_.entries());
  }
}

void Push::call_updater(const Updater& updater) {
  for (std::size_t i = 0; i < list_.entries().size(); ++i) {
    Entry& entry = *list_.entries()[i];
    run_updater(group_, entry.key, [&] {
      updater(entry.key, {segments_[i].output, entry.shape(), entry.dtype()}, entry.replica);
    });
  }
}

void Push::broadcast_new(std::span<Entry> entries,
                         std::span<const KeyGroup<ConstTensorView>> values) {
  segments_.clear();
  std::vector<Entry*> fresh;
  const bool is_root = group_.topology().rank == 0;
  for (Entry& entry : entries) fresh.push_back(&entry);
  const bool is_sparse = !entries.empty() && entries.front().is_row_sparse();
  const std::string call = call_to_string(is_sparse ? "init_row_sparse" : "init", fresh);
  const std::uint64_t digest = digest_of(fresh);
  OnHost on_host(group_, fresh);
  std::vector<Tensor> brought;  // of values on GPUs
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    const ConstTensorView& value = values[i].tensors.front();
    const std::byte* input = is_root ? value.bytes() : entry.replica.bytes();
    if (is_root && value.device().kind == DeviceKind::gpu) {
      brought.push_back(Tensor::empty(value.shape(), value.dtype()));
      group_.copy(brought.back(), value);
      input = brought.back().bytes();
    }
    segments_.push_back({input, entry.replica.bytes(), entry.shape().count(), entry.dtype(),
                         /*source=*/0});
  }
  const auto describe = [&] { return call; };
  group_.engine().run({.kind = collectives::Kind::broadcast,
                       .digest = digest,
                       .segments = segments_,
                       .describe = describe,
                       .first_key = fresh.empty() ? nullptr : &fresh[0]->key,
                       .keys = fresh.size(),
                       .verb = collectives::Verb::init});
  on_host.bring_back();
}

}  // namespace tutti
