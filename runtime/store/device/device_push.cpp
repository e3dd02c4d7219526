// SPDX-License-Identifier: Apache-2.0
// The ways of a push on GPUs, in the order of the stream:
//
//   one rank       one launch for all keys: values -> update
//   bucket         values -> bucket, sum over ranks, bucket -> update
//   rounds         the same for the first round; then, of each further one: sum over ranks, update
//   peer windows   values -> own window, begin_reading(), windows of all ranks -> update
//   compressed     values -> packed -> hosts, sum by the hosts -> bucket -> update
//
// BucketLayout chooses the way, by facts that are the same on all ranks.
#include "runtime/store/device/device_push.hpp"

#include <algorithm>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "runtime/store/core/together.hpp"
#include "runtime/store/core/user_updater.hpp"
#include "runtime/store/device/pushable.hpp"

namespace tutti {

/// True if the push makes sums in a bucket: several ranks do, and an updater or a compression is
/// given a sum, too.
bool DevicePush::needs_sums() const {
  return group_.topology().size > 1 || store_.rule.updater() != nullptr || compressed_push_.is_on();
}

/// True if a launch sums this rank's values. GPUs that pack sum the values themselves.
bool DevicePush::sums_values() const { return needs_sums() && !compressed_push_.packs_on_gpu(); }

LayoutTraits DevicePush::layout_traits() const {
  LayoutTraits traits{.takes_inputs = sum_traits_.takes_inputs,
                      .peer_window_bytes = sum_traits_.window_bytes,
                      .unit = gpus::kGrain * group_.topology().largest_node(),
                      .use = SumUse::assign};
  if (store_.rule.updater() != nullptr) {
    traits.use = SumUse::call_updater;
  } else if (store_.rule.optimizer() != nullptr) {
    traits.use = store_.rule.scaler == nullptr ? SumUse::update : SumUse::update_together;
  }
  return traits;
}

/// True for memory that is part of no replica. Values often lie side by side.
bool DevicePush::is_apart(const std::byte* memory) {
  if (gap_.has(memory)) return true;
  gap_ = store_.table.gap_around(memory);
  return gap_.has(memory);
}

/// The value in memory of the GPU. A value that is elsewhere, or in another key's replica, which
/// this push changes, is copied first.
const std::byte* DevicePush::value_on(DeviceKeys& keys, const PushItem& item,
                                      const ConstTensorView& value) {
  const Device device = gpu(keys.device());
  const bool is_here = value.device() == device;
  const bool is_own = value.bytes() == item.entry->replica.bytes();
  if (is_here && (is_own || value.bytes() == item.known_apart)) return value.bytes();
  if (is_here && is_apart(value.bytes())) {
    if (item.values.size() == 1) item.known_apart = value.bytes();
    return value.bytes();
  }
  Tensor moved = gpus_->allocate(value.shape(), value.dtype(), device);
  group_.copy(moved, value);
  return keys.keep(std::move(moved));
}

void DevicePush::add(const PushItem& item) {
  const int device = item.entry->replica.device().index;
  DeviceKeys& keys = keys_.try_emplace(device, gpus_, device, sum_over_ranks_).first->second;
  if (keys.empty()) gpus_->require_stream(device);
  keys.add(*item.entry);
  for (const ConstTensorView& value : item.values) keys.add_value(value_on(keys, item, value));
}

/// Takes new values of the keys of the last push, one for each key. False if a value has to be
/// moved, and then the launches are made anew.
bool DevicePush::replace_values() {
  std::map<int, std::size_t> next;
  for (const PushItem& item : plan_.items()) {
    const ConstTensorView& value = item.values.front();
    const Device device = item.entry->replica.device();
    const bool is_own = value.bytes() == item.entry->replica.bytes();
    if (item.values.size() != 1 || value.device() != device) return false;
    if (!is_own && !is_apart(value.bytes())) return false;
    keys_.at(device.index).replace_value(next[device.index]++, value.bytes());
  }
  return true;
}

/// True if this push can use the launches of the last one. A push may have failed since they were
/// made: then there is a newer plan without them.
bool DevicePush::takes_launches_again() {
  // False until this function has come to its end.
  const bool had_launches = std::exchange(has_launches_, false);
  const std::uint64_t before = std::exchange(launched_plan_, plan_.number());
  const Device first = plan_.items().front().entry->replica.device();
  gpus::SumTraits traits;
  if (!compressed_push_.is_on()) traits = sum_over_ranks_.traits(first.index);
  if (std::exchange(sum_traits_, traits) != traits) {
    may_shrink_ = true;
    return false;
  }
  if (!had_launches) return false;
  const bool is_reused = plan_.is_reused() && before == plan_.number();
  const bool has_new_values =
      !plan_.is_reused() && plan_.has_same_keys() && before + 1 == plan_.number();
  if (!is_reused && !has_new_values) return false;
  for_each_gpu([&](DeviceKeys& keys) { gpus_->require_stream(keys.device()); });
  if (is_reused) return true;
  if (!replace_values()) return false;
  for_each_gpu([&](DeviceKeys& keys) { keys.prepare(store_.rule, sums_values()); });
  return true;
}

void DevicePush::take(gpus::SumTurn& turn) {
  announcement_.take();
  has_launches_ = takes_launches_again();
  if (!has_launches_) take_launches();
  if (compressed_push_.is_on()) return stage_compressed();
  for_each_gpu([&](DeviceKeys& keys) { sum_over_ranks_.begin_turn(turn, *gpus_, keys.device()); });
}

void DevicePush::take_launches() {
  gap_ = {};
  const auto items = plan_.items();
  require_pushable(items, group_.topology().size, store_.rule, store_.compression);
  gpus_ = gpus::require_gpus("push", items.front().entry->replica.device());
  for (auto& [device, keys] : keys_) keys.clear();
  for (const PushItem& item : items) add(item);
  bool has_moved = false;
  for_each_gpu([&](DeviceKeys& keys) {
    if (store_.rule.optimizer() != nullptr) keys.start_states(group_, *store_.rule.optimizer());
    if (needs_sums()) {
      keys.lay_out(layout_traits(), may_shrink_);
    } else {
      keys.lay_out_without_sums();
    }
    keys.prepare(store_.rule, sums_values());
    has_moved = has_moved || keys.has_moved();
  });
  has_launches_ = !has_moved;
  may_shrink_ = false;
}

/// Packs this rank's values before the ranks agree, like those of keys on the CPU: packing changes
/// no residual.
void DevicePush::stage_compressed() {
  const gpus::NamedRange range(gpus_->accelerator(), "compression of values");
  compressed_push_.clear();
  for_each_gpu([&](DeviceKeys& keys) {
    if (sums_values()) keys.sum_values();
    const auto sums = keys.first_sums();  // one sum, since all keys are small, and of float32
    const std::size_t elements = sums.empty() ? 0 : sums.front().count;
    compressed_push_.take_bucket(keys.device(), keys.bucket(), elements * sizeof(float));
  });
  for_each_key([&](Entry& entry, DeviceKeys& keys, std::size_t i) {
    compressed_push_.add(entry, keys.sum_of(i), keys.values_of(i));
  });
  compressed_push_.stage(plan_.entries());
}

void DevicePush::agree() {
  if (compressed_push_.is_on()) return;
  collectives::Operation operation =
      announcement_.operation("push", plan_.entries(), plan_.digest());
  group_.engine().statistics().count_as(plan_.totals(), plan_.bytes());
  group_.engine().run(operation);
}

void DevicePush::sum_and_update() {
  const gpus::NamedRange range(gpus_->accelerator(), "tutti push");
  compressed_push_.is_on() ? sum_compressed() : sum();
  const std::uint64_t most = most_updates();
  const std::optional<double> factor = gradient_factor();
  for_each_gpu([&](DeviceKeys& keys) {
    if (factor) update(keys, most, *factor);
    keys.drop_moved();
  });
  if (!compressed_push_.is_on()) sum_over_ranks_.finish();
}

/// Sums compressed values. The sum's own announcement is the agreement.
void DevicePush::sum_compressed() {
  const gpus::NamedRange range(gpus_->accelerator(), "sum over ranks");
  group_.engine().statistics().count_as(plan_.totals(), plan_.bytes());
  compressed_push_.sum(announcement_.operation("push", plan_.entries(), plan_.digest()),
                       plan_.entries());
  fail_together(group_.engine(), [&] { compressed_push_.finish(); });
}

void DevicePush::sum() {
  if (!needs_sums()) return;
  or_fail([&] {
    for_each_gpu([&](DeviceKeys& keys) {
      keys.sum_values();
      if (group_.topology().size > 1) keys.sum_over_ranks();
    });
  });
}

/// The factor of the gradients besides rescale_grad: 1 without a GradientScaler; none if the
/// gradients are not finite, and then nothing is updated. Waits for the GPUs, and adds the squares
/// of the keys in the order of their updates, as a push on the CPU does.
std::optional<double> DevicePush::gradient_factor() {
  if (store_.rule.scaler == nullptr) return 1;
  const gpus::NamedRange range(gpus_->accelerator(), "norm of the gradients");
  double squares = 0;
  or_fail([&] {
    for_each_gpu([&](DeviceKeys& keys) { keys.launch_squares(); });
    for_each_key([&](Entry& /*entry*/, DeviceKeys& keys, std::size_t i) {
      if (i == 0) await_squares(keys);
      squares += keys.squares().values()[i];
    });
    sum_over_ranks_.check();  // a sum that was aborted also ends the wait
  });
  return store_.rule.scaler->take(squares, group_, plan_.entries());
}

void DevicePush::await_squares(const DeviceKeys& keys) {
  group_.engine().await(
      [&] { return keys.squares().done(); },
      [&] { return "norm of the gradients on " + to_string(gpu(keys.device())); });
}

/// The number of updates for a schedule, before any key of the push is updated, whichever GPU it is
/// on; 0 without a schedule.
std::uint64_t DevicePush::most_updates() const {
  const Optimizer* optimizer = store_.rule.optimizer();
  if (optimizer == nullptr || !optimizer->options().schedule) return 0;
  std::uint64_t most = store_.table.most_updates();
  for (const Entry* entry : plan_.entries()) most = std::max(most, entry->updates + 1);
  return most;
}

void DevicePush::update(DeviceKeys& keys, std::uint64_t most_updates, double factor) {
  const gpus::NamedRange range(gpus_->accelerator(), "update");
  if (const Updater* updater = store_.rule.updater()) return call_updater(*updater, keys);
  or_fail([&] {
    const Optimizer* optimizer = store_.rule.optimizer();
    if (optimizer == nullptr) return keys.assign();
    keys.set_steps(*optimizer, most_updates, factor);
    keys.update(*optimizer);
    store_.table.count_updates(keys.entries());
  });
}

/// Calls the updater once the sums have been made: the program's code may read them in ways that
/// know of no deadline.
void DevicePush::call_updater(const Updater& updater, DeviceKeys& keys) {
  sum_over_ranks_.await();
  for (std::size_t i = 0; i < keys.entries().size(); ++i) {
    Entry& entry = *keys.entries()[i];
    run_updater(group_, entry.key, [&] {
      updater(entry.key, {keys.sum_of(i), entry.shape(), entry.dtype(), gpu(keys.device())},
              entry.replica);
    });
  }
}

void DevicePush::leak_until_exit() {
  compressed_push_.leak_until_exit();
  collectives::leak_until_exit(std::make_shared<decltype(keys_)>(std::move(keys_)));
}

}  // namespace tutti
