// SPDX-License-Identifier: Apache-2.0
// The last rank of a node is killed after its push has returned, and its GPU has no part in the sum
// yet. The others, which nobody else tells of it, name it in their next calls.
//
//   mpirun --enable-recovery -np 2 killed_worker [closes]      no launcher ends the job
//
// closes: NCCL says that a connection has closed, as it does where sockets join the GPUs.
// Rank 0 prints what its calls throw. Exit code of ranks that live: 0 if both name the rank.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tutti/gpu.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tutti.hpp"

#include "tests/fake_cuda/fake_cuda.hpp"

namespace {

using tutti::gpu;
using tutti::KVStore;
using tutti::Tensor;

constexpr std::int64_t kCount = 1000;

/// What a call throws; empty if nothing.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
    return {};
  } catch (const tutti::Error& error) {
    return error.what();
  }
}

int run(bool closes) {
  tutti::Communicator world = tutti::Communicator::world();
  const std::string host = "rank" + std::to_string(world.rank());  // NCCL wants a GPU for each
  setenv("NCCL_HOSTID", host.c_str(), 1);
  KVStore kv = KVStore::create(world);
  kv.init(0, Tensor::zeros({kCount}, tutti::DType::float32, gpu(0)));
  const Tensor value = Tensor::ones({kCount}, tutti::DType::float32, gpu(0));
  kv.push(0, value);
  tutti::synchronize(gpu(0));
  kv.barrier();
  const int victim = world.size() - 1;
  if (closes && world.rank() != victim) setenv("FAKE_NCCL_FAIL", "2", 1);
  if (world.rank() == victim) fake_cuda::hang(0);
  kv.push(0, value);  // returns early, on all ranks
  if (world.rank() == victim) std::raise(SIGKILL);
  const std::string waiting = error_of([] { tutti::synchronize(gpu(0)); });
  Tensor out = Tensor::zeros({kCount});
  const std::string next = error_of([&] { kv.push(0, value); });
  const std::string pull = error_of([&] { kv.pull(0, out); });
  if (world.rank() == 0) {
    std::printf("synchronize: %s\npush: %s\npull: %s\n", waiting.c_str(), next.c_str(),
                pull.c_str());
    std::fflush(stdout);
  }
  const std::string name = "rank " + std::to_string(victim);
  for (const std::string& text : {waiting, next, pull}) {
    if (text.find(name) == std::string::npos) return 1;
  }
  return 0;
}

}  // namespace

/// MPI itself cannot end without the rank.
int main(int argc, char** argv) { std::_Exit(run(argc > 1 && std::string(argv[1]) == "closes")); }
