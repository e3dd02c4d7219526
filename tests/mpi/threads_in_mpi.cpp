// SPDX-License-Identifier: Apache-2.0
// One thread at a time is in MPI, unless that allows more, and none is when MPI_Finalize begins.
// The profiling interface counts: each call of this program's MPI stays in it for a moment, and the
// job ends with 9 where two threads meet.
//
//   threads_in_mpi exits      rank 0 has a push under way that nobody else makes, and exits
//   threads_in_mpi both       all ranks have one, and exit
//   threads_in_mpi finalizes  the same as exits, and the program calls MPI_Finalize itself; the
//                             others learn of it
//   threads_in_mpi waits      on one node: a thread waits for a push while another one calls MPI
//   ... multiple              with MPI_THREAD_MULTIPLE
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "tutti/tutti.hpp"

namespace {

constexpr int kOverlap = 9;
constexpr auto kMoment = std::chrono::microseconds(30);

bool allows_several = false;  // written before there are threads
bool finalizes_itself = false;
std::atomic<int> inside{0};
std::atomic<bool> is_finalized{false};
thread_local int depth = 0;  // MPI_Finalize calls what the library does there

[[noreturn]] void end_by_overlap(const char* call, const char* other) {
  std::fprintf(stderr, "threads_in_mpi: %s while another thread is in %s\n", call, other);
  _exit(kOverlap);
}

/// From now on there are the calls alone that MPI_Finalize makes.
void require_alone() {
  is_finalized = true;
  if (inside.load() > 0) end_by_overlap("MPI_Finalize", "MPI");
}

/// One call of MPI.
class Inside {
 public:
  explicit Inside(const char* call) {
    if (depth++ > 0) {
      require_alone();
      return;
    }
    if (is_finalized) end_by_overlap(call, "MPI_Finalize");
    if (inside.fetch_add(1) > 0 && !allows_several) end_by_overlap(call, "MPI");
    std::this_thread::sleep_for(kMoment);
  }
  ~Inside() {
    if (--depth > 0) return;
    inside.fetch_sub(1);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

}  // namespace

extern "C" {

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  const Inside call("MPI_Test");
  return PMPI_Test(request, done, status);
}
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
  const Inside call("MPI_Iprobe");
  return PMPI_Iprobe(source, tag, comm, found, status);
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Inside call("MPI_Isend");
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Inside call("MPI_Irecv");
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
int MPI_Cancel(MPI_Request* request) {
  const Inside call("MPI_Cancel");
  return PMPI_Cancel(request);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  const Inside call("MPI_Ibarrier");
  return PMPI_Ibarrier(comm, request);
}
/// Where the program calls it, the library learns of it by what it calls.
int MPI_Finalize() {
  if (!finalizes_itself) require_alone();
  ++depth;
  return PMPI_Finalize();
}

}  // extern "C"

namespace {

using tutti::KVStore;
using tutti::Tensor;

/// A push that rank 0 does not make any more.
void require_end_of_rank_0(KVStore& kv) {
  try {
    kv.push_async(1, Tensor::ones({1000})).wait();
    std::fputs("threads_in_mpi: expected an error, got none\n", stderr);
  } catch (const tutti::Error& error) {
    const std::string text = error.what();
    if (text.find("rank 0") != text.npos && text.find("ended MPI before") != text.npos) return;
    std::fprintf(stderr, "threads_in_mpi: expected that rank 0 ended MPI, got: %s\n", error.what());
  }
  _exit(kOverlap);
}

/// This thread made the store and calls MPI; another one waits, for pushes that come late on one
/// rank, and may carry them out.
void wait_beside_calls(KVStore& kv) {
  constexpr int kPushes = 20;
  for (int i = 0; i < kPushes; ++i) {
    if (kv.rank() == i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const tutti::Pending push = kv.push_async(0, Tensor::ones({1000}));
    std::thread waits([&] { push.wait(); });
    while (!push.ready()) {
      int found = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    }
    waits.join();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  finalizes_itself = mode == "finalizes" || argc > 2;
  if (argc > 2) {
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    allows_several = level == MPI_THREAD_MULTIPLE;
  }
  KVStore kv = KVStore::create("dist");
  kv.init({0, 1}, {Tensor::zeros({1000}), Tensor::zeros({1000})});
  if (mode == "waits") {
    wait_beside_calls(kv);
  } else if (mode == "finalizes" && kv.rank() != 0) {
    require_end_of_rank_0(kv);
  } else if (mode == "both" || kv.rank() == 0) {
    static_cast<void>(kv.push_async(0, Tensor::ones({1000})));
    if (mode != "both") {  // the helper is in its round
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  if (finalizes_itself) MPI_Finalize();
  std::exit(0);  // no destructor runs
}
