// SPDX-License-Identifier: Apache-2.0
// The library beside the application's own MPI: a wait in a collective call lets its messages move,
// and threads make groups of its communicators.
#include <array>
#include <chrono>
#include <doctest/doctest.h>
#include <mpi.h>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tutti/mpi.hpp>
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

namespace {

/// When a rank's threads begin to make the first group and the second.
using Starts = std::array<std::chrono::milliseconds, 2>;

/// Makes both at once, a thread each. Which of them were made, and not refused.
std::array<bool, 2> make_two_groups(const Starts& starts) {
  tutti::Settings settings = test::settings();
  settings.timeout = std::chrono::seconds(8);
  std::array<MPI_Comm, 2> comms{};
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::array<bool, 2> is_made{};
  const auto make = [&](std::size_t which) {
    std::this_thread::sleep_for(starts[which]);
    try {
      const tutti::Communicator made = tutti::communicator_from(comms[which], settings);
      is_made[which] = true;
    } catch (const tutti::Error& error) {
      MESSAGE("refused: ", std::string(error.what()));
    }
  };
  std::thread beside(make, 1);
  make(0);
  beside.join();
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  return is_made;
}

}  // namespace

// Each thread's first group is the other's second: without a limit they would wait for ever.
TEST_CASE("threads that make groups in another order on other ranks do not hang") {
  using std::chrono::milliseconds;
  const bool is_first = test::rank() == 0;
  const Starts starts = is_first ? Starts{milliseconds(0), milliseconds(1)}
                                 : Starts{milliseconds(1), milliseconds(0)};
  const std::array<bool, 2> is_made = make_two_groups(starts);
  CHECK(test::same_on_all(std::as_bytes(std::span(is_made))));
}

// Open MPI gives numbers to new communicators in the order of their parents, also while a later one
// waits for a rank that has not begun it.
TEST_CASE("a group that waits for a late rank does not keep another from being made") {
  using std::chrono::milliseconds;
  const bool is_late = test::rank() != 0;
  const Starts starts = is_late ? Starts{milliseconds(400), milliseconds(900)}
                                : Starts{milliseconds(0), milliseconds(200)};
  CHECK(test::agree(make_two_groups(starts) == std::array{true, true}));
}
