// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/device_push.hpp"

#include <algorithm>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "runtime/store/core/together.hpp"
#include "runtime/store/core/user_updater.hpp"
#include "runtime/store/device/pushable.hpp"

namespace tutti {

/// True of memory that is part of no replica. Values often lie side by side.
bool DevicePush::is_apart(const std::byte* memory) {
  if (gap_.has(memory)) return true;
  gap_ = table_.gap_around(memory);
  return gap_.has(memory);
}

/// Values in order; one that is elsewhere, or in another key's replica, which this push changes, is
/// copied first.
const std::byte* DevicePush::value_on(int device, const PushItem& item, std::size_t index,
                                      Work& work) {
  const ConstTensorView& value = item.values[index];
  const Entry& entry = *item.entry;
  const bool is_here = value.device() == gpu(device);
  const bool is_own = value.bytes() == entry.replica.bytes();
  if (is_here && (is_own || value.bytes() == item.known_apart)) return value.bytes();
  if (is_here && is_apart(value.bytes())) {
    if (item.values.size() == 1) item.known_apart = value.bytes();
    return value.bytes();
  }
  work.moved.push_back(gpus_->allocate(value.shape(), value.dtype(), gpu(device)));
  group_.copy(work.moved.back(), value);
  return work.moved.back().bytes();
}

/// More values than a row takes are summed row by row, each with the sum so far as its first.
void DevicePush::add_inputs(int device, const PushItem& item, Work& work) {
  gpus::TensorRow row{.output = item.entry->replica.bytes(),
                      .count = item.entry->shape().count(),
                      .dtype = item.entry->dtype()};
  row.num_inputs = 0;
  for (std::size_t i = 0; i < item.values.size(); ++i) {
    if (row.num_inputs == gpus::TensorRow::kMostInputs) {
      work.moved.push_back(gpus_->allocate(item.entry->shape(), item.entry->dtype(), gpu(device)));
      row.output = work.moved.back().bytes();
      if (work.num_partial == work.partial.size()) {
        work.partial.push_back(gpus_->kernels(device).make_table());
      }
      gpus::LaunchTable& table = *work.partial[work.num_partial++];
      gpus_->kernels(device).sum(gpus_->stream(device), table, {&row, 1});
      row.inputs[0] = row.output;
      row.num_inputs = 1;
      row.output = item.entry->replica.bytes();
    }
    row.inputs[row.num_inputs++] = value_on(device, item, i, work);
  }
  work.updates.push_back(row);
}

void DevicePush::add(const PushItem& item) {
  const int device = item.entry->replica.device().index;
  Work& work = work_[device];
  if (work.updating == nullptr) {
    work.summing = gpus_->kernels(device).make_table();
    work.updating = gpus_->kernels(device).make_table();
  }
  work.entries.push_back(item.entry);
  add_inputs(device, item, work);
}

/// Several ranks sum in the bucket; an updater and a compression are given a sum, too.
bool DevicePush::needs_sums() const {
  return group_.topology().size > 1 || rule_.updater() != nullptr || compressed_push_.is_on();
}

/// Of the same keys as last time: of each row the input alone is new. False if a value has to be
/// moved, and then the rows are made anew.
bool DevicePush::replace_inputs() {
  for (auto& [device, work] : work_) work.num_replaced = 0;
  for (const PushItem& item : plan_.items()) {
    const ConstTensorView& value = item.values.front();
    const Device device = item.entry->replica.device();
    const bool is_own = value.bytes() == item.entry->replica.bytes();
    if (item.values.size() != 1 || value.device() != device) return false;
    if (!is_own && !is_apart(value.bytes())) return false;
    Work& work = work_[device.index];
    const std::size_t i = work.num_replaced++;
    if (!needs_sums()) {
      work.updates[i].inputs[0] = value.bytes();
    } else if (const Summed& summed = work.summed[i]; summed.row >= 0) {
      work.sums[summed.row].inputs[0] = value.bytes();
    } else {
      work.parts[summed.part].from = value.bytes();
    }
  }
  return true;
}

/// A push may have failed since they were made: then the plan has gone on without them.
bool DevicePush::takes_launches_again() {
  const bool had_launches = std::exchange(has_launches_, false);  // until this has come to its end
  const std::uint64_t before = std::exchange(launched_plan_, plan_.number());
  const Device first = plan_.items().front().entry->replica.device();
  gpus::SumTraits traits;
  if (!compressed_push_.is_on()) traits = sum_over_ranks_.traits(first.index);
  if (std::exchange(traits_, traits) != traits) {
    may_shrink_ = true;
    return false;
  }
  if (!had_launches) return false;
  if (plan_.is_reused()) return before == plan_.number();
  if (!plan_.has_same_keys() || before + 1 != plan_.number() || !replace_inputs()) return false;
  for (auto& [device, work] : work_) {
    if (!work.entries.empty()) prepare(device, work);
  }
  return true;
}

void DevicePush::take() {
  announcement_.take();
  take_launches();
  if (compressed_push_.is_on()) stage_compressed();
}

void DevicePush::take_launches() {
  const bool is_ready = takes_launches_again();
  has_launches_ = is_ready;
  if (is_ready) return;
  gap_ = {};
  const auto items = plan_.items();
  require_pushable(items, group_.topology().size, rule_, compression_);
  gpus_ = gpus::require_gpus("push", items.front().entry->replica.device());
  for (auto& [device, work] : work_) {
    work.entries.clear();
    work.sums.clear();
    work.updates.clear();
    work.steps.clear();
    work.moved.clear();
    work.num_partial = 0;
  }
  for (const PushItem& item : items) add(item);
  bool has_moved = false;
  for (auto& [device, work] : work_) {
    if (work.entries.empty()) continue;
    if (needs_sums()) lay_out(device, work);
    start(work);
    prepare(device, work);
    has_moved = has_moved || !work.moved.empty();
  }
  has_launches_ = !has_moved;
  may_shrink_ = false;
}

/// The optimizer's states.
void DevicePush::start(Work& work) {
  const Optimizer* optimizer = rule_.optimizer();
  if (optimizer == nullptr) return;
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    Entry& entry = *work.entries[i];
    if (entry.updates == 0) start_states(group_, *optimizer, entry);
    for (std::size_t s = 0; s < entry.states.size(); ++s) {
      work.updates[i].states[s] = entry.states[s].bytes();
    }
  }
}

