// SPDX-License-Identifier: Apache-2.0
// The calls of the store for row-sparse keys.
#include <algorithm>
#include <cstring>

#include "runtime/base/digest.hpp"
#include "runtime/base/throw.hpp"
#include "runtime/store/core/replica.hpp"
#include "runtime/store/core/tallies.hpp"
#include "runtime/store/entering.hpp"
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

/// The rows of the ids, which are ascending and distinct.
void copy_rows(const Entry& entry, std::span<const std::int64_t> ids, RowSparse& to) {
  const Shape shape = with_rows(entry.shape(), ids.size());
  if (to.ids.count() != ids.size() || to.ids.shape().dimensions().size() != 1) {
    to.ids = Tensor::empty({static_cast<std::int64_t>(ids.size())}, DType::int64);
  }
  if (!(to.rows.shape() == shape) || to.rows.dtype() != entry.dtype()) {
    to.rows = Tensor::empty(shape, entry.dtype());
  }
  std::ranges::copy(ids, to.ids.values<std::int64_t>().begin());
  const std::size_t bytes = RowFormat(entry).bytes();
  std::byte* row = to.rows.bytes();
  for (const std::int64_t id : ids) {
    std::memcpy(row, entry.replica.bytes() + static_cast<std::size_t>(id) * bytes, bytes);
    row += bytes;
  }
}

/// One output of a pull.
struct Request {
  const Entry* entry;
  RowSparse* target;
  std::vector<std::int64_t> ids;
};

/// All requests, checked: nothing is written if one is wrong.
std::vector<Request> requests_of(const KeyTable& table, const Keys& keys,
                                 const RowSparseOutputs& outputs, const Values& row_ids) {
  resolve(keys, outputs);  // throws where numbers do not fit
  const auto targets = outputs.flat();
  require_fit(row_ids, targets.size());
  std::vector<Request> requests;
  for (std::size_t i = 0; i < keys.list().size(); ++i) {
    const Key& key = keys.list()[i];
    const Entry& entry = table.at(key);
    if (!entry.is_row_sparse()) {
      throw_invalid_argument(to_string(key, entry.shape(), entry.dtype()) + " is dense; pull it");
    }
    const std::size_t each = keys.is_single() ? targets.size() : 1;
    const std::size_t count = outputs.is_nested() ? outputs.groups()[i] : each;
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t place = requests.size();
      const ConstTensorView& ids = row_ids.flat()[row_ids.flat().size() == 1 ? 0 : place];
      require_usable(key, ids);
      requests.push_back({&entry, &targets[place].target(), read_ids(entry, ids)});
    }
  }
  return requests;
}

}  // namespace

void KVStore::Impl::init_rows(const Key& key, const Shape& shape, DType dtype) {
  const Entering entering(*this, Entering::Kind::change, "init_row_sparse");
  std::vector<Entry> created;
  validate("init_row_sparse", [&] {
    table_.require_new(key);
    Replica table = new_replica(*group, Storage::row_sparse, shape, dtype);
    created.push_back({.key = key,
                       .order = table_.size(),
                       .replica = std::move(table.tensor),
                       .pages = std::move(table.pages)});
  });
  Entry* entry = &created.front();
  announce(collectives::Verb::init, call_to_string("init_row_sparse", {&entry, 1}),
           digest_of({&entry, 1}));
  table_.insert(std::move(created.front()));
}

void KVStore::Impl::push_rows(const Keys& keys, const RowSparseValues& values) {
  const Entering entering(*this, Entering::Kind::collective, "push");
  validate("push", [&] { sparse_push_.prepare(keys, values); });
  sparse_push_.announce();
  validate("push", [&] { sparse_push_.stage(); });
  sparse_push_.run();
}

void KVStore::Impl::pull_rows(const Keys& keys, const RowSparseOutputs& outputs,
                              const Values& row_ids) {
  const Entering entering(*this, Entering::Kind::local, "row_sparse_pull");
  try {
    std::uint64_t bytes = 0;
    for (auto& [entry, target, ids] : requests_of(table_, keys, outputs, row_ids)) {
      sort_by_digits(ids, std::identity());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      copy_rows(*entry, ids, *target);
      bytes += ids.size() * RowFormat(*entry).bytes();
    }
    const auto key_itself = [](const Key& key) -> const Key& { return key; };
    auto& meter = engine().meter();
    meter.count_as(tally_of(meter, "row_sparse_pull", keys.list(), key_itself), bytes);
  } catch (const Error& error) {
    throw Error(error.code(), name_of_call("row_sparse_pull") + error.what());
  }
}

}  // namespace tutti
