// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/pull_plan.hpp"

#include <algorithm>

#include "runtime/base/same_tensor.hpp"
#include "runtime/store/core/call_totals.hpp"
#include "runtime/store/core/resolve.hpp"

namespace tutti {

bool PullPlan::is_known(const Keys& keys, const Outputs& outputs) const {
  return !keys_.empty() && keys.is_single() == is_single_ &&
         std::ranges::equal(keys.list(), keys_) && std::ranges::equal(outputs.groups(), groups_) &&
         std::ranges::equal(outputs.flat(), outputs_, are_one);
}

void PullPlan::take(const Keys& keys, const Outputs& outputs, Cast cast, bool skip_sparse) {
  if (cast == cast_ && skip_sparse == skips_sparse_ && is_known(keys, outputs)) return;
  begin_anew();
  std::vector<PullItem> items;
  for (auto& [key, tensors] : resolve(keys, outputs)) {
    const Entry& entry = table_.at(key);
    if (skip_sparse && entry.is_row_sparse()) {
      skipped_.push_back(&entry);
      continue;
    }
    for (const TensorView& output : tensors) {
      require_shape(entry, output, "an output");
      if (cast == Cast::no) require_dtype(entry, output, "an output");
      bytes_ += output.size_bytes();
    }
    items.push_back({&entry, std::move(tensors)});
  }
  items_ = std::move(items);
  keys_.assign(keys.list().begin(), keys.list().end());
  for (const TensorView& output : outputs.flat()) outputs_.emplace_back(output);
  groups_.assign(outputs.groups().begin(), outputs.groups().end());
  is_single_ = keys.is_single();
  cast_ = cast;
  skips_sparse_ = skip_sparse;
}

collectives::CallTotals& PullPlan::totals(collectives::StatisticsCollector& statistics) {
  if (totals_ == nullptr) {
    totals_ = &totals_of(statistics, "pull", items_,
                         [](const PullItem& item) -> const Key& { return item.entry->key; });
  }
  return *totals_;
}

void PullPlan::begin_anew() {
  ++number_;
  totals_ = nullptr;
  bytes_ = 0;
  items_.clear();
  skipped_.clear();
  keys_.clear();
  outputs_.clear();
}

}  // namespace tutti
