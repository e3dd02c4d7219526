// SPDX-License-Identifier: Apache-2.0
// A program that leaves MPI to the library, with mpirun or without. That MPI is ended as well is
// seen in the status: mpirun fails a job whose process ends without it.
#include <array>
#include <doctest/doctest.h>
#include <mpi.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "tutti/launch.hpp"
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

namespace {

/// The number that MPI gives to the next communicator that is made: the least one that is free.
int next_communicator() {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_SELF, &copy);
#if MPI_VERSION >= 5
  const int number = MPI_Comm_toint(copy);
#else
  const int number = MPI_Comm_c2f(copy);
#endif
  MPI_Comm_free(&copy);
  return number;
}

}  // namespace

TEST_CASE("stores that come after each other take one communicator of MPI, with their groups") {
  constexpr int kStores = 20;
  {
    tutti::KVStore kv = tutti::KVStore::create("dist");
    check_push(kv);
  }
  const int before = next_communicator();
  for (int i = 0; i < kStores; ++i) {
    const auto world = tutti::Communicator::world();
    tutti::KVStore kv = tutti::KVStore::create(i % 2 == 0 ? world : world.split(0, world.rank()));
    check_push(kv);
  }
  CHECK(next_communicator() == before);
  tutti::KVStore first = tutti::KVStore::create("dist");
  tutti::KVStore second = tutti::KVStore::create("dist");  // while the first has its own
  check_push(second);
  check_push(first);
}

namespace {

/// Runs the test below in a program that this rank starts, with this environment. Its exit code.
int run_child(char** environment) {
  std::array<char*, 4> arguments{};
  std::array<std::string, 3> words{"own_mpi_test", "--test-case=(child)*", "--no-skip"};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  pid_t child = 0;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environment) != 0) {
    return -1;
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("(child) a program that a rank starts makes no dist store, and ends" * doctest::skip()) {
  std::string text;
  try {
    tutti::KVStore::create("dist");
  } catch (const tutti::Error& error) {
    text = error.what();
    CHECK(error.code() == tutti::ErrorCode::invalid_argument);
  }
  CHECK(text.find("was started by a rank (pid " + std::to_string(getppid()) + ")") != text.npos);
  CHECK(text.find("\"local\"") != text.npos);
  CHECK(!is_mpi_up());
  tutti::KVStore kv = tutti::KVStore::create("local");
  check_push(kv);
}

TEST_CASE("a program that a rank starts is refused before MPI, whose place it would take") {
  if (!tutti::find_launch()) return;  // alone, it takes nobody's
  tutti::KVStore kv = tutti::KVStore::create("dist");
  CHECK(run_child(environ) == 0);
  check_push(kv);
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
