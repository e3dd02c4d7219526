// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/kernels/table.hpp"

namespace tutti::gpus::kernels {

namespace {

/// Elements of a row that are loaded at once: 16 bytes of its widest tensor.
std::size_t vector_elements(const TensorRow& row, const Purpose& purpose) {
  return kVectorBytes / purpose.widest_bytes(row.dtype);
}

/// True if output and states are aligned for vectors of so many elements.
bool is_aligned(const TensorRow& row, const Purpose& purpose) {
  const auto narrow = reinterpret_cast<std::uintptr_t>(row.output);
  std::uintptr_t wide = 0;
  for (std::size_t i = 0; i < purpose.used_states(row.dtype); ++i) {
    wide |= reinterpret_cast<std::uintptr_t>(row.states[i]);
  }
  const std::size_t vector = vector_elements(row, purpose) * size_of(row.dtype);
  return (purpose.is_packed || narrow % vector == 0) && wide % kVectorBytes == 0;
}

std::size_t num_words(std::size_t used_states) { return 3 + used_states; }

/// Calls take(word) num_words() times, for everything that a launch uses of a row but its inputs.
template <class Take>
void each_word(const TensorRow& row, std::size_t used_states, Take take) {
  take(row.count);
  take(static_cast<std::uint64_t>(row.dtype) << 32 | (row.in_tree ? 1u << 31 : 0u) |
       static_cast<std::uint32_t>(row.num_inputs));
  take(reinterpret_cast<std::uintptr_t>(row.output));
  for (std::size_t i = 0; i < used_states; ++i) {
    take(reinterpret_cast<std::uintptr_t>(row.states[i]));
  }
}

std::uint64_t word_of(const Purpose& purpose) {
  return std::uint64_t{purpose.num_states} << 2 | (purpose.is_packed ? 2 : 0) |
         (purpose.is_update ? 1 : 0);
}

}  // namespace

bool CutRows::differs(std::span<const TensorRow> rows, const Purpose& purpose) const {
  if (words_.size() < 2 || words_[0] != rows.size() || words_[1] != word_of(purpose)) return true;
  const std::uint64_t* word = words_.data() + 2;
  const std::uint64_t* const end = words_.data() + words_.size();
  std::uint64_t changed = 0;
  for (const TensorRow& row : rows) {
    const std::size_t used_states = purpose.used_states(row.dtype);
    if (static_cast<std::size_t>(end - word) < num_words(used_states)) return true;
    each_word(row, used_states, [&](std::uint64_t now) { changed |= *word++ ^ now; });
    if (changed != 0) return true;  // the words that follow may be another row's
  }
  return false;
}

/// Copies the addresses of all inputs. True if one has changed.
bool CutRows::take_inputs(std::span<const TensorRow> rows) {
  bool changed = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::byte** const own = inputs_.data() + std::size_t{places_[i]} * num_inputs_of_row_;
    for (int input = 0; input < rows[i].num_inputs; ++input) {
      changed |= own[input] != rows[i].inputs[input];
      own[input] = rows[i].inputs[input];
    }
  }
  return changed;
}

Change CutRows::cut(std::span<const TensorRow> rows, const Purpose& purpose) {
  if (!differs(rows, purpose)) return take_inputs(rows) ? Change::inputs : Change::none;
  words_ = {rows.size(), word_of(purpose)};
  for (const TensorRow& row : rows) {
    each_word(row, purpose.used_states(row.dtype),
              [&](std::uint64_t now) { words_.push_back(now); });
  }
  rows_.clear();
  tiles_.clear();
  places_.resize(rows.size());
  for (std::size_t dtype = 0; dtype < parts_.size(); ++dtype) {
    DTypeTiles& part = parts_[dtype];
    part.first_row = static_cast<std::uint32_t>(rows_.size());
    part.first_tile = static_cast<std::uint32_t>(tiles_.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (static_cast<std::size_t>(rows[i].dtype) != dtype) continue;
      places_[i] = static_cast<std::uint32_t>(rows_.size());
      add(rows[i], purpose);
    }
    part.num_rows = static_cast<std::uint32_t>(rows_.size()) - part.first_row;
    part.num_tiles = static_cast<std::uint32_t>(tiles_.size()) - part.first_tile;
  }
  int most = 1;
  has_tree_ = false;
  for (const TensorRow& row : rows) {
    most = std::max(most, row.num_inputs);
    has_tree_ = has_tree_ || row.in_tree;
  }
  num_inputs_of_row_ = static_cast<std::uint32_t>(most);
  inputs_.assign(rows.size() * num_inputs_of_row_, nullptr);
  take_inputs(rows);
  return Change::all;
}

void CutRows::add(const TensorRow& row, const Purpose& purpose) {
  DeviceRow cut{};
  std::copy_n(row.states.begin(), std::size(cut.states), cut.states);
  cut.output = row.output;
  cut.exact = purpose.has_exact(row.dtype) ? row.states[purpose.num_states] : row.output;
  cut.count = row.count;
  cut.first_tile = static_cast<std::uint32_t>(tiles_.size());
  cut.num_inputs = static_cast<std::uint8_t>(row.num_inputs);
  cut.in_tree = row.in_tree;
  cut.input_bytes = static_cast<std::uint8_t>(vector_elements(row, purpose) * size_of(row.dtype));
  cut.aligned = is_aligned(row, purpose);
  const std::uint32_t most = tile_count(purpose.widest_bytes(row.dtype), purpose.vectors_per_tile);
  const auto place = static_cast<std::uint32_t>(rows_.size());
  const std::uint64_t num_tiles = (row.count + most - 1) / most;
  for (std::uint32_t i = 0; i < num_tiles; ++i) tiles_.push_back({place, i});
  rows_.push_back(cut);
}

}  // namespace tutti::gpus::kernels
