// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/datatypes.hpp"

namespace tutti::preload {

std::optional<ReduceOp> reduce_op(MPI_Op op, const Item& item) noexcept {
  if (op == MPI_SUM && item.sums) return ReduceOp::sum;
  if (op == MPI_PROD && item.multiplies) return ReduceOp::prod;
  if (op == MPI_MIN && item.compares) return ReduceOp::min;
  if (op == MPI_MAX && item.compares) return ReduceOp::max;
  return std::nullopt;
}

Datatypes::Datatypes() {
  add_integers();
  add_numbers();
  add_bytes();
}

/// Datatypes that this MPI does not have are null. One that is another name of an earlier one, or
/// whose size is not what the row says, is left out: MPI carries it out.
void Datatypes::add(MPI_Datatype type, const Item& item) {
  if (type == MPI_DATATYPE_NULL || find(type) != nullptr) return;
  int bytes = 0;
  MPI_Aint least = 0;
  MPI_Aint extent = 0;
  if (PMPI_Type_size(type, &bytes) != MPI_SUCCESS || bytes <= 0) return;
  if (PMPI_Type_get_extent(type, &least, &extent) != MPI_SUCCESS) return;
  if (least != 0 || extent != bytes) return;
  if (item.bytes != 0 && item.bytes != static_cast<std::size_t>(bytes)) return;
  std::size_t place = place_of(type);
  while (rows_[place % kRows].item.bytes != 0) ++place;
  rows_[place % kRows] = {type, item};
  rows_[place % kRows].item.bytes = static_cast<std::size_t>(bytes);
}

/// Sums and products wrap, so that numbers without a sign have those of numbers with one.
void Datatypes::add_integers() {
  const Item small{1, DType::int8, true, true, true};
  for (const MPI_Datatype type : {MPI_SIGNED_CHAR, MPI_INT8_T, MPI_INTEGER1}) add(type, small);
  const Item small_unsigned{1, DType::uint8, true, true, true};
  for (const MPI_Datatype type : {MPI_UNSIGNED_CHAR, MPI_UINT8_T}) add(type, small_unsigned);

  const Item middle{4, DType::int32, true, true, true};
  const Item large{8, DType::int64, true, true, true};
  for (const MPI_Datatype type :
       {MPI_INT, MPI_INT32_T, MPI_INTEGER, MPI_INTEGER4, MPI_LONG, MPI_LONG_LONG_INT, MPI_LONG_LONG,
        MPI_INT64_T, MPI_INTEGER8, MPI_AINT, MPI_OFFSET, MPI_COUNT}) {
    add(type, middle);
    add(type, large);
  }
  const Item middle_unsigned{4, DType::int32, true, true, false};
  const Item large_unsigned{8, DType::int64, true, true, false};
  for (const MPI_Datatype type :
       {MPI_UNSIGNED, MPI_UINT32_T, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT64_T}) {
    add(type, middle_unsigned);
    add(type, large_unsigned);
  }
}

/// A complex number is two real ones, to a sum.
void Datatypes::add_numbers() {
  const Item single{4, DType::float32, true, true, true};
  const Item twice{8, DType::float64, true, true, true};
  for (const MPI_Datatype type :
       {MPI_FLOAT, MPI_REAL, MPI_REAL4, MPI_DOUBLE, MPI_DOUBLE_PRECISION, MPI_REAL8}) {
    add(type, single);
    add(type, twice);
  }
  const Item complex_single{8, DType::float32, true, false, false};
  const Item complex_twice{16, DType::float64, true, false, false};
  for (const MPI_Datatype type :
       {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8,
        MPI_COMPLEX16, MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX}) {
    add(type, complex_single);
    add(type, complex_twice);
  }
}

/// Datatypes that the engine moves, and does not reduce.
void Datatypes::add_bytes() {
  for (const MPI_Datatype type :
       {MPI_CHAR, MPI_BYTE, MPI_PACKED, MPI_SHORT, MPI_UNSIGNED_SHORT, MPI_WCHAR, MPI_INT16_T,
        MPI_UINT16_T, MPI_C_BOOL, MPI_CXX_BOOL, MPI_LONG_DOUBLE, MPI_C_LONG_DOUBLE_COMPLEX,
        MPI_CHARACTER, MPI_LOGICAL, MPI_INTEGER2, MPI_REAL16, MPI_COMPLEX32}) {
    add(type, {});
  }
}

}  // namespace tutti::preload
