// SPDX-License-Identifier: Apache-2.0
// A wait in a collective call lets the application's own MPI messages move.
#include <doctest/doctest.h>
#include <mpi.h>
#include <vector>

#include <tutti/tutti.hpp>

#include "support/mpi_test.hpp"

namespace {
constexpr int kTag = 7;
constexpr int kCount = 4 << 20;  // bytes: far above what MPI sends without the receiver's help
}  // namespace

TEST_CASE("a large MPI_Send completes while its receiver waits in a push") {
  auto kv = tutti::KVStore::create("dist", test::settings());
  kv.init(3, tutti::Tensor::zeros({5}));
  const bool sends = test::rank() % 2 == 0;
  const int partner = sends ? test::rank() + 1 : test::rank() - 1;
  std::vector<char> message(kCount, sends ? 'x' : '-');

  // The sender comes to the push only after its message has gone; the receiver is in it by then.
  MPI_Request receiving = MPI_REQUEST_NULL;
  if (sends) {
    MPI_Send(message.data(), kCount, MPI_CHAR, partner, kTag, MPI_COMM_WORLD);
  } else {
    MPI_Irecv(message.data(), kCount, MPI_CHAR, partner, kTag, MPI_COMM_WORLD, &receiving);
  }
  kv.push(3, tutti::Tensor::ones({5}));
  MPI_Wait(&receiving, MPI_STATUS_IGNORE);

  CHECK(test::agree(kv.view(3).values<float>()[4] == static_cast<float>(test::size())));
  CHECK(test::agree(message.front() == 'x' && message.back() == 'x'));
}
