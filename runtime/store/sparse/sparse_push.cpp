// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/sparse_push.hpp"

#include <algorithm>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/store/core/call_totals.hpp"
#include "runtime/store/core/room.hpp"
#include "runtime/store/core/together.hpp"
#include "runtime/store/sparse/row_update.hpp"
#include "runtime/store/sparse/sort.hpp"
#include "runtime/store/verify/comparison.hpp"

namespace tutti {

namespace {

using collectives::Segment;

void require_row_sparse(const Entry& entry) {
  if (entry.is_row_sparse()) return;
  throw Error(ErrorCode::invalid_argument,
              to_string(entry.key, entry.shape(), entry.dtype()) +
                  " is dense; rows are pushed to keys of init_row_sparse");
}

}  // namespace

RowSparseView SparsePush::readable(const RowSparseView& value) {
  return row_sparse(readable_.take(value.ids()), readable_.take(value.rows()));
}

void SparsePush::take(const Keys& keys, const RowSparseValues& values) {
  announcement_.take();
  readable_.clear();
  sample_.settle();
  items_.clear();
  entries_.clear();
  own_.clear();
  for (const auto& [key, rows] : resolve(keys, values)) {
    Item item{&table_.at(key), {}};
    require_row_sparse(*item.entry);
    require_rows_rule(rule_, *item.entry);
    for (const RowSparseView& value : rows) find_rows(*item.entry, readable(value), item.found);
    sort_by_digits(item.found, &FoundRow::id);
    items_.push_back(std::move(item));
  }
  std::ranges::sort(items_, [](const Item& left, const Item& right) {
    return before(*left.entry, *right.entry);
  });
  for (const Item& item : items_) {
    entries_.push_back(item.entry);
    own_.push_back(static_cast<std::int64_t>(count_ids(item.found)));
  }
}

void SparsePush::agree() {
  const int ranks = group_.topology().size;
  counts_.resize(static_cast<std::size_t>(ranks) * items_.size());
  const std::vector<Segment> segments = collectives::allgather_segments(
      ranks, reinterpret_cast<const std::byte*>(own_.data()),
      reinterpret_cast<std::byte*>(counts_.data()), items_.size(), DType::int64);
  collectives::Operation operation =
      announcement_.operation("push of rows", entries_, digest_of(entries_));
  operation.kind = collectives::Kind::allgather;
  operation.check = sample_.digest();
  operation.segments = segments;
  if (!group_.engine().run(operation)) {
    heal();
    operation.check = 0;
    group_.engine().run(operation);
  }
  sample_.clear();
}

/// Heals rows that differed. The last push may have made them equal again, where it replaced them.
void SparsePush::heal() {
  const std::uint64_t healed = Comparison(group_).run(sample_.entries(), rule_.optimizer()).healed;
  healed_ += healed;
  if (healed > 0 || group_.topology().rank != 0) return;
  group_.log().warn("rows differed between ranks before the last " +
                    call_to_string("push of rows", sample_.entries()) +
                    ", which has made them equal; what was pulled before may have been wrong");
}

std::size_t SparsePush::count_of(int rank, std::size_t item) const {
  return static_cast<std::size_t>(counts_[static_cast<std::size_t>(rank) * items_.size() + item]);
}

const SparsePush::Offsets& SparsePush::offsets_of(int rank, std::size_t item) const {
  return offsets_[static_cast<std::size_t>(rank) * items_.size() + item];
}

/// Lays out a rank's keys: appends the offsets of their ids and rows, and returns the bytes that
/// they take.
std::size_t SparsePush::lay_out(int rank) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const std::size_t count = count_of(rank, i);
    const std::size_t rows = aligned(end + count * sizeof(std::int64_t), kAlignment);
    offsets_.push_back({end, rows});
    end = aligned(rows + count * RowFormat(*entries_[i]).bytes(), kAlignment);
  }
  return end;
}

void SparsePush::pack() {
  const int self = group_.topology().rank;
  std::byte* mine = room_for(
      bounds_[static_cast<std::size_t>(self) + 1] - bounds_[static_cast<std::size_t>(self)], mine_,
      group_);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const RowFormat format(*entries_[i]);
    RowSum sum(format, 1);
    auto* ids = reinterpret_cast<std::int64_t*>(mine + offsets_of(self, i).ids);
    std::byte* to = mine + offsets_of(self, i).rows;
    for_each_id(items_[i].found, [&](std::span<const FoundRow> rows) {
      *ids++ = rows.front().id;
      sum.of_occurrences(rows, to);
      to += format.bytes();
    });
  }
}

