// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/dense/dense_push.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/store/core/together.hpp"
#include "runtime/store/core/user_updater.hpp"
#include "runtime/store/verify/comparison.hpp"

namespace tutti {

namespace {

constexpr std::size_t aligned_bytes(std::size_t bytes) {
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

}  // namespace

/// Copies a value on a GPU to the host. The plan keeps the value itself, since it may be pushed
/// again.
const std::byte* DensePush::on_host(const ConstTensorView& value) {
  if (value.device().kind == DeviceKind::cpu) return value.bytes();
  host_values_.push_back(group_.allocate(value.shape(), value.dtype()));
  group_.copy(host_values_.back(), value);
  return host_values_.back().bytes();
}

/// The inputs of an item: its single value, or the sum of several in the arena. A value that lies
/// in another key's replica is copied, too: peers read it while they write that replica.
DensePush::Inputs DensePush::inputs_of(PushItem& item) {
  Entry& entry = *item.entry;
  const std::byte* value = on_host(item.values.front());
  if (item.values.size() == 1) {
    if (value == item.known_apart || value == entry.replica.bytes()) return {value};
    if (!store_.table.holds(value)) {
      plan_.note_apart(item, value);
      return {value};
    }
  }
  std::vector<const std::byte*>& sources = inputs_.emplace_back();
  sources.push_back(value);
  for (std::size_t i = 1; i < item.values.size(); ++i) sources.push_back(on_host(item.values[i]));
  if (sums_on_the_way(item)) return {value, sources};
  if (!entry.sum) entry.sum = group_.allocate(entry.shape(), entry.dtype());
  group_.sum(sources, entry.sum->view());
  return {entry.sum->bytes()};
}

/// True if the operation itself sums the values, which no other rank reads in a job of one rank.
/// False if one of them lies in a replica, which the push writes, or if compression needs the sum.
bool DensePush::sums_on_the_way(const PushItem& item) const {
  return group_.topology().size == 1 && item.values.size() > 1 &&
         item.entry->replica.size_bytes() >= collectives::kSplitBytes &&
         !store_.compression.is_on() &&
         std::ranges::none_of(item.values, [&](const ConstTensorView& value) {
           return store_.table.holds(value.bytes());
         });
}

std::byte* DensePush::scratch(std::size_t bytes) {
  if (!merged_ || merged_->size_bytes() < bytes) {
    merged_.reset();
    merged_ = group_.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8);
  }
  return merged_->bytes();
}

/// Decides whether the sum writes outputs. A large result that the updater does not change is
/// written into its output at once, which saves reading it again. A smaller one comes from the
/// cache.
void DensePush::choose_direct_outputs(const PullPlan* outputs) {
  writes_outputs_ = false;
  const bool is_large = plan_.bytes() >= group_.engine().tuning().direct_output_bytes;
  if (outputs == nullptr || !store_.rule.assigns() || !is_large) return;
  if (direct_.of_push != plan_.number() || direct_.of_outputs != outputs->number()) {
    direct_.first.clear();
    if (find_direct_outputs(*outputs)) {
      for (const auto& segment : segments_) direct_.first.push_back(segment.second_output);
    }
    direct_.of_push = plan_.number();
    direct_.of_outputs = outputs->number();
  }
  writes_outputs_ = !direct_.first.empty();
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].second_output = writes_outputs_ ? direct_.first[i] : nullptr;
  }
}

/// Sets the second output of each segment. False if one cannot be written while the others are
/// summed.
bool DensePush::find_direct_outputs(const PullPlan& outputs) {
  std::unordered_map<const Entry*, std::size_t> index;
  for (std::size_t i = 0; i < plan_.entries().size(); ++i) index[plan_.entries()[i]] = i;
  for (const auto& [entry, tensors] : outputs.items()) {
    if (tensors.front().device().kind == DeviceKind::gpu) return false;
    segments_[index.at(entry)].second_output = tensors.front().bytes();
  }
  return outputs_are_apart();
}

/// True if no output overlaps another one, a replica, or another key's input.
bool DensePush::outputs_are_apart() const {
  struct Extent {
    const std::byte* begin;
    const std::byte* end;
  };
  std::vector<Extent> extents;
  for (const collectives::Segment& segment : segments_) {
    const std::size_t bytes = segment.count * size_of(segment.dtype);
    if (bytes == 0) continue;
    if (segment.second_output != nullptr && store_.table.holds(segment.second_output)) return false;
    if (segment.second_output != nullptr)
      extents.push_back({segment.second_output, segment.second_output + bytes});
    const auto inputs = segment.inputs.empty() ? std::span(&segment.input, 1) : segment.inputs;
    for (const std::byte* input : inputs) {
      if (segment.second_output != input) extents.push_back({input, input + bytes});
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& left, const Extent& right) { return left.begin < right.begin; });
  const auto meet = [](const Extent& left, const Extent& right) { return left.end > right.begin; };
  return std::adjacent_find(extents.begin(), extents.end(), meet) == extents.end();
}

bool DensePush::needs_whole_sums() const {
  const Optimizer* optimizer = store_.rule.optimizer();
  if (has_slices_ || store_.rule.scaler != nullptr) return true;
  return store_.rule.updater() != nullptr || (optimizer != nullptr && !optimizer->elementwise());
}

/// The largest update count, if a schedule needs it.
std::uint64_t DensePush::most_updates(const Optimizer& optimizer) const {
  return optimizer.options().schedule ? store_.table.most_updates() : 0;
}

