// SPDX-License-Identifier: Apache-2.0
// Finds the folders of the MPI whose launcher has started this process. Several MPIs with the same
// name may be installed: libmpi.so.40 is Open MPI 4 as well as 5.
#pragma once

#include <filesystem>
#include <vector>

#include "tutti/mpi_abi.hpp"

namespace tutti::mpi {

/// Returns the folders to search, the most likely first: those of the libraries that the launcher
/// itself has loaded, and of its program. Empty if no ancestor of this process is a launcher of
/// that MPI, or if it sees other files: the ranks of a container may be started from outside.
std::vector<std::filesystem::path> folders_of_launcher(MpiAbi abi);

}  // namespace tutti::mpi
