// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/device_rows.hpp"

#include <algorithm>
#include <utility>

#include "collectives/job/leak.hpp"
#include "runtime/store/core/room.hpp"
#include "runtime/store/core/together.hpp"
#include "runtime/store/core/user_updater.hpp"

namespace tutti {

namespace {

// Alignment of each key's sums, because kernels load 16 bytes.
constexpr std::size_t kSumsAlignment = 64;

TensorView first_bytes(Tensor& memory, std::size_t bytes) {
  return {memory.bytes(), {static_cast<std::int64_t>(bytes)}, DType::uint8, memory.device()};
}

}  // namespace

void DeviceRows::clear() {
  for (auto& [device, work] : work_) {
    work.items.clear();
    work.taken = 0;
    work.bytes = 0;
    work.rows.clear();
    work.steps.clear();
  }
}

void DeviceRows::expect(Entry& entry, std::size_t rows) {
  work_[entry.replica.device().index].items.push_back({&entry, rows});
}

void DeviceRows::prepare() {
  for (auto& [device, work] : work_) {
    if (work.items.empty()) continue;
    gpus_ = gpus::require_gpus("push", gpu(device));
    gpus_->require_stream(device);
    make_room(device, work);
    if (rule_.updater() == nullptr) make_launch_room(device, work);
  }
}

void DeviceRows::make_room(int device, GpuRows& work) {
  std::size_t bytes = 0;
  for (const Item& item : work.items) {
    bytes += aligned(item.most_rows * RowFormat(*item.entry).bytes(), kSumsAlignment);
  }
  room_for(bytes, work.on_host, cpu());
  room_for(bytes, work.on_gpu, gpu(device));
}

/// Makes room by a launch of rows that are not pushed: as many as there may be. The rows are known
/// when all ranks have sent theirs, and then a lack of memory could no longer be refused.
void DeviceRows::make_launch_room(int device, GpuRows& work) {
  const Optimizer* optimizer = rule_.optimizer();
  std::vector<gpus::TensorRow> rows;
  std::size_t num_rows = 0;
  std::size_t elements = 0;
  for (const Item& item : work.items) {
    num_rows += item.most_rows;
    elements += item.most_rows * RowFormat(*item.entry).count;
  }
  const bool is_for_updates = optimizer != nullptr;
  const bool fits = num_rows <= work.room.rows && elements <= work.room.elements &&
                    is_for_updates == work.room.is_for_updates;
  if (fits) return;
  for (const Item& item : work.items) {
    const std::size_t count = RowFormat(*item.entry).count;
    rows.insert(rows.end(), item.most_rows, row_of(*item.entry, 0, count, work.on_gpu->bytes()));
  }
  gpus::Kernels& kernels = gpus_->kernels(device);
  if (work.table == nullptr) work.table = kernels.make_table();
  work.room = {};  // if there is no memory, less is left than before
  kernels.prepare(gpus_->stream(device), *work.table, rows, optimizer);
  work.room = {num_rows, elements, is_for_updates};
}

/// The row of `count` elements of the table, from `first` on. States have the type of the table:
/// 16-bit tables are only assigned.
gpus::TensorRow DeviceRows::row_of(Entry& entry, std::size_t first, std::size_t count,
                                   const std::byte* sum) {
  const std::size_t offset = first * size_of(entry.dtype());
  gpus::TensorRow row{.inputs = {sum},
                      .output = entry.replica.bytes() + offset,
                      .count = count,
                      .dtype = entry.dtype()};
  for (std::size_t i = 0; i < entry.states.size(); ++i) {
    row.states[i] = entry.states[i].bytes() + offset;
  }
  return row;
}

void DeviceRows::take(Entry& entry, std::span<const FoundRow> found, std::uint64_t most_updates) {
  GpuRows& work = work_.at(entry.replica.device().index);
  Item& item = work.items[work.taken++];
  item.begin = work.bytes;
  const RowFormat format(entry);
  const Optimizer* optimizer = rule_.optimizer();
  RowSum sum(format, group_.topology().size);
  std::int64_t next = -1;  // the id that would follow the last one in the table
  std::size_t place = work.bytes;
  for_each_id(found, [&](std::span<const FoundRow> rows) {
    const std::int64_t id = rows.front().id;
    sum.of_ranks(rows, work.on_host->bytes() + place);
    if (rule_.updater() != nullptr) {
      item.ids.push_back(id);
    } else if (id == next) {
      work.rows.back().count += format.count;
    } else {
      work.rows.push_back(row_of(entry, static_cast<std::size_t>(id) * format.count, format.count,
                                 work.on_gpu->bytes() + place));
    }
    next = id + 1;
    place += format.bytes();
  });
  work.bytes = aligned(place, kSumsAlignment);
  if (optimizer == nullptr) return;
  work.steps.resize(work.rows.size(), optimizer->step(entry.key, entry.updates + 1, most_updates));
}

void DeviceRows::run() {
  for (auto& [device, work] : work_) {
    if (work.items.empty()) continue;
    fail_together(group_.engine(), [&, &work = work] { upload(work); });
    if (rule_.updater() != nullptr) {
      call_updater(device, work);
    } else {
      fail_together(group_.engine(), [&, device = device, &work = work] { launch(device, work); });
    }
  }
}

void DeviceRows::upload(GpuRows& work) {
  if (work.bytes == 0) return;
  const gpus::NamedRange range(gpus_->accelerator(), "copy of rows");
  group_.copy(first_bytes(*work.on_gpu, work.bytes), first_bytes(*work.on_host, work.bytes));
}

void DeviceRows::launch(int device, GpuRows& work) {
  if (work.rows.empty()) return;
  const gpus::NamedRange range(gpus_->accelerator(), "update of rows");
  gpus::Kernels& kernels = gpus_->kernels(device);
  const gpus::Stream stream = gpus_->stream(device);
  if (const Optimizer* optimizer = rule_.optimizer()) {
    kernels.update(stream, *work.table, work.rows, *optimizer, work.steps);
  } else {
    kernels.sum(stream, *work.table, work.rows);
  }
}

/// Calls the updater, with the ids on the host, and rows and table on the GPU.
void DeviceRows::call_updater(int device, GpuRows& work) {
  for (const Item& item : work.items) {
    Entry& entry = *item.entry;
    const std::size_t count = item.ids.size();
    const ConstTensorView ids(item.ids.data(), {static_cast<std::int64_t>(count)}, DType::int64);
    const ConstTensorView rows(work.on_gpu->bytes() + item.begin, with_rows(entry.shape(), count),
                               entry.dtype(), gpu(device));
    run_updater(group_, entry.key,
                [&] { rule_.row_updater(entry.key, row_sparse(ids, rows), entry.replica); });
  }
}

void DeviceRows::leak_until_exit() {
  collectives::leak_until_exit(std::make_shared<decltype(work_)>(std::move(work_)));
}

}  // namespace tutti