void DensePush::take(const PullPlan* outputs) {
  segments_.clear();
  host_values_.clear();
  inputs_.clear();
  std::size_t bytes = 0;
  for (PushItem& item : plan_.items()) {
    Entry& entry = *item.entry;
    store_.compression.require_packable(entry);
    const Inputs inputs = inputs_of(item);
    segments_.push_back({.input = inputs.first,
                         .output = entry.replica.bytes(),
                         .count = entry.shape().count(),
                         .dtype = entry.dtype(),
                         .inputs = inputs.all});
    bytes += aligned_bytes(entry.replica.size_bytes());
  }
  choose_direct_outputs(outputs);
  consumer_.reset();
  const Optimizer* optimizer = store_.rule.optimizer();
  require_unscaled(store_.rule, store_.compression);
  announcement_.take();
  if (optimizer != nullptr)
    consumer_.emplace(group_, *optimizer, plan_.entries(), most_updates(*optimizer));
  if (needs_whole_sums() && !has_slices_) put_sums(scratch(bytes));
  compressed_sum_.stage(plan_.entries(), segments_, piecewise_consumer());
}

/// Makes the segments' outputs lie one after the other.
void DensePush::put_sums(std::byte* into) {
  for (collectives::Segment& segment : segments_) {
    segment.output = into;
    into += aligned_bytes(segment.count * size_of(segment.dtype));
  }
}

void DensePush::take_for_slices(std::byte* room) {
  has_slices_ = true;
  take();
  const collectives::Segment& only = segments_.front();
  Entry& entry = *plan_.entries().front();
  const bool is_summed = entry.sum && only.input == entry.sum->bytes();
  if (is_summed) room = entry.sum->bytes();
  put_sums(room != nullptr ? room : scratch(entry.replica.size_bytes()));
}

void DensePush::sum() {
  collectives::Operation operation =
      announcement_.operation("push", plan_.entries(), plan_.digest());
  operation.segments = segments_;
  operation.consumer = piecewise_consumer();
  compressed_sum_.apply(operation);
  group_.engine().statistics().count_as(plan_.totals(), plan_.bytes());
  run_verified(operation);
  sample_.commit();
  compressed_sum_.commit(plan_.entries());
}

void DensePush::sum_slice(std::size_t first, std::size_t count) {
  const std::size_t begin = first * size_of(segments_.front().dtype);
  collectives::Segment slice = segments_.front();
  slice.input += begin;
  slice.output += begin;
  slice.count = count;
  collectives::Operation operation =
      announcement_.operation("push", plan_.entries(), plan_.digest());
  operation.digest = Digest().add(operation.digest).add(std::uint64_t{begin}).value();
  operation.segments = {&slice, 1};
  group_.engine().statistics().count_as(plan_.totals(), count * size_of(slice.dtype));
  if (begin > 0) {
    group_.engine().run(operation);
  } else {
    run_verified(operation);
    sample_.commit();
  }
}

void DensePush::update() {
  if (has_slices_ && store_.rule.assigns()) {
    Entry& entry = *plan_.entries().front();
    group_.copy(entry.replica, {segments_.front().output, entry.shape(), entry.dtype()});
  }
  if (store_.rule.scaler != nullptr && !scale_gradients()) return;
  if (consumer_ && needs_whole_sums()) {
    run_user_code(
        group_, [&] { return "optimizer " + store_.rule.optimizer()->name(); },
        [&] { consumer_->update_whole(segments_, group_.engine().workers()); });
  }
  if (consumer_) store_.table.count_updates(plan_.entries());
  if (const Updater* updater = store_.rule.updater()) call_updater(*updater);
}

bool DensePush::scale_gradients() {
  std::optional<double> factor;
  fail_together(group_.engine(), [&] {  // other ranks may have updated already
    double squares = 0;
    for (const collectives::Segment& segment : segments_) {
      squares += squares_of(segment, group_.engine().workers());
    }
    factor = store_.rule.scaler->take(squares, group_, plan_.entries());
  });
  if (factor) consumer_->scale_by(*factor);
  return factor.has_value();
}

/// Runs the push with a comparison of the replicas that it is about to change. If replicas differ
/// again after they were made equal, more than a flipped bit is wrong.
void DensePush::run_verified(collectives::Operation& operation) {
  operation.check = sample_.digest(plan_.entries());
  for (int attempt = 0; !group_.engine().run(operation); ++attempt) {
    if (attempt == 2) {
      throw Error(ErrorCode::divergence,
                  operation.describe() +
                      ": replicas differ again and again, although all their "
                      "digests are equal when compared whole; nothing was changed",
                  ErrorScope::agreed, /*reporter=*/group_.topology().rank == 0);
    }
    healed_ += Comparison(group_).run(plan_.entries(), store_.rule.optimizer()).healed;
    operation.check = sample_.digest(plan_.entries());
  }
}

void DensePush::call_updater(const Updater& updater) {
  for (std::size_t i = 0; i < plan_.entries().size(); ++i) {
    Entry& entry = *plan_.entries()[i];
    run_updater(group_, entry.key, [&] {
      updater(entry.key, {segments_[i].output, entry.shape(), entry.dtype()}, entry.replica);
    });
  }
}

collectives::Consumer* DensePush::piecewise_consumer() {
  return consumer_ && !needs_whole_sums() ? &*consumer_ : nullptr;
}

}  // namespace tutti
