// SPDX-License-Identifier: Apache-2.0
// A push of rows: see push_protocol.hpp. Every rank's rows come to every rank, which merges and
// applies them.
//
//   agree    one small allgather: the ranks agree on keys and rule, and learn how many rows each
//            has of each key
//   sum      one allgather of all rows
//   update   merge by id; sum along the tree over ranks; update row by row, on a GPU all at once
//
//   counts of a rank   int64 number of distinct ids, per key, in the keys' order
//   rows of a rank     per key: int64 ids, ascending, each once | padding | the rows | padding,
//                      where padding is to kAlignment
//
// Where each of P ranks pushes R rows, a rank receives P * R rows and writes at most as many to its
// table.
#pragma once

#include <optional>
#include <vector>

#include "runtime/job/group.hpp"
#include "runtime/store/core/host_copies.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/push_protocol.hpp"
#include "runtime/store/core/resolve.hpp"
#include "runtime/store/core/updates.hpp"
#include "runtime/store/sparse/device_rows.hpp"
#include "runtime/store/sparse/row_sample.hpp"
#include "runtime/store/sparse/rows.hpp"

namespace tutti {

class SparsePush {
 public:
  SparsePush(Group& group, KeyTable& table, const UpdateRule& rule)
      : group_(group),
        table_(table),
        rule_(rule),
        announcement_(rule, none_),
        readable_(group),
        device_rows_(group, rule),
        sample_(group, group.topology().size > 1 ? group.settings().verify : Verify::off) {}

  /// Looks up, checks and sorts the rows that this rank pushes; rows on GPUs are copied to the
  /// host. Errors  invalid_argument: unknown or dense keys, values that do not fit, a rule that
  /// cannot update rows. out_of_memory.
  void take(const Keys& keys, const RowSparseValues& values);

  /// Agrees on the push. Rows that differed when the last push changed them are healed first.
  /// Errors: divergence.
  void agree();
  /// Sums rows that this rank has several times, and makes room, also on GPUs. Errors:
  /// out_of_memory.
  void prepare();
  void sum();
  /// Updates the rows. An exception of an updater fails the group, and so does an error of a GPU.
  void update();

  /// Called when replicas were compared whole, or replaced: the samples of earlier pushes are void.
  void forget_sample() { sample_.clear(); }
  /// Chunks of replicas healed so far.
  [[nodiscard]] std::uint64_t healed() const { return healed_; }
  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
  void leak_until_exit();

 private:
  static constexpr std::size_t kAlignment = 64;

  /// One distinct key of the push.
  struct Item {
    Entry* entry;
    std::vector<FoundRow> found;  ///< this rank's rows, sorted
  };
  /// The offsets of one key's ids and rows in a rank's bytes.
  struct Offsets {
    std::size_t ids;
    std::size_t rows;
  };

  [[nodiscard]] RowSparseView readable(const RowSparseView& value);
  void pack();
  void start_states(const Optimizer& optimizer);
  void make_room_on_gpus();
  std::size_t lay_out(int rank);
  void update_key(std::size_t item);
  void heal();
  [[nodiscard]] std::size_t count_of(int rank, std::size_t item) const;
  [[nodiscard]] const Offsets& offsets_of(int rank, std::size_t item) const;

  Group& group_;
  KeyTable& table_;
  const UpdateRule& rule_;
  const GradientCompression none_;  ///< rows are not compressed
  PushAnnouncement announcement_;
  std::vector<Item> items_;
  std::vector<Entry*> entries_;       ///< items_[i].entry
  std::vector<std::int64_t> own_;     ///< this rank's counts
  std::vector<std::int64_t> counts_;  ///< all ranks' counts, rank by rank
  std::vector<Offsets> offsets_;      ///< the offsets of their ids and rows, in the same order
  std::vector<std::size_t> bounds_;   ///< offset of each rank's bytes in all_, and of their end
  std::optional<Tensor> mine_;        ///< this rank's rows; in the arena, like all_
  std::optional<Tensor> all_;
  std::vector<FoundRow> merged_;
  ReadableValues readable_;
  DeviceRows device_rows_;
  std::uint64_t most_updates_ = 0;
  RowSample sample_;
  std::uint64_t healed_ = 0;
};

}  // namespace tutti
