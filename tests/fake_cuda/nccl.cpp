// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2 for ranks with fake GPUs: processes that meet in shared memory. A call may return
// before its work is in the stream, as non-blocking communicators do, and another call before that
// is an error; a rank that is not there keeps the others' streams waiting until they abort.
//
//   FAKE_NCCL_VERSION   what ncclGetVersion gives
//   FAKE_NCCL_MOST      communicators of a process; more end it
//   FAKE_NCCL_FAIL=1    collectives of this process never end, and the communicator says that
//                       another rank is gone; 2: so it says, as where a connection closes, of a
//                       rank that does not come within kLateAfter
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <nccl.h>
#include <random>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/fake_cuda/nccl_sums.hpp"

using fake_nccl::add;
using fake_nccl::size_of;

namespace {

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why.c_str());
  std::abort();
}

constexpr int kMostRanks = 16;
constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
constexpr auto kPause = std::chrono::microseconds(20);
constexpr unsigned kOneInLate = 3;
constexpr auto kLateAfter = std::chrono::milliseconds(2);

enum class Collective : int { none, allreduce, reduce_scatter, allgather };

/// What a rank says of its next collective: all ranks of a node must say the same.
struct Statement {
  Collective kind = Collective::none;
  ncclDataType_t type = ncclInt8;
  std::size_t count = 0;
  friend bool operator==(const Statement&, const Statement&) = default;
};

/// What the ranks of a communicator share.
struct Shared {
  std::atomic<int> joined;
  std::atomic<int> finalized;
  std::atomic<std::uint64_t> arrived;
  std::array<Statement, kMostRanks> statements;
  std::array<std::array<std::byte, kChunkBytes>, kMostRanks> chunks;
};

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::atomic<int> num_communicators{0};
std::atomic<int> num_collectives{0};
std::atomic<int> num_groups{0};

// A group of calls is one thread's.
thread_local int group_depth = 0;
thread_local std::set<ncclComm_t> grouped;

}  // namespace

