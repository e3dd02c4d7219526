// SPDX-License-Identifier: Apache-2.0
// Every communicator is non-blocking: a call may return before it is done, and is then polled. Only
// so can a rank whose peer has died give up: ncclCommAbort is allowed at any point.
#include "runtime/nccl/library.hpp"

#include <atomic>
#include <cstring>
#include <cuda_runtime_api.h>
#include <thread>

#include "tutti/error.hpp"

#include "runtime/cuda/check.hpp"
#include "runtime/nccl/table.hpp"

namespace tutti::nccl {

namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(gpus::NodeId));

// Most calls are done at once; joining takes seconds.
constexpr auto kQuick = std::chrono::microseconds(300);
constexpr auto kPause = std::chrono::microseconds(20);

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

std::string to_string(const Table& table, const char* call, ncclResult_t result, ncclComm_t comm) {
  const char* last = table.last_error(comm);
  const bool says_more = last != nullptr && last[0] != '\0';
  return std::string(call) + ": " + table.error_string(result) +
         (says_more ? std::string(" (") + last + ")" : "");
}

/// Owns a communicator. Destroying one that works waits for the other ranks, which a destructor
/// must not: a communicator is aborted, or, where all is well, left to the end of the process.
class Collectives final : public gpus::NodeCollectives {
 public:
  Collectives(std::shared_ptr<const Loaded> loaded, int local_rank)
      : loaded_(std::move(loaded)), local_rank_(static_cast<std::size_t>(local_rank)) {}
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  /// One that is not through with joining is still written to by a thread of NCCL.
  ~Collectives() override {
    if (!has_joined_) abort();
  }

  void join(const ncclUniqueId& id, int local_size, int device,
            std::chrono::duration<double> timeout, const std::function<void()>& poll) {
    timeout_ = timeout;
    device_ = device;
    const cuda::OnDevice here(device_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const ncclResult_t result =
        table().init_rank(&made, local_size, id, static_cast<int>(local_rank_), &config);
    comm_ = made;
    if (result != ncclInProgress) require(result, "ncclCommInitRankConfig");
    poll_ = poll;
    settle("ncclCommInitRankConfig");
    has_joined_ = true;
  }

  void allreduce(gpus::Stream stream, std::byte* data, std::size_t count, DType dtype) override {
    const cuda::OnDevice here(device_);
    const ncclResult_t result = table().allreduce(data, data, count, type_of(dtype), ncclSum, comm_,
                                                  static_cast<cudaStream_t>(stream));
    finish(result, "ncclAllReduce");
  }

  void reduce_scatter(gpus::Stream stream, std::byte* data, std::size_t count,
                      DType dtype) override {
    const cuda::OnDevice here(device_);
    const ncclResult_t result =
        table().reduce_scatter(data, data + own_shard(count, dtype), count, type_of(dtype), ncclSum,
                               comm_, static_cast<cudaStream_t>(stream));
    finish(result, "ncclReduceScatter");
  }

  void allgather(gpus::Stream stream, std::byte* data, std::size_t count, DType dtype) override {
    const cuda::OnDevice here(device_);
    const ncclResult_t result =
        table().allgather(data + own_shard(count, dtype), data, count, type_of(dtype), comm_,
                          static_cast<cudaStream_t>(stream));
    finish(result, "ncclAllGather");
  }

  std::optional<std::string> failure() override {
    const ncclComm_t comm = comm_;
    if (comm == nullptr) return "NCCL's communicator was aborted";
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = table().async_error(comm, &state);
    if (result != ncclSuccess) state = result;
    if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
    return to_string(table(), "NCCL", state, comm);
  }

  void abort() noexcept override {
    const ncclComm_t comm = comm_.exchange(nullptr);
    if (comm != nullptr) static_cast<void>(table().abort(comm));
  }

 private:
  [[nodiscard]] const Table& table() const { return loaded_->table; }
  [[nodiscard]] std::size_t own_shard(std::size_t count, DType dtype) const {
    return local_rank_ * count * size_of(dtype);
  }

  void require(ncclResult_t result, const char* call) {
    if (result == ncclSuccess) return;
    const std::string text = to_string(table(), call, result, comm_);
    abort();
    throw Error(ErrorCode::communication, text);
  }

  void finish(ncclResult_t result, const char* call) {
    if (result == ncclInProgress) return settle(call);
    require(result, call);
  }

  /// Until a call that has begun is done: before it, nothing else may go into its stream.
  void settle(const char* call) {
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      ncclResult_t state = ncclSuccess;
      require(table().async_error(comm_, &state), call);
      if (state != ncclInProgress) return require(state, call);
      if (poll_) poll();
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      if (timeout_.count() > 0 && waited > timeout_) {
        abort();
        throw Error(ErrorCode::timeout, std::string(call) + " has not ended after " +
                                            std::to_string(timeout_.count()) +
                                            " s; are all ranks of the node alive?");
      }
      if (waited < kQuick) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  /// Somebody else has failed: nobody will answer NCCL.
  void poll() {
    try {
      poll_();
    } catch (...) {
      abort();
      throw;
    }
  }

  std::shared_ptr<const Loaded> loaded_;
  std::size_t local_rank_;
  int device_ = 0;
  std::atomic<ncclComm_t> comm_{nullptr};     ///< null once it is aborted, by whichever thread
  std::chrono::duration<double> timeout_{0};  ///< for one call; 0: none
  std::function<void()> poll_;
  bool has_joined_ = false;
};

}  // namespace

Library::Library() = default;
Library::~Library() = default;

const Loaded& Library::loaded() {
  std::call_once(once_, [this] { loaded_ = std::make_shared<const Loaded>(load()); });
  return *loaded_;
}

std::string Library::unusable() { return loaded().reason; }

std::string Library::describe() {
  const int version = loaded().version;
  return "by NCCL " + std::to_string(version / 10000) + "." +
         std::to_string(version % 10000 / 100) + "." + std::to_string(version % 100);
}

gpus::NodeId Library::make_id() {
  ncclUniqueId made{};
  const ncclResult_t result = loaded().table.get_unique_id(&made);
  if (result != ncclSuccess) {
    throw Error(ErrorCode::communication,
                nccl::to_string(loaded().table, "ncclGetUniqueId", result, nullptr));
  }
  gpus::NodeId id{};
  std::memcpy(id.data(), &made, sizeof made);
  return id;
}

std::unique_ptr<gpus::NodeCollectives> Library::join(const gpus::NodeId& id, int local_rank,
                                                     int local_size, int device,
                                                     std::chrono::duration<double> timeout,
                                                     const std::function<void()>& poll) {
  static_cast<void>(loaded());
  ncclUniqueId name{};
  std::memcpy(&name, id.data(), sizeof name);
  auto collectives = std::make_unique<Collectives>(loaded_, local_rank);
  collectives->join(name, local_size, device, timeout, poll);
  return collectives;
}

}  // namespace tutti::nccl

namespace tutti::gpus {

std::unique_ptr<NodeLibrary> find_node_library() { return std::make_unique<nccl::Library>(); }

}  // namespace tutti::gpus
