// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/gpu/device_push.hpp"

#include <algorithm>

#include "tutti/error.hpp"

#include "runtime/store/user_updater.hpp"

namespace tutti {

namespace {

constexpr std::initializer_list<DType> kDTypes = {DType::float16, DType::bfloat16, DType::float32,
                                                  DType::float64, DType::int8,     DType::uint8,
                                                  DType::int32,   DType::int64};

[[noreturn]] void refuse(const Entry& entry, const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              in_words(entry.key, entry.shape(), entry.dtype()) + ": " + why);
}

std::size_t rounded(std::size_t bytes, std::size_t unit = gpus::kGrain) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void DevicePush::check(std::span<const Push::Item> items) const {
  const Device first = items.front().entry->replica.device();
  const Optimizer* optimizer = rule_.optimizer();
  std::optional<Device> asked;  // the last device that was asked for its kernels
  for (const Push::Item& item : items) {
    const Entry& entry = *item.entry;
    const Device device = entry.replica.device();
    if (device.kind != first.kind) {
      refuse(entry, "it is on " + to_string(device) + ", and the first key of the list on " +
                        to_string(first) + "; push keys on the cpu and keys on GPUs by two calls");
    }
    if (group_.topology().size > 1 && device != first) {
      refuse(entry, "it is on " + to_string(device) + ", and the first key of the list on " +
                        to_string(first) + "; in a store of several ranks each has one GPU");
    }
    if (compression_.is_on()) {
      refuse(entry, "gradient compression is for keys on the cpu, and this one is on " +
                        to_string(device) + "; set no compression");
    }
    if (optimizer == nullptr) continue;
    require_updatable(*optimizer, entry);
    if (asked == device) continue;
    asked = device;
    if (gpus::require_gpus("push", device)->kernels(device.index).can_update(*optimizer)) continue;
    refuse(entry, "optimizer " + optimizer->name() +
                      " has no kernels for a GPU, and the key is on " + to_string(device) +
                      "; init it from a tensor on the cpu");
  }
}

/// Values in order; one that is elsewhere, or in another key's replica, which this push changes, is
/// copied first.
const std::byte* DevicePush::value_on(int device, const Push::Item& item, std::size_t index,
                                      Work& work) {
  const ConstTensorView& value = item.values[index];
  const Entry& entry = *item.entry;
  const bool is_here = value.device() == gpu(device);
  const bool is_own = value.bytes() == entry.replica.bytes();
  if (is_here && (is_own || value.bytes() == item.known_apart)) return value.bytes();
  if (is_here && !table_.holds(value.bytes())) {
    if (item.values.size() == 1) item.known_apart = value.bytes();
    return value.bytes();
  }
  work.moved.push_back(gpus_->allocate(value.shape(), value.dtype(), gpu(device)));
  gpus_->copy(work.moved.back().bytes(), gpu(device), value.bytes(), value.device(),
              value.size_bytes(), group_.settings().timeout);
  return work.moved.back().bytes();
}

/// More values than a row takes are summed row by row, each with the sum so far as its first.
void DevicePush::add_inputs(int device, const Push::Item& item, Work& work) {
  gpus::TensorRow row{.output = item.entry->replica.bytes(),
                      .count = item.entry->shape().count(),
                      .dtype = item.entry->dtype()};
  row.num_inputs = 0;
  for (std::size_t i = 0; i < item.values.size(); ++i) {
    if (row.num_inputs == gpus::TensorRow::kMostInputs) {
      work.moved.push_back(gpus_->allocate(item.entry->shape(), item.entry->dtype(), gpu(device)));
      row.output = work.moved.back().bytes();
      const auto table = gpus_->kernels(device).make_table();
      gpus_->kernels(device).sum(gpus_->stream(device), *table, {&row, 1});
      gpus_->synchronize(device, group_.settings().timeout);  // the table is this launch's alone
      row.inputs[0] = row.output;
      row.num_inputs = 1;
      row.output = item.entry->replica.bytes();
    }
    row.inputs[row.num_inputs++] = value_on(device, item, i, work);
  }
  work.rows.push_back(row);
}

void DevicePush::add(const Push::Item& item) {
  const int device = item.entry->replica.device().index;
  Work& work = work_[device];
  if (work.updating == nullptr) {
    work.summing = gpus_->kernels(device).make_table();
    work.updating = gpus_->kernels(device).make_table();
  }
  work.entries.push_back(item.entry);
  add_inputs(device, item, work);
}

void DevicePush::prepare(std::span<const Push::Item> items) {
  const Device device = items.front().entry->replica.device();
  gpus_ = gpus::require_gpus("push", device);
  if (group_.topology().size > 1) reducer_ = &group_.reducer(gpus_, device.index);
}

void DevicePush::run(std::span<const Push::Item> items) {
  const gpus::NamedRange range(gpus_->accelerator(), "tutti push");
  for (auto& [device, work] : work_) {
    work.entries.clear();
    work.rows.clear();
    work.steps.clear();
  }
  for (const Push::Item& item : items) add(item);
  const bool needs_sums = group_.topology().size > 1 || rule_.updater() != nullptr;
  for (auto& [device, work] : work_) {
    if (work.rows.empty()) continue;
    if (needs_sums) fill_bucket(device, work);
    if (group_.topology().size > 1) reduce(work);
    update(device, work);
    work.moved.clear();
  }
}

void DevicePush::reduce(Work& work) {
  const gpus::NamedRange range(gpus_->accelerator(), "sum over ranks");
  reducer_->allreduce(work.parts);
}

/// The same on all ranks. By type, so that a type is one part; a key's sum begins at a multiple of
/// the grain, and what is between keys is zero from the start.
void DevicePush::lay_out(int device, Work& work) {
  const std::size_t unit = gpus::kGrain * group_.topology().largest_node();
  std::size_t bytes = kDTypes.size() * unit;
  for (const gpus::TensorRow& row : work.rows) bytes += rounded(row.count * size_of(row.dtype));
  const bool fits = work.bucket && work.bucket->size_bytes() >= bytes;
  if (!fits) work.bucket.reset();
  if (!fits) {
    work.bucket = gpus_->allocate({static_cast<std::int64_t>(bytes)}, DType::uint8, gpu(device));
  }
  work.parts.clear();
  work.places.assign(work.rows.size(), nullptr);
  std::byte* place = work.bucket->bytes();
  for (const DType dtype : kDTypes) {
    std::byte* const begin = place;
    for (std::size_t i = 0; i < work.rows.size(); ++i) {
      if (work.rows[i].dtype != dtype) continue;
      work.places[i] = place;
      place += rounded(work.rows[i].count * size_of(dtype));
    }
    if (place == begin) continue;
    place = begin + rounded(static_cast<std::size_t>(place - begin), unit);
    work.parts.push_back({begin, static_cast<std::size_t>(place - begin) / size_of(dtype), dtype});
  }
}

void DevicePush::fill_bucket(int device, Work& work) {
  const gpus::NamedRange range(gpus_->accelerator(), "sum of values");
  const auto before = work.places;
  lay_out(device, work);
  if (work.places != before) work.bucket->fill(0);
  std::vector<gpus::TensorRow> rows = work.rows;
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].output = work.places[i];
  gpus_->kernels(device).sum(gpus_->stream(device), *work.summing, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    work.rows[i].inputs = {work.places[i]};
    work.rows[i].num_inputs = 1;
  }
}

