// SPDX-License-Identifier: Apache-2.0
// For programs that use MPI beside the library. The only public header that shows <mpi.h>.
#pragma once

#include <mpi.h>
#include <string>

#include "tutti/communicator.hpp"
#include "tutti/dtype.hpp"
#include "tutti/export.h"
#include "tutti/mpi_abi.hpp"
#include "tutti/settings.hpp"

namespace tutti {

/// The kind of MPI that this program is compiled for. The functions below are inline and are
/// compiled with the program: one library may serve several MPIs and exports no type of <mpi.h>.
#if defined(MPI_ABI_VERSION) && MPI_ABI_VERSION > 0
constexpr MpiAbi kMpiAbi = MpiAbi::standard;
#elif defined(OMPI_MAJOR_VERSION)
constexpr MpiAbi kMpiAbi = MpiAbi::openmpi;
#elif defined(MPICH_VERSION) || defined(I_MPI_VERSION) || defined(MVAPICH_VERSION)
constexpr MpiAbi kMpiAbi = MpiAbi::mpich;
#else
#error "tutti/mpi.hpp knows the mpi.h of Open MPI, of MPICH and its kin, and MPI 5's, not this one"
#endif

/// A duplicate of MPI_COMM_WORLD that returns errors, for the program's own messages. MPI is
/// initialised if it was not, and finalised when the process exits. MPI_Finalize frees it.
/// Order   collective. Errors  communication; those of mpi_abi().
inline MPI_Comm duplicate_world() {
  MPI_Comm copy = MPI_COMM_NULL;
  duplicate_world_to_address(&copy, kMpiAbi);
  return copy;
}

/// The ranks of an intracommunicator of MPI, in its order. Their memory and messages are their own:
/// memory that another communicator has allocated is ordinary memory to this one. To share memory
/// between groups, make one Communicator and split() that. `comm` is duplicated, and may be freed.
/// MPI must be initialised.
/// Order   collective over `comm`.
/// Errors  invalid_argument: MPI_COMM_NULL, an intercommunicator, another MPI than the library uses
///         in this process, on this rank alone; those of Communicator::world(), on all.
inline Communicator communicator_from(MPI_Comm comm,
                                      const Settings& settings = Settings::from_environment()) {
  return communicator_from_address(&comm, kMpiAbi, settings);
}

/// MPI's names of element types and reductions. MPI can move 16-bit floating-point types (as
/// MPI_UINT16_T), but not reduce them.
/// MPI has no average: MPI_OP_NULL.
inline MPI_Datatype mpi_datatype(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
      return MPI_UINT16_T;
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int8:
      return MPI_INT8_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

inline MPI_Op mpi_operation(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::avg:
      return MPI_OP_NULL;
  }
  return MPI_OP_NULL;
}

}  // namespace tutti
