// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/version.hpp"

#include <mpi.h>

namespace tutti::mpi {

std::string version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

}  // namespace tutti::mpi
