// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/updates.hpp"

#include <algorithm>
#include <array>

#include "tutti/error.hpp"

#include "collectives/kernels/reduce.hpp"
#include "runtime/gpu/gpus.hpp"
#include "runtime/optimizers/rule.hpp"
#include "runtime/store/core/replica.hpp"

namespace tutti {

namespace {

constexpr std::size_t kTileCount = 2048;  // float32 elements: stays in the first-level cache

/// True for float16 and bfloat16 weights, which are rounded copies of a float32 state.
bool is_rounded(const Entry& entry) { return size_of(entry.dtype()) == 2; }

DType state_dtype(const Entry& entry) { return is_rounded(entry) ? DType::float32 : entry.dtype(); }

/// True for the library's own optimizers.
bool follows_rule(const Optimizer& optimizer) {
  return dynamic_cast<const optimizer::FollowsRule*>(&optimizer) != nullptr;
}

void convert(const std::byte* from, DType from_type, void* to, DType to_type, std::size_t count) {
  auto* target = static_cast<std::byte*>(to);
  collectives::reduce({ReduceOp::sum, from_type, to_type}, std::span(&from, 1),
                      std::span(&target, 1), count, collectives::WritePolicy::cached);
}

}  // namespace

void require_updatable(const Optimizer& optimizer, const Entry& entry) {
  const DType dtype = entry.dtype();
  const bool is_half = dtype == DType::float16 || dtype == DType::bfloat16;
  if (dtype == DType::float32 || dtype == DType::float64) return;
  if (is_half && optimizer.options().multi_precision) return;
  throw Error(ErrorCode::invalid_argument,
              to_string(entry.key, entry.shape(), dtype) + ": " + optimizer.name() +
                  (is_half ? " updates 16-bit weights with the option multi_precision only, which "
                             "keeps a float32 copy of them"
                           : " updates floating-point values: float32, float64, and float16 and "
                             "bfloat16 with multi_precision"));
}

void require_kernels(const Optimizer& optimizer, const Entry& entry) {
  const Device device = entry.replica.device();
  if (gpus::require_gpus("push", device)->kernels(device.index).can_update(optimizer)) return;
  throw_invalid_argument(entry, "optimizer " + optimizer.name() +
                                    " has no kernels for a GPU, and the key is on " +
                                    to_string(device) + "; init it from a tensor on the cpu");
}

Optimizer* UpdateRule::optimizer() const {
  const auto* found = std::get_if<std::shared_ptr<Optimizer>>(&rule);
  return found == nullptr ? nullptr : found->get();
}

std::uint64_t UpdateRule::fingerprint() const {
  if (const Optimizer* running = optimizer()) {
    return running->fingerprint() ^ (scaler == nullptr ? 0 : scaler->fingerprint());
  }
  return rule.index();  // of an updater nothing is known but that there is one
}

std::string UpdateRule::describe() const {
  if (const Optimizer* running = optimizer()) return " with " + running->describe();
  return updater() != nullptr ? " with an updater" : "";
}

bool may_share_updates(const Group& group, const Optimizer& optimizer) {
  const collectives::Topology& topology = group.topology();
  return topology.num_nodes() == 1 && topology.size > 1 &&
         group.settings().verify != Verify::sampled && optimizer.elementwise() &&
         follows_rule(optimizer);
}

std::vector<Tensor> new_states(Group& group, const Optimizer& optimizer, const Entry& entry) {
  const int all = optimizer.num_states() + (is_rounded(entry) ? 1 : 0);
  const bool is_shared = may_share_updates(group, optimizer);
  const auto new_state = [&](DType dtype) {
    if (entry.is_on_gpu()) return Tensor::zeros(entry.shape(), dtype, entry.replica.device());
    if (entry.is_row_sparse()) return zero_table(entry.shape(), dtype).tensor;
    return is_shared ? group.allocate(entry.shape(), dtype) : Tensor::zeros(entry.shape(), dtype);
  };
  std::vector<Tensor> states;
  for (int i = 0; i < all; ++i) states.push_back(new_state(state_dtype(entry)));
  return states;
}

void start_states(Group& group, const Optimizer& optimizer, Entry& entry) {
  if (entry.states.empty()) entry.states = new_states(group, optimizer, entry);
  const auto own = static_cast<std::size_t>(optimizer.num_states());
  for (std::size_t i = 0; i < entry.states.size(); ++i) {
    const bool is_copy = i >= own || optimizer.starts_as_weight(static_cast<int>(i));
    if (is_copy) entry.states[i].view().copy_from(entry.replica);
  }
}

OptimizerConsumer::OptimizerConsumer(Group& group, const Optimizer& optimizer,
                                     std::span<Entry* const> entries, std::uint64_t most_updates)
    : optimizer_(optimizer), entries_(entries), any_order_(follows_rule(optimizer)) {
  steps_.reserve(entries.size());
  std::size_t widest = 0;
  std::size_t bytes = 0;
  for (Entry* entry : entries) {
    bytes += entry->replica.size_bytes();
    require_updatable(optimizer, *entry);
    if (entry->updates == 0) start_states(group, optimizer, *entry);
    if (is_rounded(*entry)) widest = std::max(widest, entry->shape().count());
    most_updates = std::max(most_updates, entry->updates + 1);
  }
  for (const Entry* entry : entries) {
    steps_.push_back(optimizer.step(entry->key, entry->updates + 1, most_updates));
  }
  if (!optimizer.elementwise()) wide_.resize(widest);
  const bool is_small = bytes <= collectives::kInlineInNode;  // then no rank asks for places
  if (!is_small && may_share_updates(group, optimizer)) find_places();
}

void OptimizerConsumer::find_places() {
  const auto add = [this](Tensor& tensor) {
    places_.push_back({tensor.bytes(), size_of(tensor.dtype())});
  };
  for (Entry* entry : entries_) {
    first_places_.push_back(places_.size());
    add(entry->replica);
    for (Tensor& state : entry->states) add(state);
  }
  first_places_.push_back(places_.size());
}

std::span<const collectives::UpdatedArray> OptimizerConsumer::updated_arrays(
    std::size_t segment) const {
  if (places_.empty()) return {};
  const std::size_t first = first_places_[segment];
  return std::span(places_).subspan(first, first_places_[segment + 1] - first);
}

/// An optimizer of the program's own applies no factor but rescale_grad, so its sums are multiplied
/// before it gets them.
void OptimizerConsumer::scale_by(double factor) {
  if (!any_order_) {
    factor_ = factor;
    return;
  }
  for (UpdateStep& step : steps_) step.gradient_factor = factor;
}

template <class Real>
void OptimizerConsumer::update(std::size_t segment, std::size_t first,
                               std::span<const Real> reduced, Tensor& weight) const {
  Entry& entry = *entries_[segment];
  std::array<Real*, Optimizer::kMostStates> states{};
  const auto num_states = static_cast<std::size_t>(optimizer_.num_states());
  for (std::size_t i = 0; i < num_states; ++i) {
    states[i] = entry.states[i].values<Real>().data() + first;
  }
  optimizer_.update(steps_[segment], ElementRange<Real>{.gradient = reduced,
                                                        .weight = weight.values<Real>().subspan(
                                                            first, reduced.size()),
                                                        .states = {states.data(), num_states},
                                                        .first = first});
}

/// Updates a 16-bit weight. `wide` gets the sum in float32; its size is the number of elements that
/// are updated at a time.
void OptimizerConsumer::update_rounded(std::size_t segment, std::size_t first, std::size_t count,
                                       const std::byte* reduced, std::span<float> wide) const {
  Entry& entry = *entries_[segment];
  Tensor& exact = entry.states.back();
  const std::size_t size = size_of(entry.dtype());
  for (std::size_t done = 0; done < count; done += wide.size()) {
    const std::span<float> sum = wide.first(std::min(wide.size(), count - done));
    const std::size_t at = first + done;
    convert(reduced + done * size, entry.dtype(), sum.data(), DType::float32, sum.size());
    if (factor_ != 1)
      TensorView(view(sum.data(), {static_cast<std::int64_t>(sum.size())})) *= factor_;
    update<float>(segment, at, sum, exact);
    convert(exact.bytes() + at * sizeof(float), DType::float32, entry.replica.bytes() + at * size,
            entry.dtype(), sum.size());
  }
}

void OptimizerConsumer::consume(std::size_t segment, std::size_t first, std::size_t count,
                                const std::byte* reduced) {
  Entry& entry = *entries_[segment];
  if (is_rounded(entry)) {
    std::array<float, kTileCount> tile;
    update_rounded(segment, first, count, reduced,
                   optimizer_.elementwise() ? std::span(tile) : std::span(wide_));
  } else if (entry.dtype() == DType::float32) {
    update<float>(segment, first, {reinterpret_cast<const float*>(reduced), count}, entry.replica);
  } else {
    update<double>(segment, first, {reinterpret_cast<const double*>(reduced), count},
                   entry.replica);
  }
}

void OptimizerConsumer::update_whole(std::span<const collectives::Segment> segments,
                                     collectives::Workers& workers) {
  const auto update = [&](std::size_t i) {
    const collectives::Segment& sum = segments[i];
    if (factor_ != 1 && !is_rounded(*entries_[i])) {
      TensorView(sum.output, entries_[i]->shape(), sum.dtype) *= factor_;
    }
    consume(i, 0, sum.count, sum.output);
  };
  std::size_t bytes = 0;
  for (const collectives::Segment& segment : segments) {
    bytes += segment.count * size_of(segment.dtype);
  }
  if (any_order_ && wide_.empty() && workers.splits(bytes)) {
    workers.run(segments.size(), update);
  } else {
    for (std::size_t i = 0; i < segments.size(); ++i) update(i);
  }
}

}  // namespace tutti
