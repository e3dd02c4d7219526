// SPDX-License-Identifier: Apache-2.0
// The plan of a pull, or of the outputs of a pushpull: the keys, and the tensors that get their
// values.
//
// Training pulls the same list in every step, into the same memory. The plan of the last pull is
// kept, and the next one compares lists instead of looking its keys up. No call of the store takes
// a key away, so the plan is good until another list comes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/kvstore.hpp"

#include "collectives/engine/statistics_collector.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// One distinct key and all outputs that get its value.
struct PullItem {
  const Entry* entry;
  std::vector<TensorView> outputs;
};

class PullPlan {
 public:
  explicit PullPlan(const KeyTable& table) : table_(table) {}

  /// Looks the keys up. With `skip_sparse`, row-sparse keys are left out, and are in skipped().
  /// Errors: invalid_argument for an unknown key, an output whose shape is not its key's, or whose
  /// dtype is not without Cast::yes; those of resolve().
  void take(const Keys& keys, const Outputs& outputs, Cast cast, bool skip_sparse);

  [[nodiscard]] std::span<const PullItem> items() const { return items_; }
  [[nodiscard]] std::span<const Entry* const> skipped() const { return skipped_; }
  /// The bytes of all outputs.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// A number that differs from plan to plan: as long as it is the same, so are the items.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// The totals of pulls of this list. `statistics` are always the same.
  [[nodiscard]] collectives::CallTotals& totals(collectives::StatisticsCollector& statistics);

 private:
  void begin_anew();
  [[nodiscard]] bool is_known(const Keys& keys, const Outputs& outputs) const;

  const KeyTable& table_;
  std::vector<PullItem> items_;
  std::vector<const Entry*> skipped_;
  std::uint64_t bytes_ = 0;
  std::uint64_t number_ = 0;
  collectives::CallTotals* totals_ = nullptr;  ///< null until they are looked up

  // The last lists, as they were given. Without keys there is no plan.
  std::vector<Key> keys_;
  std::vector<TensorView> outputs_;
  std::vector<std::size_t> groups_;
  bool is_single_ = false;
  Cast cast_ = Cast::no;
  bool skips_sparse_ = false;
};

}  // namespace tutti
