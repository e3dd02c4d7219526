// SPDX-License-Identifier: Apache-2.0
// The library's CUDA code (runtime/cuda) on the fake runtime: devices, contexts, errors of every
// call, and stores whose GPU fails at any point.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/cuda/kernels.hpp"
#include "runtime/gpu/gpus.hpp"
#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/support/checks.hpp"

using tutti::DType;
using tutti::gpu;
using tutti::KVStore;
using tutti::Tensor;
namespace gpus = tutti::gpus;

namespace {

/// Fake GPUs, none of them used yet, as those of the process. At the end nothing may be left of
/// what the library has made.
class Machine {
 public:
  explicit Machine(int devices) {
    fake_cuda::set_devices(devices);
    before_ = fake_cuda::counts();
    accelerator = gpus::find_accelerator().accelerator;
    gpus::replace_gpus(std::make_shared<gpus::Gpus>(accelerator));
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() {
    gpus::replace_gpus(nullptr);
    accelerator.reset();
    CHECK(fake_cuda::left_behind() == cudaSuccess);
    if (has_failed) return;
    const fake_cuda::Counts after = fake_cuda::counts();
    CHECK(after.device_blocks == before_.device_blocks);
    CHECK(after.pinned_blocks == before_.pinned_blocks);
    CHECK(after.registered_blocks == before_.registered_blocks);
    CHECK(after.streams == before_.streams);
    CHECK(after.events == before_.events);
  }
  gpus::Accelerator* operator->() const { return accelerator.get(); }

  std::shared_ptr<gpus::Accelerator> accelerator;
  bool has_failed = false;  ///< a store: what its GPU may still work with lives until exit

 private:
  fake_cuda::Counts before_;
};

void wait_for(gpus::Accelerator& accelerator, gpus::Event event) {
  gpus::wait(accelerator, event, gpus::timeout(), "work of a test");
}

/// One of everything that a device gives.
struct Things {
  Things(gpus::Accelerator& from, int on) : accelerator(from), device(on) {
    memory = accelerator.allocate(device, 1024);
    pinned = accelerator.allocate_pinned(device, 1024);
    stream = accelerator.create_stream(device);
    event = accelerator.create_event(device);
  }
  Things(const Things&) = delete;
  Things& operator=(const Things&) = delete;
  ~Things() {
    accelerator.destroy_event(event);
    accelerator.destroy_stream(device, stream);
    accelerator.release_pinned(pinned);
    accelerator.release(device, memory);
  }

  gpus::Accelerator& accelerator;
  int device;
  std::byte* memory = nullptr;
  std::byte* pinned = nullptr;
  gpus::Stream stream = nullptr;
  gpus::Event event = nullptr;
};

/// Every call of the accelerator.
void use_all(gpus::Accelerator& accelerator, int device) {
  Things things(accelerator, device);
  std::vector<std::byte> others(4096);
  CHECK(accelerator.pin(device, others.data(), others.size()));
  accelerator.copy(device, things.stream, things.memory, things.pinned, 1024);
  accelerator.record(things.event, device, things.stream);
  accelerator.wait(device, nullptr, things.event);
  wait_for(accelerator, things.event);
  CHECK(accelerator.refusal_of(device, things.stream).empty());
  accelerator.kernels(device).fill(things.stream, things.memory, DType::float32, 10, 1);
  accelerator.record(things.event, device, things.stream);
  wait_for(accelerator, things.event);
  accelerator.unpin(others.data());
}

std::optional<tutti::Error> error_of(const std::function<void()>& call) {
  try {
    call();
    return std::nullopt;
  } catch (const tutti::Error& error) {
    return error;
  }
}

Tensor on_gpu(const std::vector<float>& values) {
  Tensor tensor = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::float32, gpu(0));
  tensor.view().copy_from(Tensor::from(std::span<const float>(values)));
  return tensor;
}

}  // namespace

