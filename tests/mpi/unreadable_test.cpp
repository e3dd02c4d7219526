// SPDX-License-Identifier: Apache-2.0
// Jobs in which the kernel forbids ranks to read each other: forbid_reading.py starts all of them,
// or one. Sums are right, without the path, and every rank knows why.
#include <cerrno>
#include <fstream>
#include <mpi.h>
#include <string>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/support/messages.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"
#include "tests/support/scratch_folder.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ReduceOp;
using tutti::Settings;
using tutti::Tensor;

namespace {

/// True if this process may not even read itself in this way.
bool is_forbidden() {
  int value = 1;
  int seen = 0;
  const iovec to{.iov_base = &seen, .iov_len = sizeof seen};
  const iovec from{.iov_base = &value, .iov_len = sizeof value};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) < 0 && errno == EPERM;
}

Settings taking(const std::string& tuning, const std::string& algorithms = "") {
  Settings settings = test::settings();
  settings.tuning = tuning;
  settings.algorithms = algorithms;
  return settings;
}

bool sums_are_right(Communicator& world, int calls) {
  bool is_right = true;
  for (const std::int64_t count : {100, 5'000, 200'003}) {
    const Tensor sum = test::reduced_random(ReduceOp::sum, {count}, DType::float32, test::size());
    const Tensor input = test::random_tensor({count}, DType::float32, test::rank());
    for (int call = 0; call < calls; ++call) {
      Tensor output = Tensor::zeros({count});
      world.allreduce(input, output);
      is_right = is_right && test::same_bits(output, sum);
      Tensor in_place = input.clone();
      world.allreduce(in_place);
      is_right = is_right && test::same_bits(in_place, sum);
    }
  }
  return test::agree(is_right);
}

}  // namespace

TEST_CASE("a rank that may not read says what forbids it, and the others that it may not") {
  REQUIRE(test::largest(is_forbidden() ? 1.0 : 0.0) == 1.0);
  const Communicator world = Communicator::world(test::settings());
  const std::string why = world.why_unreadable();
  CAPTURE(why);
  if (is_forbidden()) {
    CHECK(why.starts_with("cannot read the memory of rank "));
    CHECK(why.find("process_vm_readv: Operation not permitted; ") != std::string::npos);
  } else {
    CHECK(why.ends_with(" cannot read the memory of others of its node"));
  }
}

TEST_CASE("sums are right, and no path that is learnt reads a peer") {
  for (const char* tuning : {"learn", "at-once", "static"}) {
    CAPTURE(tuning);
    Communicator world = Communicator::world(taking(tuning));
    CHECK(sums_are_right(world, 30));
    CHECK(test::agree(world.learnt_tuning().find("=fetched") == std::string::npos));
  }
  for (const char* algorithms : {"paths=in-turn", "inputs=fetched,results=fetched"}) {
    CAPTURE(algorithms);
    Communicator world = Communicator::world(taking("learn", algorithms));
    CHECK(sums_are_right(world, 10));
  }
}

TEST_CASE("rows of a tuning file that read a peer are left out, and sums are right") {
  const test::ScratchFolder folder;
  std::string name = (folder.path() / "tuning").string();
  name.resize(255);
  MPI_Bcast(name.data(), 255, MPI_CHAR, 0, MPI_COMM_WORLD);
  name.resize(name.find('\0'));
  if (test::rank() == 0) {
    std::ofstream(name) << "# tutti tuning 1\nranks=" << test::size()
                        << " kind=allreduce data=ordinary in-place=no consumed=no apart=yes "
                           "bytes=16384 inputs=fetched results=own slots=cached outputs=cached "
                           "margin=1.50\n";
  }
  MPI_Barrier(MPI_COMM_WORLD);
  Communicator world = Communicator::world(taking(name));
  CHECK(sums_are_right(world, 3));
}

TEST_CASE(
    "blocks and messages of ordinary memory go through slots where the kernel forbids to read") {
  Communicator world = Communicator::world(test::settings());
  bool right = true;
  for (const std::size_t count : {3, 1000, 8192, 8193, 100'003}) {
    for (int turn = 0; turn < 3; ++turn) {
      right = test::pairs_are_right(world, count, turn % 2 == 0) && right;
      right = test::blocks_are_right(world, count, turn % 2 == 0) && right;
    }
  }
  CHECK(test::agree(right));
}
