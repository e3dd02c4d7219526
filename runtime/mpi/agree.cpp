// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/agree.hpp"

#include <cstdio>

#include "runtime/mpi/check.hpp"

namespace tutti::mpi {

void agree(MPI_Comm comm, const std::function<void()>& body) {
  struct Report {
    int code = 0;
    char text[1024] = {};
  } report;
  try {
    body();
  } catch (const Error& error) {
    report.code = static_cast<int>(error.code());
    std::snprintf(report.text, sizeof report.text, "%s", error.what());
  }
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int mine = report.text[0] != '\0' ? rank : size;
  int first = size;
  check(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  if (first == size) return;
  check(MPI_Bcast(&report, sizeof report, MPI_BYTE, first, comm), "MPI_Bcast");
  throw Error(static_cast<ErrorCode>(report.code),
              "rank " + std::to_string(first) + ": " + report.text, ErrorScope::agreed,
              /*reporter=*/rank == 0);
}

}  // namespace tutti::mpi