void DevicePush::update(int device, Work& work) {
  const gpus::NamedRange range(gpus_->accelerator(), "update");
  gpus::Kernels& kernels = gpus_->kernels(device);
  if (const Updater* updater = rule_.updater()) return call_updater(*updater, device, work);
  const Optimizer* optimizer = rule_.optimizer();
  if (optimizer == nullptr) {
    return kernels.sum(gpus_->stream(device), *work.updating, work.rows);
  }
  std::uint64_t most = optimizer->options().schedule ? table_.most_updates() : 0;
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    Entry& entry = *work.entries[i];
    if (entry.updates == 0) start_states(*optimizer, entry);
    for (std::size_t s = 0; s < entry.states.size(); ++s) {
      work.rows[i].states[s] = entry.states[s].bytes();
    }
    most = std::max(most, entry.updates + 1);
  }
  for (const Entry* entry : work.entries) {
    work.steps.push_back(optimizer->step(entry->key, entry->updates + 1, most));
  }
  kernels.update(gpus_->stream(device), *work.updating, work.rows, *optimizer, work.steps, nullptr);
  for (Entry* entry : work.entries) ++entry->updates;
}

void DevicePush::call_updater(const Updater& updater, int device, Work& work) {
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    Entry& entry = *work.entries[i];
    run_updater(group_, entry.key, [&] {
      updater(entry.key, {work.places[i], entry.shape(), entry.dtype(), gpu(device)},
              entry.replica);
    });
  }
}

}  // namespace tutti
