// SPDX-License-Identifier: Apache-2.0
// NCCL as a program calls it. It is loaded when it is first used, and its communicator is
// non-blocking, so that a rank whose peers are gone gives up. The library does the same, but none
// of its code is used here, since the library is measured against this.
#include <chrono>
#include <cstring>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <string>
#include <thread>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>

#include "apps/benchmark/backends.hpp"
#include "support/command_line.hpp"

namespace apps::benchmark {
namespace {

struct Nccl {
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) allreduce = nullptr;
};

template <class Function>
void find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw_usage_error("--backend nccl: libnccl.so.2 has no " + std::string(name));
  }
}

Nccl load() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw_usage_error(std::string("--backend nccl: ") + dlerror());
  Nccl nccl;
  find(library, nccl.error_string, "ncclGetErrorString");
  find(library, nccl.get_unique_id, "ncclGetUniqueId");
  find(library, nccl.init_rank, "ncclCommInitRankConfig");
  find(library, nccl.async_error, "ncclCommGetAsyncError");
  find(library, nccl.abort, "ncclCommAbort");
  find(library, nccl.group_start, "ncclGroupStart");
  find(library, nccl.group_end, "ncclGroupEnd");
  find(library, nccl.allreduce, "ncclAllReduce");
  return nccl;
}

ncclDataType_t type_of(tutti::DType dtype) {
  using tutti::DType;
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

class World final : public NcclWorld {
 public:
  World(tutti::Device device, std::chrono::duration<double> timeout)
      : nccl_(load()), device_(device), timeout_(timeout) {}

  /// Aborts the communicator, which does not wait for other ranks. All work in the stream has run.
  ~World() override {
    if (comm_ != nullptr) static_cast<void>(nccl_.abort(comm_));
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The id by which all ranks join. Local; made by one of them.
  [[nodiscard]] ncclUniqueId make_id() const {
    ncclUniqueId id{};
    require(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    return id;
  }

  /// Joins the ranks. `id` is that of rank 0; its value on other ranks does not matter.
  void join(ncclUniqueId id, int rank, int size, MPI_Comm comm) {
    const std::string bytes = text_of_rank(comm, std::string(id.internal, sizeof id.internal), 0);
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    select();
    finish(nccl_.init_rank(&comm_, size, id, rank, &config), "ncclCommInitRankConfig");
  }

  Call allreduce() override {
    return [this](CallBuffers& slot) {
      select();
      auto* const stream = static_cast<cudaStream_t>(tutti::stream_of(device_));
      require(nccl_.group_start(), "ncclGroupStart");
      for (std::size_t i = 0; i < slot.inputs.size(); ++i) {
        const tutti::ConstTensorView& input = slot.inputs[i];
        const ncclResult_t result =
            nccl_.allreduce(input.bytes(), slot.outputs[i].bytes(), input.count(),
                            type_of(input.dtype()), ncclSum, comm_, stream);
        if (result != ncclInProgress) require(result, "ncclAllReduce");
      }
      finish(nccl_.group_end(), "ncclGroupEnd");
      tutti::synchronize(device_);
    };
  }

 private:
  void select() const {
    const cudaError_t status = cudaSetDevice(device_.index);
    if (status == cudaSuccess) return;
    throw tutti::Error(tutti::ErrorCode::communication,
                       std::string("cudaSetDevice: ") + cudaGetErrorString(status));
  }

  void require(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess) return;
    throw tutti::Error(tutti::ErrorCode::communication,
                       std::string(call) + ": " + nccl_.error_string(result));
  }

  /// Waits until a call that may go on in the background is done.
  void finish(ncclResult_t result, const char* call) const {
    if (result != ncclInProgress) return require(result, call);
    const auto begin = std::chrono::steady_clock::now();
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) {
      require(nccl_.async_error(comm_, &state), call);
      if (state != ncclInProgress) return require(state, call);
      if (timeout_.count() > 0 && std::chrono::steady_clock::now() - begin > timeout_) {
        throw tutti::Error(tutti::ErrorCode::timeout,
                           std::string(call) + " has not ended; are all ranks alive?");
      }
      std::this_thread::yield();
    }
  }

  Nccl nccl_;
  tutti::Device device_;
  std::chrono::duration<double> timeout_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

void require_nccl() { static_cast<void>(load()); }

std::unique_ptr<NcclWorld> join_nccl(tutti::Communicator& world, MPI_Comm comm,
                                     std::chrono::duration<double> timeout) {
  std::unique_ptr<World> joined;
  ncclUniqueId id{};
  world.agree([&] {  // else the other ranks would wait for the id of a rank that has failed
    joined = std::make_unique<World>(tutti::gpu_of(world), timeout);
    if (world.rank() == 0) id = joined->make_id();
  });
  joined->join(id, world.rank(), world.size(), comm);
  return joined;
}

}  // namespace apps::benchmark
