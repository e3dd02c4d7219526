// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime. What CUDA leaves undefined is an error here, or ends the
// process.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <utility>

#include "tests/fake_cuda/machine.hpp"

using fake_cuda::Machine;

namespace {

constexpr auto kNone = Machine::Context::none;
constexpr int kDriverVersion = 13000;

Machine& machine() { return Machine::self(); }

std::byte* as_bytes(void* memory) { return static_cast<std::byte*>(memory); }

bool holds(const std::map<std::byte*, std::size_t>& blocks, const void* address,
           std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(address);
  const auto after = blocks.upper_bound(const_cast<std::byte*>(at));
  if (after == blocks.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return at + bytes <= begin + size;
}

/// Copies from and to it run while the program goes on.
bool is_pinned(const void* address, std::size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  return holds(machine().pinned, address, bytes) || holds(machine().registered, address, bytes);
}

bool is_imported(const void* address, std::size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  return holds(machine().imported, address, bytes);
}

bool is_whole(const void* address, std::size_t bytes) {
  return !machine().memory.is_inside(address) || machine().memory.holds(address, bytes);
}

cudaError_t put_copy(cudaStream_t handle, void* to, const void* from, std::size_t bytes,
                     bool waits) {
  const auto stream = machine().find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  if (!is_whole(to, bytes) || !is_whole(from, bytes)) return cudaErrorInvalidValue;
  const std::size_t end = stream->put([=] {
    if (!is_whole(to, bytes) || !is_whole(from, bytes)) {
      fake_cuda::give_up("a copy of memory that was given back before it ran");
    }
    std::memcpy(to, from, bytes);
  });
  const auto runs_alone = [&](const void* address) {
    return machine().memory.is_inside(address) || is_pinned(address, bytes) ||
           is_imported(address, bytes);
  };
  if (waits || !runs_alone(to) || !runs_alone(from)) stream->await(end);
  return cudaSuccess;
}

CUresult context_state(CUdevice device, unsigned* flags, int* is_active) {
  if (!machine().has(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *is_active = machine().is_used(device) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult handle_of(CUdevice* handle, int device) {
  if (!machine().has(device)) return CUDA_ERROR_INVALID_DEVICE;
  *handle = device;
  return CUDA_SUCCESS;
}

/// A context's handle is the address of its device's place.
CUcontext context_of(int device) {
  static std::array<char, 64> places;
  return reinterpret_cast<CUcontext>(&places.at(static_cast<std::size_t>(device)));
}

int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<char*>(context) -
                          reinterpret_cast<char*>(context_of(0)));
}

CUresult retain_context(CUcontext* context, CUdevice device) {
  if (!machine().has(device)) return CUDA_ERROR_INVALID_DEVICE;
  machine().use(device);
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult push_context(CUcontext context) {
  if (context == nullptr || !machine().has(device_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
  Machine::pushed_contexts().push_back(device_of(context));
  return CUDA_SUCCESS;
}

CUresult pop_context(CUcontext* context) {
  auto& pushed = Machine::pushed_contexts();
  if (pushed.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = context_of(pushed.back());
  pushed.pop_back();
  return CUDA_SUCCESS;
}

void* driver_function(const std::string& name) {
  static const std::map<std::string, void*> functions = {
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(&context_state)},
      {"cuDeviceGet", reinterpret_cast<void*>(&handle_of)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&retain_context)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&push_context)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&pop_context)}};
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

/// A call that CUDA forbids while another thread captures a stream.
template <class Body>
cudaError_t unsafe_call(const char* name, Body body) {
  return machine().call(name, [&] {
    if (!machine().may_call_beside_captures()) return cudaErrorStreamCaptureUnsupported;
    return body();
  });
}

}  // namespace

namespace fake_cuda {

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  return machine().call("cudaLaunchKernelEx", [&] {
    const auto stream = machine().find(config.stream);
    if (stream == nullptr || stream->device() != Machine::current()) {
      return cudaErrorInvalidResourceHandle;
    }
    if (config.gridDim.x == 0 || config.blockDim.x == 0) return cudaErrorInvalidValue;
    stream->put([config, thread = std::move(thread)] { run_blocks(config, thread); });
    return cudaSuccess;
  });
}

}  // namespace fake_cuda

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorDevicesUnavailable:
      return "cudaErrorDevicesUnavailable";
    default:
      return "cudaErrorOfTheFakeRuntime";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "there is no memory left";
    case cudaErrorIllegalAddress:
      return "a kernel met an address that is none";
    case cudaErrorDevicesUnavailable:
      return "another process has the device";
    default:
      return "see the number";
  }
}

