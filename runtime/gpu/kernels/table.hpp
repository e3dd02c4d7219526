// SPDX-License-Identifier: Apache-2.0
// A LaunchTable: rows in the device's memory, sorted by their dtype and cut into tiles.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "runtime/gpu/kernels/rows.hpp"
#include "runtime/gpu/kernels/staging.hpp"

namespace tutti::gpus::kernels {

/// The use of rows, which decides with the rows themselves how they are cut.
struct Purpose {
  bool is_update = false;
  std::uint32_t num_states = 0;  ///< states of the optimizer itself
  std::uint32_t vectors_per_tile = kVectorsPerTile;
  bool is_packed = false;  ///< the output may begin at any byte

  /// The widest element of a row's tensors; the optimizer computes 16-bit weights in float32.
  [[nodiscard]] std::size_t widest_bytes(DType dtype) const {
    return is_update ? std::max(size_of(dtype), sizeof(float)) : size_of(dtype);
  }
  [[nodiscard]] bool has_exact(DType dtype) const { return is_update && size_of(dtype) == 2; }
  [[nodiscard]] std::size_t used_states(DType dtype) const {
    return is_update ? num_states + (has_exact(dtype) ? 1 : 0) : 0;
  }
};

/// The rows and tiles of one dtype.
struct DTypeTiles {
  std::uint32_t first_row = 0;
  std::uint32_t num_rows = 0;
  std::uint32_t first_tile = 0;
  std::uint32_t num_tiles = 0;
};

/// The parts of the rows that have changed since the last launch.
enum class Change { none, inputs, all };

/// The host's side of a table: cuts rows, and tells whether they are those of the last launch.
class CutRows {
 public:
  /// Cuts the rows. The result `inputs` says that their inputs' addresses alone have changed.
  Change cut(std::span<const TensorRow> rows, const Purpose& purpose);

  [[nodiscard]] const std::vector<DeviceRow>& rows() const { return rows_; }
  [[nodiscard]] const std::vector<Tile>& tiles() const { return tiles_; }
  /// The inputs of rows(), num_inputs_of_row() for each.
  [[nodiscard]] const std::vector<const std::byte*>& inputs() const { return inputs_; }
  [[nodiscard]] std::uint32_t num_inputs_of_row() const { return num_inputs_of_row_; }
  /// True if a row is summed along the tree.
  [[nodiscard]] bool has_tree() const { return has_tree_; }
  [[nodiscard]] const DTypeTiles& part(DType dtype) const {
    return parts_[static_cast<std::size_t>(dtype)];
  }
  /// For each of the given rows, its index in rows().
  [[nodiscard]] const std::vector<std::uint32_t>& places() const { return places_; }

 private:
  [[nodiscard]] bool differs(std::span<const TensorRow> rows, const Purpose& purpose) const;
  bool take_inputs(std::span<const TensorRow> rows);
  void add(const TensorRow& row, const Purpose& purpose);

  /// The parts of the rows that the last launch used, one after the other, without inputs.
  std::vector<std::uint64_t> words_;
  std::vector<const std::byte*> inputs_;
  std::uint32_t num_inputs_of_row_ = 1;  ///< the most inputs that a row has
  bool has_tree_ = false;
  std::vector<DeviceRow> rows_;
  std::vector<Tile> tiles_;
  std::vector<std::uint32_t> places_;
  std::array<DTypeTiles, 8> parts_{};
};

template <class Machine>
class Table final : public LaunchTable {
 public:
  explicit Table(Machine& machine)
      : staging(machine),
        steps(machine),
        norms(machine),
        partials(machine),
        machine_(machine),
        rows_(machine),
        tiles_(machine),
        inputs_(machine) {}

  /// Sends the parts of the rows that the device does not have.
  void set(Stream stream, std::span<const TensorRow> rows, const Purpose& purpose) {
    const Change change = cut_.cut(rows, purpose);
    are_rows_sent_ = are_rows_sent_ && change != Change::all;
    are_inputs_sent_ = are_inputs_sent_ && change == Change::none;
    const auto send = [&](DeviceMemory<Machine>& memory, const auto& values) {
      const std::size_t bytes = values.size() * sizeof(values[0]);
      staging.send(stream, memory.get(bytes), values.data(), bytes);
    };
    if (!are_rows_sent_) {
      send(rows_, cut_.rows());
      send(tiles_, cut_.tiles());
      are_rows_sent_ = true;  // not reached if sending throws
    }
    if (!are_inputs_sent_) send(inputs_, cut_.inputs());
    are_inputs_sent_ = true;
  }

  [[nodiscard]] const CutRows& cut() const { return cut_; }
  /// The rows of a dtype; its tiles count from 0.
  [[nodiscard]] TableView view(DType dtype) const {
    return {reinterpret_cast<const DeviceRow*>(rows_.memory()),
            reinterpret_cast<const Tile*>(tiles_.memory()) + cut_.part(dtype).first_tile,
            reinterpret_cast<const std::byte* const*>(inputs_.memory()), cut_.num_inputs_of_row()};
  }

  SentArray<Machine>& formulas(std::size_t pass) {
    while (formulas_.size() <= pass) {
      formulas_.push_back(std::make_unique<SentArray<Machine>>(machine_));
    }
    return *formulas_[pass];
  }

  Staging<Machine> staging;
  SentArray<Machine> steps;        ///< the step of each row
  DeviceMemory<Machine> norms;     ///< Norms::kMost for each row
  DeviceMemory<Machine> partials;  ///< each tile's part of a norm

 private:
  Machine& machine_;
  CutRows cut_;
  DeviceMemory<Machine> rows_;
  DeviceMemory<Machine> tiles_;
  DeviceMemory<Machine> inputs_;
  bool are_rows_sent_ = false;
  bool are_inputs_sent_ = false;
  std::vector<std::unique_ptr<SentArray<Machine>>> formulas_;
};

}  // namespace tutti::gpus::kernels