TEST_CASE("a process makes contexts on the devices that it uses, in every thread, and no others") {
  const Machine machine(3);
  use_all(*machine.accelerator, 2);
  std::thread([&] { use_all(*machine.accelerator, 2); }).join();
  CHECK_FALSE(fake_cuda::is_used(0));
  CHECK_FALSE(fake_cuda::is_used(1));
  CHECK(fake_cuda::is_used(2));
}

TEST_CASE("what one thread has made another one waits for and gives back, without a new context") {
  const Machine machine(2);
  auto things = std::make_unique<Things>(*machine.accelerator, 1);
  machine->record(things->event, 1, things->stream);
  std::thread([&] {
    wait_for(*machine.accelerator, things->event);
    things.reset();
  }).join();
  CHECK_FALSE(fake_cuda::is_used(0));
}

TEST_CASE("the program's current device stays the current one") {
  const Machine machine(3);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  use_all(*machine.accelerator, 2);
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 1);
}

TEST_CASE("a thread that has never chosen a device still has chosen none, whichever it works on") {
  const Machine machine(3);
  std::thread([&] {
    use_all(*machine.accelerator, 2);
    int current = -1;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 0);
  }).join();
  CHECK_FALSE(fake_cuda::is_used(0));
}

TEST_CASE("no call ends a capture of a stream that the program has under way") {
  const Machine machine(1);
  const Things other(*machine.accelerator, 0);
  auto* const captured = static_cast<cudaStream_t>(other.stream);
  fake_cuda::set_capturing(captured, true);
  std::thread([&] { use_all(*machine.accelerator, 0); }).join();
  CHECK_FALSE(fake_cuda::is_capture_lost(captured));
  fake_cuda::set_capturing(captured, false);
}

TEST_CASE("what CUDA refuses is an error with the call, the device and CUDA's words") {
  const Machine machine(2);
  Things things(*machine.accelerator, 1);
  const auto expect = [&](const std::string& call, const std::function<void()>& body) {
    CAPTURE(call);
    fake_cuda::fail(call, 1, cudaErrorIllegalAddress);
    const auto error = error_of(body);
    REQUIRE(error.has_value());
    const std::string text = error->what();
    CHECK(error->code() == tutti::ErrorCode::communication);
    CHECK(text.find("gpu(1): cudaErrorIllegalAddress: a kernel met an address that is none") !=
          std::string::npos);
    CHECK(fake_cuda::left_behind() == cudaSuccess);
    CHECK_NOTHROW(body());
  };
  std::vector<std::byte*> memory;
  expect("cudaMalloc", [&] { memory.push_back(machine->allocate(1, 64)); });
  for (std::byte* block : memory) machine->release(1, block);
  memory.clear();
  expect("cudaHostAlloc", [&] { memory.push_back(machine->allocate_pinned(1, 64)); });
  for (std::byte* block : memory) machine->release_pinned(block);
  gpus::Stream stream = nullptr;
  expect("cudaStreamCreateWithFlags", [&] { stream = machine->create_stream(1); });
  expect("cudaStreamIsCapturing", [&] { static_cast<void>(machine->refusal_of(1, stream)); });
  machine->destroy_stream(1, stream);
  gpus::Event event = nullptr;
  expect("cudaEventCreateWithFlags", [&] { event = machine->create_event(1); });
  expect("cudaEventRecord", [&] { machine->record(event, 1, things.stream); });
  expect("cudaStreamWaitEvent", [&] { machine->wait(1, things.stream, event); });
  machine->destroy_event(event);
  expect("cudaMemcpyAsync",
         [&] { machine->copy(1, things.stream, things.memory, things.pinned, 8); });
  expect("cudaGetDeviceProperties", [&] { static_cast<void>(machine->info(1)); });
  expect("cudaDeviceGetPCIBusId", [&] { static_cast<void>(machine->info(1)); });
  expect("cudaFuncGetAttributes", [&] { static_cast<void>(machine->kernels(1)); });
  expect("cudaLaunchKernelEx",
         [&] { machine->kernels(1).fill(things.stream, things.memory, DType::float32, 1, 1); });
}

