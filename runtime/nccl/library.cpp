// SPDX-License-Identifier: Apache-2.0
// NCCL's communicators. Each is non-blocking: a call may return before it is done, and is then
// polled. Only so can a rank whose peer has died give up: ncclCommAbort is allowed at any point.
#include "runtime/nccl/library.hpp"

#include <algorithm>
#include <cstring>
#include <cuda_runtime_api.h>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/error.hpp"

#include "runtime/cuda/check.hpp"
#include "runtime/nccl/table.hpp"

namespace tutti::nccl {

namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(gpus::NodeId));

// Most calls are done at once; joining takes seconds.
constexpr auto kQuick = std::chrono::microseconds(300);
constexpr auto kPause = std::chrono::microseconds(20);
constexpr const char* kAborted =
    "NCCL's communicator was aborted, since a sum of another group of these ranks has failed";

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return ncclFloat16;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::int8:
      return ncclInt8;
    case DType::uint8:
      return ncclUint8;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      break;
  }
  return ncclInt64;
}

bool is_error(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

std::string to_string(const Table& table, const char* call, ncclResult_t result) {
  const char* last = table.last_error(nullptr);  // NCCL has one last error for the process
  const bool says_more = last != nullptr && last[0] != '\0';
  return std::string(call) + ": " + table.error_string(result) +
         (says_more ? std::string(" (") + last + ")" : "");
}

}  // namespace

/// Communicators whose end this rank has begun. NCCL finalizes one with the other ranks, beside the
/// program; a finalized one is destroyed when the next one is joined, or else by the end of the
/// process.
class Parting {
 public:
  explicit Parting(std::shared_ptr<const Loaded> loaded) : loaded_(std::move(loaded)) {}

  void add(ncclComm_t comm, int device) {
    const ncclResult_t result = loaded_->table.finalize(comm);
    if (is_error(result)) return;
    const std::lock_guard lock(mutex_);
    parting_.push_back({comm, device});
  }

  void destroy_ended() {
    const std::lock_guard lock(mutex_);
    std::erase_if(parting_, [&](const One& one) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t result = loaded_->table.async_error(one.comm, &state);
      if (result == ncclSuccess && state == ncclInProgress) return false;
      const cuda::OnDevice here(one.device);
      if (result == ncclSuccess && state == ncclSuccess) {
        static_cast<void>(loaded_->table.destroy(one.comm));
      }
      return true;
    });
  }

 private:
  struct One {
    ncclComm_t comm;
    int device;
  };
  std::shared_ptr<const Loaded> loaded_;
  std::mutex mutex_;
  std::vector<One> parting_;
};

namespace {

/// Owns a communicator. Destroying one that works waits for the other ranks, which a destructor
/// must not: a communicator is aborted, or parts, or is left to the end of the process.
class Collectives final : public gpus::NodeCollectives {
 public:
  Collectives(std::shared_ptr<const Loaded> loaded, std::shared_ptr<Parting> parting,
              int local_rank)
      : loaded_(std::move(loaded)),
        parting_(std::move(parting)),
        local_rank_(static_cast<std::size_t>(local_rank)) {}
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  /// A communicator that has not joined yet is aborted: a thread of NCCL still writes to it.
  ~Collectives() override {
    if (!has_joined_) abort();
  }

