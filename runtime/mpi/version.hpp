// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tutti::mpi {

/// The MPI library that is loaded, one line. May be called before MPI_Init.
std::string version();

}  // namespace tutti::mpi
