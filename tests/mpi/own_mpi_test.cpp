// SPDX-License-Identifier: Apache-2.0
// A program that leaves MPI to the library, with mpirun or without. That MPI is ended as well is
// seen in the status: mpirun fails a job whose process ends without it.
#include <doctest/doctest.h>
#include <mpi.h>

#include "tutti/tutti.hpp"

namespace {

bool is_mpi_up() {
  int up = 0;
  MPI_Initialized(&up);
  return up != 0;
}

void check_push(tutti::KVStore& kv) {
  kv.init(3, tutti::Tensor::zeros({2, 3}));
  kv.push(3, tutti::Tensor::full({2, 3}, 1 + kv.rank()));
  const int ranks = kv.num_workers();
  CHECK(kv.view(3).values<float>()[5] == static_cast<float>(ranks * (ranks + 1) / 2));
}

}  // namespace

TEST_CASE("local and device never touch MPI") {
  for (const char* type : {"local", "device"}) {
    tutti::KVStore kv = tutti::KVStore::create(type);
    check_push(kv);
    CHECK(!is_mpi_up());
  }
  tutti::Communicator::self().barrier();
  CHECK(!is_mpi_up());
}

TEST_CASE("dist initialises MPI if the program has not, once for several stores") {
  tutti::KVStore kv = tutti::KVStore::create("dist");
  CHECK(is_mpi_up());
  check_push(kv);
  tutti::KVStore second = tutti::KVStore::create("dist");
  check_push(second);
  second.barrier();
}

// The last one. Where ranks waited for each other twice, the others would not end.
TEST_CASE("a rank may end MPI itself while the others leave that to the library") {
  int rank = 0;
  {
    tutti::KVStore kv = tutti::KVStore::create("dist");
    check_push(kv);
    rank = kv.rank();
  }
  if (rank == 0) CHECK(MPI_Finalize() == MPI_SUCCESS);
}
