// SPDX-License-Identifier: Apache-2.0
// MPI beside the library without <mpi.h>: for programs and bindings. With it: tutti/mpi.hpp.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "tutti/communicator.hpp"
#include "tutti/export.h"
#include "tutti/settings.hpp"

namespace tutti {

/// The kinds of MPI, whose <mpi.h> have different types and numbers. One build of the library can
/// serve several: it has a plug-in for each, and loads the one that a job needs.
enum class MpiAbi {
  openmpi,   ///< Open MPI 4 and 5
  mpich,     ///< MPICH from 3.1 on, Intel MPI, MVAPICH, Cray MPICH
  standard,  ///< the ABI of MPI 5.0, whose library is libmpi_abi.so: MPICH from 5.0 on, Intel MPI
  none,      ///< no MPI: a job of one host, which torchrun or its like has started
};

/// The name of the kind, "openmpi", "mpich" or "standard", as in TUTTI_MPI, or
/// "none".
TUTTI_API const char* to_string(MpiAbi abi) noexcept;

/// The MPI of this process. Loads it if need be, chosen as for a "dist" store: the MPI that the
/// program has loaded, else TUTTI_MPI, else that of the launcher.
/// Errors  invalid_argument: there is no plug-in for it, or TUTTI_MPI is another; io: its library
///         cannot be loaded, with the reason.
TUTTI_API MpiAbi mpi_abi();

/// The MPI library that is loaded, such as "Open MPI v4.1.4" or "MPICH 4.0.2". May be called before
/// MPI_Init. Errors: those of mpi_abi().
TUTTI_API std::string mpi_version();
/// The MPI that the library, or the plug-in that it has loaded, was built with, in the words of
/// mpi_version().
TUTTI_API std::string mpi_of_build();

/// The part of the library that speaks to MPI: the file of the plug-in, or "linked" in a program
/// with the static library. Errors: those of mpi_abi().
TUTTI_API std::string mpi_plugin();

/// Messages between the ranks of MPI_COMM_WORLD by MPI alone, for programs without <mpi.h>, where
/// no Communicator can be made yet. A process alone needs no MPI for it. One thread at a time.
class TUTTI_API MpiMessages {
 public:
  /// Loads and initialises MPI if need be. Zero seconds: no deadline.
  /// Order   collective, and waits as MPI_Comm_dup does. Errors  communication; those of mpi_abi().
  explicit MpiMessages(std::chrono::duration<double> timeout);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The level of threads that MPI provides, 0 to 3 for MPI_THREAD_SINGLE to MPI_THREAD_MULTIPLE.
  [[nodiscard]] int thread_level() const;

  /// Messages from one rank to another arrive in their order. Up to 2 GiB, of equal size on both
  /// sides. Both calls wait for the other side. Errors: timeout, after which no more may be sent;
  /// communication.
  void send(int to, std::span<const std::byte> bytes) const;
  void receive(int from, std::span<std::byte> bytes) const;

 private:
  std::chrono::duration<double> timeout_;
  std::array<std::byte, 8> comm_{};  ///< a duplicate of MPI_COMM_WORLD; zeros without an MPI
  int rank_ = 0;
  int size_ = 1;
};

/// communicator_from() of tutti/mpi.hpp for an MPI_Comm at this address, of a program that was
/// compiled for `abi`. Order and errors: as there; and invalid_argument, on this rank alone, if
/// that is not the MPI of this process.
TUTTI_API Communicator communicator_from_address(
    const void* comm, MpiAbi abi, const Settings& settings = Settings::from_environment());

/// duplicate_world() of tutti/mpi.hpp into an MPI_Comm at this address. Order and errors: as above.
TUTTI_API void duplicate_world_to_address(void* comm, MpiAbi abi);

}  // namespace tutti
