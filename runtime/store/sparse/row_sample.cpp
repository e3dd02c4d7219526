// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/row_sample.hpp"

#include <algorithm>

#include "runtime/store/verify/sample.hpp"

namespace tutti {

void RowSample::look_at(Entry& entry, std::span<const FoundRow> rows) {
  if (mode_ == Verify::off || rows.empty()) return;
  entries_.push_back(&entry);
  const std::size_t step = mode_ == Verify::full ? 1 : kShare;
  std::int64_t last = -1;
  for (std::size_t i = pushes_ % std::min(step, rows.size()); i < rows.size(); i += step) {
    if (rows[i].id != last) add(entry, static_cast<std::size_t>(rows[i].id));
    last = rows[i].id;
  }
}

void RowSample::add(const Entry& entry, std::size_t row) {
  const auto rows_total = static_cast<std::size_t>(entry.shape().dimensions().front());
  for (std::size_t i = 0; i < num_tensors(entry); ++i) {
    const Tensor& tensor = tensor_of(entry, i);
    const std::size_t bytes = tensor.size_bytes() / rows_total;
    digest_.add({reinterpret_cast<const char*>(tensor.bytes()) + row * bytes, bytes});
  }
}

std::uint32_t RowSample::digest() const { return entries_.empty() ? 0 : folded(digest_.value()); }

void RowSample::clear() {
  ++pushes_;
  digest_ = {};
  entries_.clear();
}

}  // namespace tutti
