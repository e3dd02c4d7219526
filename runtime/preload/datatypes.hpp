// SPDX-License-Identifier: Apache-2.0
// MPI's predefined datatypes and operations, as the engine knows them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mpi.h>
#include <optional>

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

namespace tutti::preload {

/// An item of a predefined datatype whose bytes have no gaps.
struct Item {
  std::size_t bytes = 0;
  DType element = DType::uint8;  ///< of which it has several if it is a complex number
  bool sums = false;             ///< the engine's sum is MPI_SUM
  bool multiplies = false;       ///< and its product is MPI_PROD
  bool compares = false;         ///< and so are MPI_MIN and MPI_MAX
};

/// The engine's operation for MPI's on such items; none where MPI carries it out.
std::optional<ReduceOp> reduce_op(MPI_Op op, const Item& item) noexcept;

/// Finds an item by its datatype. The table is made when MPI runs: only then is it known which
/// datatypes of Fortran there are.
class Datatypes {
 public:
  Datatypes();
  /// Null for derived datatypes, pairs, and what this MPI does not have.
  [[nodiscard]] const Item* find(MPI_Datatype type) const noexcept {
    for (std::size_t place = place_of(type);; ++place) {
      const Row& row = rows_[place % kRows];
      if (row.item.bytes == 0) return nullptr;
      if (row.type == type) return &row.item;
    }
  }

 private:
  struct Row {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    Item item;
  };
  static constexpr std::size_t kRows = 256;  // four times as many as there are

  static std::size_t place_of(MPI_Datatype type) noexcept {
    // A handle is a pointer or a number, by the kind of MPI.
    const std::uint64_t number = std::hash<MPI_Datatype>()(type);
    return static_cast<std::size_t>((number * 0x9E3779B97F4A7C15U) >> 56);
  }
  void add(MPI_Datatype type, const Item& item);
  void add_integers();
  void add_numbers();
  void add_bytes();

  std::array<Row, kRows> rows_;
};

}  // namespace tutti::preload
