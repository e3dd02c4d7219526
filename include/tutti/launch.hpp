// SPDX-License-Identifier: Apache-2.0
// Which launcher has started this process, and whether MPI agrees with it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tutti/export.h"

namespace tutti {

/// The launcher that started this process, as the environment describes it.
struct TUTTI_API Launch {
  std::string launcher;  ///< "mpirun of Open MPI"
  std::string evidence;  ///< the variables that say so: "OMPI_COMM_WORLD_SIZE=2"
  int size = 0;          ///< processes that it has started; 0: it does not say
  int rank = -1;         ///< number of this one; -1: it does not say
  std::string mpi;       ///< whose programs it starts: "openmpi", "mpich", "none", or empty: any
};

/// Looks up an environment variable: its value, or null if it is not set.
using Variable = std::function<const char*(const char* name)>;

/// The launcher, or nothing where none is known to have started this process. Where one launcher
/// has started another, the inner one counts: the one that says the fewest processes. A batch
/// script of Slurm's is no launch, whatever SLURM_NTASKS is; a step of srun's is. RANK, WORLD_SIZE,
/// MASTER_ADDR and MASTER_PORT, as torchrun sets them, are a launch without an MPI, unless an MPI's
/// launcher has started several processes. Local; reads variables.
TUTTI_API std::optional<Launch> find_launch();
TUTTI_API std::optional<Launch> find_launch(const Variable& variable);

/// An explanation if MPI sees a job of one rank where the launcher has started several: what
/// happened, and what to do. Else empty. The cause is a program of one MPI that another's launcher
/// has started: all of its ranks would believe to be alone. `mpi` is the name of the MPI that the
/// program uses.
TUTTI_API std::string launch_mismatch(const std::optional<Launch>& launch, int world_size,
                                      const std::string& mpi);

}  // namespace tutti