  void join(const ncclUniqueId& id, int local_size, int device, const gpus::Patience& patience) {
    device_ = device;
    const cuda::OnDevice here(device_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const ncclResult_t result =
        table().init_rank(&made, local_size, id, static_cast<int>(local_rank_), &config);
    {
      const std::lock_guard lock(in_use_);
      comm_ = made;
    }
    if (result != ncclInProgress) require(result, "ncclCommInitRankConfig");
    settle("ncclCommInitRankConfig", patience);
    has_joined_ = true;
  }

  /// All sums are one group, since NCCL starts a thread for each group and each call outside one.
  void allreduce(gpus::Stream stream, std::span<const gpus::Sum> sums,
                 const gpus::Patience& patience) override {
    call("ncclAllReduce", patience, [&](ncclComm_t comm) {
      ncclResult_t result = table().group_start();
      if (result != ncclSuccess) return result;
      for (const gpus::Sum& sum : sums) {
        result = table().allreduce(sum.from, sum.to, sum.count, type_of(sum.dtype), ncclSum, comm,
                                   static_cast<cudaStream_t>(stream));
        if (is_error(result)) break;
      }
      const ncclResult_t ended = table().group_end();  // ends a group with an error, too
      return is_error(result) ? result : ended;
    });
  }

  void reduce_scatter(gpus::Stream stream, std::byte* data, std::size_t count, DType dtype,
                      const gpus::Patience& patience) override {
    call("ncclReduceScatter", patience, [&](ncclComm_t comm) {
      return table().reduce_scatter(data, data + own_shard(count, dtype), count, type_of(dtype),
                                    ncclSum, comm, static_cast<cudaStream_t>(stream));
    });
  }

  void allgather(gpus::Stream stream, std::byte* data, std::size_t count, DType dtype,
                 const gpus::Patience& patience) override {
    call("ncclAllGather", patience, [&](ncclComm_t comm) {
      return table().allgather(data + own_shard(count, dtype), data, count, type_of(dtype), comm,
                               static_cast<cudaStream_t>(stream));
    });
  }

  std::optional<std::string> failure() override {
    const std::lock_guard lock(in_use_);
    if (comm_ == nullptr) return kAborted;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = table().async_error(comm_, &state);
    if (result != ncclSuccess) state = result;
    if (!is_error(state)) return std::nullopt;
    return to_string(table(), "NCCL", state);
  }

  /// Aborts the communicator when no other thread is in a call of it, and lets none begin one.
  void abort() noexcept override {
    ncclComm_t comm = nullptr;
    {
      const std::lock_guard lock(in_use_);
      comm = std::exchange(comm_, nullptr);
    }
    if (comm != nullptr) static_cast<void>(table().abort(comm));
  }

  void part() noexcept override {
    try {
      const cuda::OnDevice here(device_);
      const std::lock_guard lock(in_use_);
      if (comm_ == nullptr) return;
      parting_->add(std::exchange(comm_, nullptr), device_);
    } catch (const std::exception&) {  // it is left to the end of the process
    }
  }

 private:
  [[nodiscard]] const Table& table() const { return loaded_->table; }

  [[nodiscard]] std::size_t own_shard(std::size_t count, DType dtype) const {
    return local_rank_ * count * size_of(dtype);
  }

  void require(ncclResult_t result, const char* name) {
    if (result == ncclSuccess) return;
    const std::string text = to_string(table(), name, result);
    abort();
    throw Error(ErrorCode::communication, text);
  }

  /// Calls body(the communicator), unless another thread has aborted it.
  template <class Body>
  ncclResult_t with_communicator(Body body) {
    const std::lock_guard lock(in_use_);
    if (comm_ == nullptr) throw Error(ErrorCode::communication, kAborted);
    return body(comm_);
  }

  template <class Body>
  void call(const char* name, const gpus::Patience& patience, Body body) {
    const cuda::OnDevice here(device_);
    const ncclResult_t result = with_communicator(body);
    if (result == ncclInProgress) return settle(name, patience);
    require(result, name);
  }

  /// Waits until a call that has begun is done: before that, nothing else may go into its stream.
  void settle(const char* name, const gpus::Patience& patience) {
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      ncclResult_t state = ncclSuccess;
      require(with_communicator([&](ncclComm_t comm) { return table().async_error(comm, &state); }),
              name);
      if (state != ncclInProgress) return require(state, name);
      if (patience.poll) poll(patience);
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      if (patience.timeout.count() > 0 && waited > patience.timeout) {
        abort();
        throw Error(ErrorCode::timeout, std::string(name) + " has not ended after " +
                                            std::to_string(patience.timeout.count()) +
                                            " s; are all ranks of the node alive?");
      }
      if (waited < kQuick) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  /// Asks for failures of other ranks, after which nobody answers NCCL.
  void poll(const gpus::Patience& patience) {
    try {
      patience.poll();
    } catch (...) {
      abort();
      throw;
    }
  }

  std::shared_ptr<const Loaded> loaded_;
  std::shared_ptr<Parting> parting_;
  std::size_t local_rank_;
  int device_ = 0;
  std::mutex in_use_;          ///< guards comm_, also against an abort
  ncclComm_t comm_ = nullptr;  ///< null once a thread has aborted it
  bool has_joined_ = false;
};

}  // namespace

Library::Library() = default;
Library::~Library() = default;

const Loaded& Library::loaded() {
  std::call_once(once_, [this] {
    loaded_ = std::make_shared<const Loaded>(load());
    parting_ = std::make_shared<Parting>(loaded_);
  });
  return *loaded_;
}

std::string Library::unusable() { return loaded().reason; }

std::string Library::describe() { return "by NCCL " + version_to_string(loaded().version); }

gpus::NodeId Library::make_id() {
  ncclUniqueId made{};
  const ncclResult_t result = loaded().table.get_unique_id(&made);
  if (result != ncclSuccess) {
    throw Error(ErrorCode::communication,
                nccl::to_string(loaded().table, "ncclGetUniqueId", result));
  }
  gpus::NodeId id{};
  std::memcpy(id.data(), &made, sizeof made);
  return id;
}

std::unique_ptr<gpus::NodeCollectives> Library::join(const gpus::NodeId& id, int local_rank,
                                                     int local_size, int device,
                                                     const gpus::Patience& patience) {
  static_cast<void>(loaded());
  ncclUniqueId name{};
  std::memcpy(&name, id.data(), sizeof name);
  parting_->destroy_ended();
  auto collectives = std::make_unique<Collectives>(loaded_, parting_, local_rank);
  collectives->join(name, local_size, device, patience);
  return collectives;
}

}  // namespace tutti::nccl

namespace tutti::gpus {

std::unique_ptr<NodeLibrary> find_node_library() { return std::make_unique<nccl::Library>(); }

}  // namespace tutti::gpus