cudaError_t cudaGetLastError() { return std::exchange(Machine::last_error(), cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  return machine().call("cudaGetDeviceCount", kNone, [&] {
    *count = machine().count();
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return machine().call("cudaGetDevice", kNone, [&] {
    *device = Machine::current();
    return cudaSuccess;
  });
}

/// Makes the device's context, as since CUDA 12.
cudaError_t cudaSetDevice(int device) {
  if (!machine().has(device)) {
    return machine().call("cudaSetDevice", kNone, [] { return cudaErrorInvalidDevice; });
  }
  const int before = std::exchange(Machine::current(), device);
  const cudaError_t error = machine().call("cudaSetDevice", [] { return cudaSuccess; });
  if (error != cudaSuccess) Machine::current() = before;
  return error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return machine().call("cudaGetDeviceProperties", kNone, [&] {
    if (!machine().has(device)) return cudaErrorInvalidDevice;
    std::snprintf(properties->name, sizeof properties->name, "Fake GPU");
    properties->totalGlobalMem = std::size_t{1} << 30;
    properties->major = 9;
    properties->minor = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  return machine().call("cudaDeviceGetPCIBusId", kNone, [&] {
    if (!machine().has(device)) return cudaErrorInvalidDevice;
    std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return machine().call("cudaDeviceSynchronize", [] {
    machine().await_all();
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return machine().call("cudaDriverGetVersion", kNone, [&] {
    *version = kDriverVersion;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                             unsigned /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  return machine().call("cudaGetDriverEntryPointByVersion", kNone, [&] {
    *function = driver_function(name);
    *result =
        *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return unsafe_call("cudaMalloc", [&] {
    *memory = bytes == 0 ? nullptr : machine().memory.allocate(bytes);
    return bytes > 0 && *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFree(void* memory) {
  return unsafe_call("cudaFree", [&] {
    if (memory == nullptr) return cudaSuccess;
    machine().await_all();
    return machine().memory.release(as_bytes(memory)) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  return unsafe_call("cudaHostAlloc", [&] {
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    const std::lock_guard lock(machine().mutex);
    machine().pinned[as_bytes(*memory)] = bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return unsafe_call("cudaFreeHost", [&] {
    machine().await_all();
    const std::lock_guard lock(machine().mutex);
    if (machine().pinned.erase(as_bytes(memory)) == 0) return cudaErrorInvalidValue;
    std::free(memory);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned /*flags*/) {
  return unsafe_call("cudaHostRegister", [&] {
    const std::lock_guard lock(machine().mutex);
    const bool is_new = machine().registered.emplace(as_bytes(memory), bytes).second;
    return is_new ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* memory) {
  return unsafe_call("cudaHostUnregister", [&] {
    machine().await_all();
    const std::lock_guard lock(machine().mutex);
    const bool was_known = machine().registered.erase(as_bytes(memory)) == 1;
    return was_known ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return machine().call("cudaStreamCreateWithFlags", [&] {
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;  // the others are not played
    *stream = machine().add_stream();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return machine().call("cudaStreamDestroy", [&] {
    return machine().remove(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return machine().call("cudaThreadExchangeStreamCaptureMode", kNone, [&] {
    std::swap(*mode, Machine::capture_mode());
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return machine().call("cudaStreamIsCapturing", [&] {
    const auto found = machine().find(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    *status = found->is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}

/// The event as it is now: what it is recorded for later does not matter.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  return machine().call("cudaStreamWaitEvent", [&] {
    const auto waiting = machine().find(stream);
    const auto found = machine().find(event);
    if (waiting == nullptr || found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->shared != nullptr && found->file < 0) {
      fake_cuda::await_shared(*found, waiting);
      return cudaSuccess;
    }
    if (found->stream == nullptr) return cudaSuccess;
    waiting->put([earlier = found->stream, after = found->after] { earlier->await(after); });
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return machine().call("cudaEventCreateWithFlags", [&] {
    *event = machine().add_event();
    if ((flags & cudaEventInterprocess) == 0) return cudaSuccess;
    return fake_cuda::share(*machine().find(*event)) ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return machine().call("cudaEventDestroy", [&] {
    return machine().remove(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return machine().call("cudaEventRecord", [&] {
    const auto found = machine().find(event);
    const auto recorded = machine().find(stream);
    if (found == nullptr || recorded == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->device != recorded->device()) return cudaErrorInvalidResourceHandle;
    if (found->shared != nullptr) fake_cuda::record_shared(*found, recorded);
    found->after = recorded->num_put();
    found->stream = recorded;
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return unsafe_call("cudaEventQuery", [&] {
    const auto found = machine().find(event);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    const bool is_done = found->stream == nullptr || found->stream->has_run(found->after);
    return is_done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/) {
  return machine().call("cudaMemcpy", [&] { return put_copy(nullptr, to, from, bytes, true); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  return machine().call("cudaMemcpyAsync", [&] {
    machine().copied_bytes += bytes;
    return put_copy(stream, to, from, bytes, false);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return machine().call("cudaLaunchHostFunc", [&] {
    const auto found = machine().find(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    found->put([function, argument] { function(argument); });
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return machine().call("cudaFuncGetAttributes", [&] {
    attributes->binaryVersion = 90;
    return kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
  });
}

}  // extern "C"