/// One rank's end.
struct ncclComm {
 public:
  ncclComm(std::string name, int size, int rank)
      : name_(std::move(name)), size_(size), rank_(rank), random_(static_cast<unsigned>(rank) + 1) {
    const int file = shm_open(name_.c_str(), O_RDWR, 0600);
    if (file < 0) give_up("no shared memory " + name_ + ": " + std::strerror(errno));
    void* const mapped = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) give_up("no address for shared memory");
    shared_ = static_cast<Shared*>(mapped);
  }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
  ~ncclComm() { munmap(shared_, sizeof(Shared)); }

  void join() {
    in_background([this] {
      if (shared_->joined.fetch_add(1) + 1 == size_) shm_unlink(name_.c_str());
      while (shared_->joined < size_ && !is_aborted_) std::this_thread::sleep_for(kPause);
    });
  }

  /// A collective: in a group, it waits for the group's end.
  ncclResult_t call(const Statement& statement, const void* from, void* to, cudaStream_t stream) {
    if (state_ != ncclSuccess) {
      state_ = ncclInvalidUsage;
      return ncclInvalidUsage;
    }
    ++num_collectives;
    group_.push_back({stream, new Enqueued{this, statement, static_cast<const std::byte*>(from),
                                           static_cast<std::byte*>(to)}});
    ++num_in_stream_;
    if (group_depth == 0) return end_group();
    grouped.insert(this);
    return ncclSuccess;
  }

  ncclResult_t end_group() {
    ++num_groups;
    std::vector<Grouped> group = std::exchange(group_, {});
    if (random_() % kOneInLate != 0) return put(group);
    int device = 0;
    cudaGetDevice(&device);
    in_background([group = std::move(group), device] {
      cudaSetDevice(device);
      std::this_thread::sleep_for(kPause * 5);
      put(group);
    });
    return ncclInProgress;
  }

  [[nodiscard]] ncclResult_t state() const { return state_; }

  /// Its work has run, or NCCL would wait for it.
  void finalize() {
    if (num_in_stream_ > 0) give_up("a communicator is finalized whose work has not ended");
    in_background([this] {
      ++shared_->finalized;
      while (shared_->finalized < size_ && !is_aborted_) std::this_thread::sleep_for(kPause);
      is_finalized_ = true;
    });
  }
  /// NCCL would wait for the other ranks.
  void require_finalized() const {
    if (!is_finalized_ || state_ != ncclSuccess) {
      give_up("a communicator is destroyed that was not finalized");
    }
  }

  /// Waits for the stream, which may be waiting for something else.
  void abort() {
    is_aborted_ = true;
    while (num_in_stream_ > 0 || num_background_ > 0) std::this_thread::sleep_for(kPause);
  }

 private:
  struct Enqueued {
    ncclComm* comm;
    Statement statement;
    const std::byte* from;
    std::byte* to;
  };

  struct Grouped {
    cudaStream_t stream;
    Enqueued* work;
  };

  template <class Body>
  void in_background(Body body) {
    state_ = ncclInProgress;
    ++num_background_;
    std::thread([this, body] {
      body();
      ncclResult_t expected = ncclInProgress;
      state_.compare_exchange_strong(expected, ncclSuccess);
      --num_background_;
    }).detach();
  }

  static ncclResult_t put(const std::vector<Grouped>& group) {
    const auto run = [](void* argument) {
      const std::unique_ptr<Enqueued> own(static_cast<Enqueued*>(argument));
      own->comm->run(*own);
      --own->comm->num_in_stream_;
    };
    for (const auto& [stream, work] : group) {
      if (cudaLaunchHostFunc(stream, run, work) != cudaSuccess) return ncclUnhandledCudaError;
    }
    return ncclSuccess;
  }

  void run(const Enqueued& work) {
    if (number_from("FAKE_NCCL_FAIL", 0) == 1) {
      state_ = ncclRemoteError;
      while (!is_aborted_) std::this_thread::sleep_for(kPause);
    }
    shared_->statements[static_cast<std::size_t>(rank_)] = work.statement;
    if (!meet()) return;
    for (int other = 0; other < size_; ++other) {
      if (shared_->statements[static_cast<std::size_t>(other)] != work.statement) {
        give_up("ranks " + std::to_string(rank_) + " and " + std::to_string(other) +
                " of a node are in different collectives");
      }
    }
    const std::size_t width = size_of(work.statement.type);
    const std::size_t bytes = work.statement.count * width;
    switch (work.statement.kind) {
      case Collective::allreduce:
        sum(work.statement.type, work.from, work.to, bytes);
        break;
      case Collective::reduce_scatter:
        for (int shard = 0; shard < size_; ++shard) {
          const std::size_t begin = static_cast<std::size_t>(shard) * bytes;
          sum(work.statement.type, work.from + begin, shard == rank_ ? work.to : nullptr, bytes);
        }
        break;
      case Collective::allgather:
        gather(work.from, work.to, bytes);
        break;
      case Collective::none:
        break;
    }
  }

  [[nodiscard]] std::byte* chunk(int rank) {
    return shared_->chunks[static_cast<std::size_t>(rank)].data();
  }

  /// `to`: null for a sum that another rank keeps.
  void sum(ncclDataType_t type, const std::byte* from, std::byte* to, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes; done += kChunkBytes) {
      const std::size_t size = std::min(kChunkBytes, bytes - done);
      std::memcpy(chunk(rank_), from + done, size);
      if (!meet()) return;
      if (to != nullptr) {
        std::memcpy(to + done, chunk(0), size);
        for (int other = 1; other < size_; ++other) {
          add(type, to + done, chunk(other), size / size_of(type));
        }
      }
      if (!meet()) return;
    }
  }

  void gather(const std::byte* from, std::byte* to, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes; done += kChunkBytes) {
      const std::size_t size = std::min(kChunkBytes, bytes - done);
      std::memcpy(chunk(rank_), from + done, size);
      if (!meet()) return;
      for (int other = 0; other < size_; ++other) {
        std::memcpy(to + static_cast<std::size_t>(other) * bytes + done, chunk(other), size);
      }
      if (!meet()) return;
    }
  }

  /// Waits for all ranks; false after an abort here.
  bool meet() {
    const std::uint64_t all = ++num_meetings_ * static_cast<std::uint64_t>(size_);
    shared_->arrived.fetch_add(1);
    const bool closes = number_from("FAKE_NCCL_FAIL", 0) == 2;
    const auto begin = std::chrono::steady_clock::now();
    while (shared_->arrived < all && !is_aborted_) {
      std::this_thread::yield();
      if (closes && std::chrono::steady_clock::now() - begin > kLateAfter) state_ = ncclRemoteError;
    }
    return !is_aborted_;
  }

  std::string name_;
  int size_;
  int rank_;
  Shared* shared_ = nullptr;
  std::mt19937 random_;
  std::atomic<ncclResult_t> state_{ncclSuccess};
  std::atomic<bool> is_aborted_{false};
  std::atomic<bool> is_finalized_{false};
  std::atomic<int> num_in_stream_{0};
  std::atomic<int> num_background_{0};
  std::uint64_t num_meetings_ = 0;
  std::vector<Grouped> group_;  ///< calls since its start
};

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = number_from("FAKE_NCCL_VERSION", NCCL_VERSION(2, 28, 9));
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "see the number";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/fake-nccl-%d-%x", getpid(),
                std::random_device()());
  const int file = shm_open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0) return ncclSystemError;
  const bool is_made = ftruncate(file, sizeof(Shared)) == 0;
  close(file);
  return is_made ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (size > kMostRanks || config->blocking != 0) return ncclInvalidArgument;
  if (++num_communicators > number_from("FAKE_NCCL_MOST", 1000)) {
    give_up("too many communicators that nobody has destroyed");
  }
  *comm = new ncclComm(id.internal, size, rank);
  (*comm)->join();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (comm == nullptr) return ncclInvalidArgument;
  *state = comm->state();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->abort();
  delete comm;
  --num_communicators;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->finalize();
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  comm->require_finalized();
  return ncclCommAbort(comm);
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t ended = ncclSuccess;
  for (const ncclComm_t comm : std::exchange(grouped, {})) {
    const ncclResult_t result = comm->end_group();
    if (result != ncclSuccess) ended = result;
  }
  return ended;
}

// NCCL's own parameters. NOLINTBEGIN(readability-function-size)
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t stream) {
  return comm->call({Collective::allreduce, type, count}, from, to, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t stream) {
  return comm->call({Collective::reduce_scatter, type, count}, from, to, stream);
}

// NOLINTEND(readability-function-size)

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return comm->call({Collective::allgather, type, count}, from, to, stream);
}

FakeNcclCounts fake_nccl_counts() { return {num_collectives, num_groups}; }

}  // extern "C"