void SparsePush::prepare() {
  offsets_.clear();
  bounds_ = {0};
  for (int rank = 0; rank < group_.topology().size; ++rank) {
    bounds_.push_back(bounds_.back() + lay_out(rank));
  }
  pack();
  readable_.clear();
  room_for(bounds_.back(), all_, group_);
  if (const Optimizer* optimizer = rule_.optimizer()) start_states(*optimizer);
  make_room_on_gpus();
}

void SparsePush::start_states(const Optimizer& optimizer) {
  most_updates_ = optimizer.options().schedule ? table_.most_updates() : 0;
  for (Entry* entry : entries_) {
    if (entry->updates == 0) tutti::start_states(group_, optimizer, *entry);
    most_updates_ = std::max(most_updates_, entry->updates + 1);
  }
}

/// Makes room for the rows of all ranks on GPUs, where each rank may have other rows.
void SparsePush::make_room_on_gpus() {
  device_rows_.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = *entries_[i];
    if (!entry.is_on_gpu()) continue;
    std::size_t rows = 0;
    for (int rank = 0; rank < group_.topology().size; ++rank) rows += count_of(rank, i);
    sample_.expect(entry, rows);
    const auto all = static_cast<std::size_t>(RowFormat(entry).rows_total);
    device_rows_.expect(entry, std::min(rows, all));
  }
  sample_.prepare();
  device_rows_.prepare();
}

void SparsePush::sum() {
  const auto self = static_cast<std::size_t>(group_.topology().rank);
  collectives::StatisticsCollector& statistics = group_.engine().statistics();
  statistics.count_as(totals_of(statistics, "push", entries_), bounds_[self + 1] - bounds_[self]);
  std::vector<Segment> segments;
  for (int rank = 0; rank < group_.topology().size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    segments.push_back({.input = mine_->bytes(),
                        .output = all_->bytes() + bounds_[index],
                        .count = bounds_[index + 1] - bounds_[index],
                        .dtype = DType::uint8,
                        .source = rank});
  }
  const auto describe = [&] { return call_to_string("push of rows", entries_); };
  group_.engine().run({.kind = collectives::Kind::allgather,
                       .digest = digest_of(entries_),
                       .segments = segments,
                       .describe = describe,
                       .first_key = entries_.empty() ? nullptr : &entries_[0]->key,
                       .keys = entries_.size(),
                       .verb = collectives::Verb::push});
}

void SparsePush::update_key(std::size_t item) {
  Entry& entry = *entries_[item];
  const std::size_t bytes = RowFormat(entry).bytes();
  merged_.clear();
  std::vector<std::size_t> bounds = {0};
  for (int rank = 0; rank < group_.topology().size; ++rank) {
    const std::byte* theirs = all_->bytes() + bounds_[static_cast<std::size_t>(rank)];
    const Offsets& offsets = offsets_of(rank, item);
    const auto* ids = reinterpret_cast<const std::int64_t*>(theirs + offsets.ids);
    for (std::size_t i = 0; i < count_of(rank, item); ++i) {
      merged_.push_back({ids[i], rank, theirs + offsets.rows + i * bytes});
    }
    bounds.push_back(merged_.size());
  }
  merge_by_id(merged_, std::move(bounds));
  sample_.look_at(entry, merged_);
  if (entry.is_on_gpu()) return device_rows_.take(entry, merged_, most_updates_);
  RowUpdate{group_, rule_, entry, most_updates_}.run(merged_);
}

/// Updates all keys. A lack of memory in the middle of it fails the group, because other ranks have
/// updated already.
void SparsePush::update() {
  fail_together(group_.engine(), [&] {
    for (std::size_t i = 0; i < items_.size(); ++i) update_key(i);
    sample_.copy();
  });
  device_rows_.run();
  if (rule_.optimizer() == nullptr) return;
  table_.count_updates(entries_);
}

void SparsePush::leak_until_exit() {
  device_rows_.leak_until_exit();
  sample_.leak_until_exit();
}

}  // namespace tutti
