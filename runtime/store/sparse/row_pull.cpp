// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/row_pull.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/throw.hpp"
#include "runtime/store/core/host_copies.hpp"
#include "runtime/store/core/resolve.hpp"
#include "runtime/store/sparse/rows.hpp"
#include "runtime/store/sparse/sort.hpp"

namespace tutti {

namespace {

void require_fit(const Values& row_ids, std::size_t outputs) {
  const std::size_t lists = row_ids.flat().size();
  if (lists == 1 || lists == outputs) return;
  throw_invalid_argument(std::to_string(outputs) + " outputs but " + std::to_string(lists) +
                         " lists of row ids; give one for all, or one for each");
}

/// One output of a pull.
struct PulledRows {
  const Entry* entry;
  RowSparse* target;
  std::vector<std::int64_t> ids;
};

/// All outputs, after checking them: nothing is written if one is wrong.
std::vector<PulledRows> outputs_of(Group& group, const KeyTable& table, const Keys& keys,
                                   const RowSparseOutputs& outputs, const Values& row_ids) {
  resolve(keys, outputs);  // throws if numbers of keys and outputs do not fit together
  const auto targets = outputs.flat();
  require_fit(row_ids, targets.size());
  ReadableValues readable(group);
  std::vector<PulledRows> pulled;
  for (std::size_t i = 0; i < keys.list().size(); ++i) {
    const Key& key = keys.list()[i];
    const Entry& entry = table.at(key);
    if (!entry.is_row_sparse()) {
      throw_invalid_argument(to_string(key, entry.shape(), entry.dtype()) + " is dense; pull it");
    }
    const std::size_t each = keys.is_single() ? targets.size() : 1;
    const std::size_t count = outputs.is_nested() ? outputs.groups()[i] : each;
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t place = pulled.size();
      const ConstTensorView& ids = row_ids.flat()[row_ids.flat().size() == 1 ? 0 : place];
      require_usable(key, ids);
      pulled.push_back({&entry, &targets[place].target(), read_ids(entry, readable.take(ids))});
    }
  }
  return pulled;
}

bool is_one_memory(Device one, Device other) {
  const bool on_cpu = one.kind == DeviceKind::cpu && other.kind == DeviceKind::cpu;
  return on_cpu || one == other;
}

/// Makes a tensor of another size anew, on its device.
void fit(Tensor& tensor, const Shape& shape, DType dtype) {
  if (tensor.bytes() != nullptr && tensor.shape() == shape && tensor.dtype() == dtype) return;
  tensor = Tensor::empty(shape, dtype, tensor.device());
}

}  // namespace

std::uint64_t RowPull::run(const KeyTable& table, const Keys& keys, const RowSparseOutputs& outputs,
                           const Values& row_ids) {
  std::uint64_t bytes = 0;
  for (auto& [entry, target, ids] : outputs_of(group_, table, keys, outputs, row_ids)) {
    sort_by_digits(ids, std::identity());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    copy_rows(*entry, ids, *target);
    bytes += ids.size() * RowFormat(*entry).bytes();
  }
  return bytes;
}

/// Copies the rows of the ids, which are ascending and distinct.
void RowPull::copy_rows(const Entry& entry, std::span<const std::int64_t> ids, RowSparse& to) {
  const Shape shape = with_rows(entry.shape(), ids.size());
  const Shape ids_shape{static_cast<std::int64_t>(ids.size())};
  fit(to.ids, ids_shape, DType::int64);
  fit(to.rows, shape, entry.dtype());
  group_.copy(to.ids, ConstTensorView(ids.data(), ids_shape, DType::int64));
  const Device home = entry.replica.device();
  if (is_one_memory(home, to.rows.device())) return gather(entry, ids, to.rows.bytes());
  Tensor at_home = Tensor::empty(shape, entry.dtype(), home);
  gather(entry, ids, at_home.bytes());
  group_.copy(to.rows, at_home);
}

/// Copies the rows to memory on the table's device.
void RowPull::gather(const Entry& entry, std::span<const std::int64_t> ids, std::byte* rows) {
  const RowFormat format(entry);
  const std::size_t bytes = format.bytes();
  copies_.clear();
  for (const std::int64_t id : ids) {
    const std::byte* from = entry.replica.bytes() + static_cast<std::size_t>(id) * bytes;
    if (entry.is_on_gpu()) {
      copies_.add(entry.replica.device().index, from, rows, format.count, format.dtype);
    } else {
      std::memcpy(rows, from, bytes);
    }
    rows += bytes;
  }
  copies_.run();
}

}  // namespace tutti