void DevicePush::prepare(int device, Work& work) {
  gpus::Kernels& kernels = gpus_->kernels(device);
  const gpus::Stream stream = gpus_->stream(device);
  if (sums_values()) kernels.prepare(stream, *work.summing, work.sums, nullptr);
  if (rule_.updater() != nullptr) return;
  if (work.rounds.empty()) {
    kernels.prepare(stream, *work.updating, work.updates, rule_.optimizer());
  } else {
    work.rounds.prepare(kernels, stream, work.updates, *rule_.optimizer());
  }
  if (rule_.scaler == nullptr) return;
  if (work.squares == nullptr) work.squares = std::make_unique<DeviceSquares>(gpus_, device);
  work.squares->prepare(work.updates);
}

/// What this rank gives is packed before the ranks agree, as for keys on the cpu: to pack changes
/// no residual.
void DevicePush::stage_compressed() {
  const gpus::NamedRange range(gpus_->accelerator(), "compression of values");
  compressed_push_.clear();
  for (auto& [device, work] : work_) {
    if (work.entries.empty()) continue;
    if (sums_values()) sum_values_on(device, work);
    const std::size_t elements = work.parts.empty() ? 0 : work.parts.front().count;
    compressed_push_.take_bucket(device, work.bucket->bytes(), elements * sizeof(float));
  }
  std::map<int, std::size_t> next;
  for (Entry* entry : plan_.entries()) {
    const int device = entry->replica.device().index;
    const Work& work = work_.at(device);
    const Summed& summed = work.summed[next[device]++];
    compressed_push_.add(*entry, summed.place, work.sums[summed.row]);
  }
  compressed_push_.stage(plan_.entries());
}

/// The sum's own announcement is the agreement.
void DevicePush::sum_compressed() {
  const gpus::NamedRange range(gpus_->accelerator(), "sum over ranks");
  group_.engine().statistics().count_as(plan_.totals(), plan_.bytes());
  compressed_push_.sum(announcement_.operation("push", plan_.entries(), plan_.digest()),
                       plan_.entries());
  fail_together(group_.engine(), [&] { compressed_push_.finish(); });
}

void DevicePush::agree() {
  if (compressed_push_.is_on()) return;
  collectives::Operation operation =
      announcement_.operation("push", plan_.entries(), plan_.digest());
  group_.engine().statistics().count_as(plan_.totals(), plan_.bytes());
  group_.engine().run(operation);
}

/// One range for both steps, for a profiler that watches; it also ends if a step throws.
template <class Step>
void DevicePush::in_range(Step step) {
  if (!range_) range_.emplace(gpus_->accelerator(), "tutti push");
  try {
    step();
  } catch (...) {
    range_.reset();
    throw;
  }
}

void DevicePush::sum() {
  in_range([&] {
    if (compressed_push_.is_on()) return sum_compressed();
    if (!needs_sums()) return;
    or_fail([&] {
      for (auto& [device, work] : work_) {
        if (!work.entries.empty()) sum_on(device, work);
      }
    });
  });
}

void DevicePush::update() {
  most_updates_ = most_updates();
  in_range([&] {
    const bool is_skipped = rule_.scaler != nullptr && !scale_gradients();
    for (auto& [device, work] : work_) {
      if (!work.entries.empty() && !is_skipped) update_on(device, work);
      work.moved.clear();
    }
    if (!compressed_push_.is_on()) sum_over_ranks_.finish();
  });
  range_.reset();
}

