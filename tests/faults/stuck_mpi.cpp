// SPDX-License-Identifier: Apache-2.0
// An MPI of which calls do not return from some time on: the profiling interface, by which a
// program may have functions of MPI's names of its own.
#include "tests/faults/stuck_mpi.hpp"

#include <atomic>
#include <mpi.h>
#include <unistd.h>

namespace test {

namespace {

std::atomic<bool>& is_stuck() {
  static std::atomic<bool> stuck{false};
  return stuck;
}

}  // namespace

void let_mpi_hang() { is_stuck() = true; }

void wait_if_stuck() {
  while (is_stuck()) pause();
}

}  // namespace test

extern "C" int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  test::wait_if_stuck();
  return PMPI_Test(request, done, status);
}
