// SPDX-License-Identifier: Apache-2.0
// GPUs (runtime/gpu/accelerator.hpp) by the CUDA runtime.
#include <mutex>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TUTTI_HAS_NVTX 1
#else  // A toolkit that was installed in parts has no NVTX: a profiler sees no names.
#define TUTTI_HAS_NVTX 0
#endif

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/devices.hpp"
#include "runtime/cuda/kernels.hpp"
#include "runtime/cuda/peer_access.hpp"
#include "runtime/gpu/gpus.hpp"

namespace tutti::cuda {

namespace {

std::string version_to_string(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

class CudaAccelerator final : public gpus::Accelerator {
 public:
  explicit CudaAccelerator(int count) : kernels_(static_cast<std::size_t>(count)) {}

  [[nodiscard]] int count() const override { return static_cast<int>(kernels_.size()); }

  [[nodiscard]] gpus::DeviceInfo info(int device) const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", device);
    char bus_id[32] = {};
    check(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device), "cudaDeviceGetPCIBusId", device);
    const std::string name = properties.name;
    return {name, bus_id, properties.totalGlobalMem, name.find(" MIG ") != std::string::npos};
  }

  [[nodiscard]] std::string describe() const override {
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion", 0);
    return "CUDA " + version_to_string(CUDART_VERSION) + " (driver " + version_to_string(driver) +
           ")";
  }

  std::byte* allocate(int device, std::size_t bytes) override {
    const OnDevice here(device);
    void* memory = nullptr;
    const BesideCaptures beside;
    const cudaError_t status = cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());  // else the next kernel would report the error
      return nullptr;
    }
    check(status, "cudaMalloc", device);
    return static_cast<std::byte*>(memory);
  }
  void release(int /*device*/, std::byte* memory) noexcept override {
    const OnUsedDevice here;
    const BesideCaptures beside;
    ignore(cudaFree(memory));
  }

  std::byte* allocate_pinned(int device, std::size_t bytes) override {
    const OnDevice here(device);  // else CUDA would make the context of the thread's current device
    void* memory = nullptr;
    const BesideCaptures beside;
    const cudaError_t status = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    check(status, "cudaHostAlloc", device);
    return static_cast<std::byte*>(memory);
  }
  void release_pinned(std::byte* memory) noexcept override {
    const OnUsedDevice here;
    const BesideCaptures beside;
    ignore(cudaFreeHost(memory));
  }

  /// Memory that cannot be pinned (a limit on locked memory, say) makes copies slower, not wrong.
  bool pin(int device, std::byte* memory, std::size_t bytes) override {
    const OnDevice here(device);
    const BesideCaptures beside;
    if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());
    return false;
  }
  void unpin(std::byte* memory) noexcept override {
    const OnUsedDevice here;
    const BesideCaptures beside;
    ignore(cudaHostUnregister(memory));
  }

  gpus::Stream create_stream(int device) override {
    const OnDevice here(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
          device);
    return stream;
  }
  void destroy_stream(int /*device*/, gpus::Stream stream) noexcept override {
    const OnUsedDevice here;
    ignore(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  }

  [[nodiscard]] std::string refusal_of(int device, gpus::Stream stream) const override {
    if (stream == cudaStreamPerThread) {
      return "cudaStreamPerThread is another stream in each thread, and threads of NCCL and of the "
             "library put work into it, too; create one with cudaStreamCreate";
    }
    const OnDevice here(device);
    cudaStreamCaptureStatus status{};
    const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
    if (error == cudaErrorStreamCaptureImplicit) {
      ignore(error);
      return "a stream is captured into a graph that the default stream would wait for; end the "
             "capture before, or set another stream";
    }
    check(error, "cudaStreamIsCapturing", device);
    if (status == cudaStreamCaptureStatusNone) return {};
    return "the stream is captured into a graph, which would repeat the device's work without the "
           "messages between ranks; end the capture before";
  }

  gpus::Event create_event(int device) override {
    const OnDevice here(device);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags",
          device);
    return event;
  }
  void destroy_event(gpus::Event event) noexcept override {
    const OnUsedDevice here;
    ignore(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
  }
  void record(gpus::Event event, int device, gpus::Stream stream) override {
    const OnDevice here(device);
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
          "cudaEventRecord", device);
  }
  void wait(int device, gpus::Stream stream, gpus::Event event) override {
    const OnDevice here(device);
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event)),
          "cudaStreamWaitEvent", device);
  }
  bool done(gpus::Event event) override {
    const OnUsedDevice here;
    const BesideCaptures beside;
    const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check(status, "work in a stream, seen by cudaEventQuery", 0);
    return true;
  }

  void copy(int device, gpus::Stream stream, std::byte* to, const std::byte* from,
            std::size_t bytes) override {
    const OnDevice here(device);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
          "cudaMemcpyAsync", device);
  }

#if TUTTI_HAS_NVTX
  void begin_range(const char* name) noexcept override { nvtxRangePushA(name); }
  void end_range() noexcept override { nvtxRangePop(); }
#else
  void begin_range(const char* /*name*/) noexcept override {}
  void end_range() noexcept override {}
#endif

  gpus::NodeLibrary& node_library() override { return *node_library_; }
  gpus::PeerAccess* peer_access() override { return peer_access_.get(); }

  gpus::Kernels& kernels(int device) override {
    const std::lock_guard lock(mutex_);
    auto& own = kernels_.at(static_cast<std::size_t>(device));
    if (own == nullptr) own = make_kernels(device);
    return *own;
  }

 private:
  std::mutex mutex_;  ///< guards kernels_
  std::vector<std::unique_ptr<gpus::Kernels>> kernels_;
  std::unique_ptr<gpus::NodeLibrary> node_library_ = gpus::find_node_library();
  std::unique_ptr<gpus::PeerAccess> peer_access_ = make_peer_access();
};

}  // namespace

}  // namespace tutti::cuda

namespace tutti::gpus {

/// A machine without a driver or without a GPU counts as one without GPUs, and the reason is kept
/// for those who ask for one.
Found find_accelerator() {
  const cuda::Devices devices = cuda::find_devices();
  if (devices.count == 0) return {nullptr, "this process can use no GPU: " + devices.why_none};
  return {std::make_shared<cuda::CudaAccelerator>(devices.count), {}};
}

}  // namespace tutti::gpus
