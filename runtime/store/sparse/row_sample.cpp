// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/row_sample.hpp"

#include <algorithm>

#include "runtime/store/verify/sample.hpp"

namespace tutti {

namespace {

/// The size of a row in the replica or in a state; 0 for a table without rows.
std::size_t bytes_of_row(const Entry& entry, std::size_t tensor) {
  const auto rows_total = static_cast<std::size_t>(entry.shape().dimensions().front());
  return rows_total == 0 ? 0 : tensor_of(entry, tensor).size_bytes() / rows_total;
}

}  // namespace

void RowSample::expect(const Entry& entry, std::size_t rows) {
  if (mode_ == Verify::off || !entry.is_on_gpu()) return;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < num_tensors(entry); ++i) bytes += bytes_of_row(entry, i);
  const std::size_t most = (rows + step() - 1) / step();
  on_gpus_.expect(entry.replica.device().index, most * bytes);
}

void RowSample::look_at(Entry& entry, std::span<const FoundRow> rows) {
  if (mode_ == Verify::off || rows.empty()) return;
  entries_.push_back(&entry);
  std::int64_t last = -1;
  for (std::size_t i = pushes_ % std::min(step(), rows.size()); i < rows.size(); i += step()) {
    if (rows[i].id != last) add(entry, static_cast<std::size_t>(rows[i].id));
    last = rows[i].id;
  }
}

void RowSample::add(const Entry& entry, std::size_t row) {
  for (std::size_t i = 0; i < num_tensors(entry); ++i) {
    const std::size_t bytes = bytes_of_row(entry, i);
    const std::byte* const begin = tensor_of(entry, i).bytes() + row * bytes;
    if (entry.is_on_gpu()) {
      on_gpus_.add(entry.replica.device().index, begin, bytes);
    } else {
      digest_.add({reinterpret_cast<const char*>(begin), bytes});
    }
  }
}

std::uint32_t RowSample::digest() const { return entries_.empty() ? 0 : folded(digest_.value()); }

void RowSample::clear() {
  ++pushes_;
  digest_ = {};
  entries_.clear();
  on_gpus_.clear();
}

}  // namespace tutti
