// SPDX-License-Identifier: Apache-2.0
// The folders of the MPI whose launcher has started this process. Several may be
// installed, of one name: libmpi.so.40 is Open MPI 4 as well as 5.
#pragma once

#include <filesystem>
#include <vector>

#include "tutti/mpi_abi.hpp"

namespace tutti::mpi {

/// The folders to look into, the likeliest first: of the libraries that the launcher itself has
/// loaded, and beside its program. Empty if no process above this one is a launcher of that MPI, or
/// it sees other files: a container's ranks may be started from outside.
std::vector<std::filesystem::path> folders_of_launcher(MpiAbi abi);

}  // namespace tutti::mpi