void DevicePush::sum_values_on(int device, Work& work) {
  const gpus::NamedRange range(gpus_->accelerator(), "sum of values");
  gpus_->kernels(device).sum(gpus_->stream(device), *work.summing, work.sums);
}

void DevicePush::sum_on(int device, Work& work) {
  sum_values_on(device, work);
  if (group_.topology().size == 1) return;
  const gpus::NamedRange range(gpus_->accelerator(), "sum over ranks");
  if (work.reads_windows) return sum_over_ranks_.begin_reading(device);
  sum_over_ranks_.allreduce(gpus_, device, work.rounds.first(work.parts));
}

/// Adds the keys in the order of their updates, as a push on the cpu does.
bool DevicePush::scale_gradients() {
  const gpus::NamedRange range(gpus_->accelerator(), "norm of the gradients");
  double squares = 0;
  or_fail([&] {
    for (auto& [device, work] : work_) {
      if (!work.entries.empty()) work.squares->launch(work.updates);
    }
    std::map<int, std::size_t> next;
    for (const Entry* entry : plan_.entries()) {
      const int device = entry->replica.device().index;
      const DeviceSquares& own = *work_.at(device).squares;
      const std::size_t index = next[device]++;
      if (index == 0) await_squares(device, own);
      squares += own.values()[index];
    }
    sum_over_ranks_.check();  // a sum that was aborted has ended, too
  });
  const std::optional<double> factor = rule_.scaler->take(squares, group_, plan_.entries());
  gradient_factor_ = factor.value_or(0);
  return factor.has_value();
}

void DevicePush::await_squares(int device, const DeviceSquares& squares) {
  group_.engine().await([&] { return squares.done(); },
                        [&] { return "norm of the gradients on " + to_string(gpu(device)); });
}

void DevicePush::update_on(int device, Work& work) {
  const gpus::NamedRange range(gpus_->accelerator(), "update");
  if (const Updater* updater = rule_.updater()) return call_updater(*updater, device, work);
  or_fail([&] { launch_update(device, work); });
}

void DevicePush::launch_update(int device, Work& work) {
  gpus::Kernels& kernels = gpus_->kernels(device);
  const gpus::Stream stream = gpus_->stream(device);
  const Optimizer* optimizer = rule_.optimizer();
  if (optimizer == nullptr) return kernels.sum(stream, *work.updating, work.updates);
  set_steps(*optimizer, work);
  if (rule_.scaler != nullptr) {
    for (UpdateStep& step : work.steps) step.gradient_factor = gradient_factor_;
  }
  if (work.rounds.empty()) {
    kernels.update(stream, *work.updating, work.updates, *optimizer, work.steps);
  } else {
    work.rounds.run(
        work.parts, work.steps,
        [&](std::span<const gpus::Part> parts) { sum_over_ranks_.allreduce(gpus_, device, parts); },
        [&](gpus::LaunchTable& table, std::span<const gpus::TensorRow> rows,
            std::span<const UpdateStep> steps) {
          kernels.update(stream, table, rows, *optimizer, steps);
        });
  }
  table_.count_updates(work.entries);
}

/// What a schedule goes by, before any key of the push is updated, whichever GPU it is on.
std::uint64_t DevicePush::most_updates() const {
  const Optimizer* optimizer = rule_.optimizer();
  if (optimizer == nullptr || !optimizer->options().schedule) return 0;
  std::uint64_t most = table_.most_updates();
  for (const Entry* entry : plan_.entries()) most = std::max(most, entry->updates + 1);
  return most;
}

/// Without a schedule only the counts change from push to push, unless the program changes the
/// optimizer.
void DevicePush::set_steps(const Optimizer& optimizer, Work& work) {
  const bool has_schedule = optimizer.options().schedule.has_value();
  const std::uint64_t fingerprint = optimizer.fingerprint();
  if (!work.steps.empty() && work.optimizer == fingerprint && !has_schedule) {
    for (std::size_t i = 0; i < work.steps.size(); ++i) {
      work.steps[i].count = work.entries[i]->updates + 1;
    }
    return;
  }
  work.optimizer = fingerprint;
  work.steps.clear();
  for (const Entry* entry : work.entries) {
    work.steps.push_back(optimizer.step(entry->key, entry->updates + 1, most_updates_));
  }
}

void DevicePush::leak_until_exit() {
  compressed_push_.leak_until_exit();
  collectives::leak_until_exit(std::make_shared<decltype(work_)>(std::move(work_)));
}

/// The program's code may look at the sums by ways that know of no deadline, so they are there.
void DevicePush::call_updater(const Updater& updater, int device, Work& work) {
  sum_over_ranks_.await();
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    Entry& entry = *work.entries[i];
    run_updater(group_, entry.key, [&] {
      updater(entry.key, {work.summed[i].place, entry.shape(), entry.dtype(), gpu(device)},
              entry.replica);
    });
  }
}

}  // namespace tutti