TEST_CASE("an error of work is reported by the wait for it") {
  const Machine machine(1);
  Things things(*machine.accelerator, 0);
  machine->record(things.event, 0, things.stream);
  fake_cuda::fail("cudaEventQuery", 1, cudaErrorIllegalAddress);
  const auto error = error_of([&] { static_cast<void>(machine->done(things.event)); });
  REQUIRE(error.has_value());
  CHECK(std::string(error->what()).find("work in a stream, seen by cudaEventQuery") !=
        std::string::npos);
}

TEST_CASE("too little memory is told apart from errors, and leaves none behind") {
  const Machine machine(1);
  fake_cuda::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  CHECK(machine->allocate(0, 64) == nullptr);
  fake_cuda::fail("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  CHECK(machine->allocate_pinned(0, 64) == nullptr);
  fake_cuda::fail("cudaHostRegister", 1, cudaErrorMemoryAllocation);
  std::vector<std::byte> memory(64);
  CHECK_FALSE(machine->pin(0, memory.data(), memory.size()));
  CHECK(machine->allocate(0, std::size_t{1} << 40) == nullptr);
  CHECK(fake_cuda::left_behind() == cudaSuccess);
}

TEST_CASE("a GPU that is broken for good is an error in every call, and can be left") {
  const Machine machine(1);
  auto things = std::make_unique<Things>(*machine.accelerator, 0);
  fake_cuda::break_down(cudaErrorIllegalAddress);
  const std::vector<std::function<void()>> calls = {
      [&] { static_cast<void>(machine->allocate(0, 64)); },
      [&] { static_cast<void>(machine->done(things->event)); },
      [&] { machine->record(things->event, 0, things->stream); },
      [&] { static_cast<void>(machine->allocate(0, 64)); }};
  for (const auto& call : calls) CHECK(error_of(call).has_value());
  fake_cuda::repair();  // for the counts
}

TEST_CASE("a stream that is captured, or another one in every thread, is refused with the reason") {
  const Machine machine(1);
  const Things things(*machine.accelerator, 0);
  const auto why = [&](void* stream) {
    const auto error = error_of([&] { tutti::set_stream(gpu(0), stream); });
    return error.has_value() ? std::string(error->what()) : "";
  };
  CHECK(why(cudaStreamPerThread).find("another stream in each thread") != std::string::npos);
  auto* const stream = static_cast<cudaStream_t>(things.stream);
  fake_cuda::set_capturing(stream, true);
  CHECK(why(stream).find("the stream is captured into a graph") != std::string::npos);
  fake_cuda::set_capturing(stream, false);
  CHECK(why(stream).empty());
  tutti::set_stream(gpu(0), nullptr);
}

TEST_CASE("a machine without a GPU says so") {
  fake_cuda::set_devices(0);
  const gpus::Found found = gpus::find_accelerator();
  CHECK(found.accelerator == nullptr);
  CHECK(found.reason == "this process can use no GPU: there is no GPU here");
  CHECK(fake_cuda::left_behind() == cudaSuccess);
  fake_cuda::set_devices(1);
}

TEST_CASE("a GPU that the library has no code for is named, with the way to build it") {
  const Machine machine(1);
  fake_cuda::fail("cudaFuncGetAttributes", 1, cudaErrorNoKernelImageForDevice);
  const auto no_code = error_of([&] { static_cast<void>(machine->kernels(0)); });
  REQUIRE(no_code.has_value());
  CHECK(std::string(no_code->what()) ==
        "this library has no code for gpu(0), Fake GPU; build it with "
        "-DCMAKE_CUDA_ARCHITECTURES=90");
  fake_cuda::fail("cudaFuncGetAttributes", 1, cudaErrorUnsupportedPtxVersion);
  const auto old_driver = error_of([&] { static_cast<void>(machine->kernels(0)); });
  REQUIRE(old_driver.has_value());
  CHECK(std::string(old_driver->what()).find("was built for other GPUs or a newer driver") !=
        std::string::npos);
}

namespace {

/// Pushes with an optimizer; what is there afterwards.
std::vector<float> train(KVStore& kv, int steps) {
  const Tensor gradient = on_gpu({1, 2, 3});
  for (int step = 0; step < steps; ++step) {
    kv.push(0, gradient);
    kv.push(1, {gradient, gradient});
  }
  Tensor out = Tensor::empty({3});
  kv.pull(0, out);
  return {out.values<float>().begin(), out.values<float>().end()};
}

KVStore begin() {
  auto kv = KVStore::create("device");
  kv.set_optimizer(tutti::optimizer::lamb({.learning_rate = 0.125}));
  kv.init(0, on_gpu({1, 1, 1}));
  kv.init(1, on_gpu({2, 2, 2}));
  return kv;
}

}  // namespace

TEST_CASE("whichever call of CUDA fails in a push is one error, which stays if the store is lost") {
  for (const std::string call :
       {"cudaMalloc", "cudaHostAlloc", "cudaMemcpyAsync", "cudaLaunchKernelEx", "cudaEventRecord",
        "cudaEventCreateWithFlags", "cudaStreamWaitEvent", "cudaEventQuery", "cudaGetDevice",
        "cudaFuncGetAttributes"}) {
    CAPTURE(call);
    for (int nth = 1; nth < 40; ++nth) {
      CAPTURE(nth);
      Machine machine(1);
      KVStore kv = begin();
      const int before = fake_cuda::calls(call);
      fake_cuda::fail(call, nth, cudaErrorDevicesUnavailable);
      const auto error = error_of([&] { train(kv, 3); });
      const bool has_failed = fake_cuda::calls(call) - before >= nth;
      fake_cuda::repair();
      CHECK(error.has_value() == has_failed);
      if (!has_failed) break;
      if (!error.has_value()) continue;
      const std::string text = error->what();
      CHECK(text.find(call) != std::string::npos);
      CHECK(text.find("another process has the device") != std::string::npos);
      const auto later = error_of([&] { train(kv, 1); });
      machine.has_failed = later.has_value();
      if (later.has_value()) CHECK(std::string(later->what()) == text);
    }
  }
}

TEST_CASE("memory of a copy whose event could not be recorded is not written before it has run") {
  const Machine machine(1);
  constexpr int kOtherSlots = 3;
  const Tensor values = Tensor::ones({4});
  Tensor target = on_gpu({0, 0, 0, 0});
  tutti::synchronize(gpu(0));
  const gpus::Timeout before = gpus::timeout();
  gpus::set_timeout(gpus::Timeout(0.2));
  fake_cuda::hang(0);
  fake_cuda::fail("cudaEventRecord", 1, cudaErrorDevicesUnavailable);
  CHECK(error_of([&] { target.view().copy_from(values); }).has_value());
  for (int i = 0; i < kOtherSlots; ++i) {
    if (error_of([&] { target.view().copy_from(values); }).has_value()) break;
  }
  const auto waits = error_of([&] { target.view().copy_from(values); });
  fake_cuda::go_on(0);
  gpus::set_timeout(before);
  REQUIRE(waits.has_value());
  CHECK(waits->code() == tutti::ErrorCode::timeout);
}

TEST_CASE("threads use a device each, and one together") {
  const Machine machine(2);
  std::vector<std::thread> threads;
  for (const int device : {0, 1, 1}) {
    threads.emplace_back([&machine, device] {
      for (int i = 0; i < 20; ++i) use_all(*machine.accelerator, device);
    });
  }
  for (std::thread& thread : threads) thread.join();
}
