// SPDX-License-Identifier: Apache-2.0
// The kernels' speed on the first GPU, beside a copy within the device in the same run.
//
//   kernel-benchmark > kernels.json
//
// "us" is the device's own time: the call is put into the stream while the device is busy.
// "idle_us" is from the call to its end on a device that waits for it; "host_us" is how long a call
// keeps the host. GB/s counts what a kernel must read and write in "us"; "of_copy" is the ratio to
// the speed of a copy of 1 GiB, which counts both, too. Values are random: some memories compress
// zeros.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

#include "apps/benchmark/models.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/devices.hpp"
#include "runtime/cuda/kernels.hpp"

namespace {

using tutti::Optimizer;
using tutti::UpdateStep;
using tutti::cuda::check;
using tutti::gpus::TensorRow;

constexpr std::size_t kLarge = std::size_t{64} << 20;
constexpr int kWarmup = 5;
constexpr int kRounds = 21;

struct FreeDevice {
  void operator()(std::byte* memory) const { static_cast<void>(cudaFree(memory)); }
};
using Memory = std::unique_ptr<std::byte, FreeDevice>;

Memory allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc", 0);
  return Memory(static_cast<std::byte*>(memory));
}

/// float32 in 0.1 to 1: a block of random values, again and again.
Memory floats(std::size_t count) {
  static constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> distribution(0.1F, 1.0F);
  std::vector<float> block(std::min(count, kBlock));
  for (float& value : block) value = distribution(random);
  Memory memory = allocate(count * sizeof(float));
  for (std::size_t first = 0; first < count; first += block.size()) {
    const std::size_t bytes = std::min(block.size(), count - first) * sizeof(float);
    check(cudaMemcpy(memory.get() + first * sizeof(float), block.data(), bytes,
                     cudaMemcpyHostToDevice),
          "cudaMemcpy", 0);
  }
  return memory;
}

/// Medians.
struct Times {
  double device_us;
  double idle_us;
  double host_us;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Timer {
 public:
  Timer() {
    check(cudaEventCreate(&begin_), "cudaEventCreate", 0);
    check(cudaEventCreate(&end_), "cudaEventCreate", 0);
  }

  /// `prepare` is not timed.
  Times measure(const std::function<void()>& prepare, const std::function<void()>& call) {
    std::vector<double> device;
    std::vector<double> idle;
    std::vector<double> host;
    for (int round = 0; round < 2 * (kWarmup + kRounds); ++round) {
      const bool is_busy = round % 2 == 0;
      prepare();
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", 0);
      if (is_busy) check(cudaMemsetAsync(work_.get(), 0, kWorkBytes), "cudaMemsetAsync", 0);
      check(cudaEventRecord(begin_, nullptr), "cudaEventRecord", 0);
      const auto start = std::chrono::steady_clock::now();
      call();
      const std::chrono::duration<double, std::micro> kept =
          std::chrono::steady_clock::now() - start;
      check(cudaEventRecord(end_, nullptr), "cudaEventRecord", 0);
      check(cudaEventSynchronize(end_), "cudaEventSynchronize", 0);
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime", 0);
      if (round < 2 * kWarmup) continue;
      (is_busy ? device : idle).push_back(milliseconds * 1000.0);
      if (!is_busy) host.push_back(kept.count());
    }
    return {median(device), median(idle), median(host)};
  }

 private:
  static constexpr std::size_t kWorkBytes = std::size_t{2} << 30;  ///< half a millisecond

  Memory work_ = allocate(kWorkBytes);
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

class Benchmark {
 public:
  void run() {
    std::printf("{\n");
    copy();
    sum();
    const std::vector<std::size_t> large(4, kLarge);
    update("4 x 64M", "sgd,momentum=0.9", large);
    update("4 x 64M", "adamw", large);
    std::vector<std::size_t> resnet;
    for (const tutti::Shape& shape : apps::benchmark::resnet50()) resnet.push_back(shape.count());
    update("resnet50", "sgd,momentum=0.9", resnet);
    update("resnet50", "adamw", resnet);
    update("10000 x 64", "sgd", std::vector<std::size_t>(10000, 64));
    std::printf("\n}\n");
  }

 private:
  void copy() {
    const std::size_t bytes = 4 * kLarge * sizeof(float);
    const Memory from = floats(4 * kLarge);
    const Memory to = allocate(bytes);
    const auto copy = [&] {
      check(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, nullptr),
            "cudaMemcpyAsync", 0);
    };
    const Times times = timer_.measure([] {}, copy);
    copy_speed_ = 2.0 * static_cast<double>(bytes) / times.device_us / 1000;
    report("copy, 1 GiB", times, 2 * bytes);
  }

  void sum() {
    std::vector<Memory> memory;
    for (int i = 0; i < 5; ++i) memory.push_back(floats(kLarge));
    TensorRow row;
    row.num_inputs = 4;
    for (int i = 0; i < 4; ++i) row.inputs[i] = memory[i].get();
    row.output = memory[4].get();
    row.count = kLarge;
    const auto table = kernels_->make_table();
    const Times times =
        timer_.measure([] {}, [&] { kernels_->sum(nullptr, *table, std::span(&row, 1)); });
    report("sum of 4, 64M", times, 5 * kLarge * sizeof(float));
  }

  /// All tensors of a kind lie one after the other, each aligned to 256 bytes, as in an arena.
  void update(const std::string& name, const char* text, const std::vector<std::size_t>& counts) {
    const auto optimizer = tutti::optimizer::create(text);
    const auto num_states = static_cast<std::size_t>(optimizer->num_states());
    std::size_t total = 0;
    std::vector<std::size_t> offsets;
    for (const std::size_t count : counts) {
      offsets.push_back(total * sizeof(float));
      total += (count + 63) / 64 * 64;
    }
    std::vector<Memory> memory;
    for (std::size_t i = 0; i < 2 + num_states; ++i) memory.push_back(floats(total));
    std::vector<TensorRow> rows(counts.size());
    std::size_t elements = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].inputs[0] = memory[0].get() + offsets[i];
      rows[i].output = memory[1].get() + offsets[i];
      for (std::size_t s = 0; s < num_states; ++s)
        rows[i].states[s] = memory[2 + s].get() + offsets[i];
      rows[i].count = counts[i];
      elements += counts[i];
    }
    std::vector<UpdateStep> steps(rows.size());
    std::uint64_t count = 0;
    const auto table = kernels_->make_table();
    const auto next = [&] {
      ++count;
      std::fill(steps.begin(), steps.end(), optimizer->step(1, count, count));
    };
    const Times times = timer_.measure(
        next, [&] { kernels_->update(nullptr, *table, rows, *optimizer, steps); });
    report(optimizer->name() + ", " + name, times, elements * sizeof(float) * (3 + 2 * num_states));
  }

  void report(const std::string& name, const Times& times, std::size_t bytes) {
    const double speed = static_cast<double>(bytes) / times.device_us / 1000;
    std::printf(
        "%s  \"%s\": {\"us\": %.1f, \"idle_us\": %.1f, \"host_us\": %.1f, \"GB/s\": %.0f, "
        "\"of_copy\": %.3f}",
        is_first_ ? "" : ",\n", name.c_str(), times.device_us, times.idle_us, times.host_us, speed,
        speed / copy_speed_);
    is_first_ = false;
  }

  Timer timer_;
  std::unique_ptr<tutti::gpus::Kernels> kernels_ = tutti::cuda::make_kernels(0);
  double copy_speed_ = 0;
  bool is_first_ = true;
};

}  // namespace

int main() {
  const tutti::cuda::Devices devices = tutti::cuda::find_devices();
  if (devices.count == 0) {
    std::fprintf(stderr, "no GPU: %s\n", devices.why_none.c_str());
    return 77;
  }
  try {
    Benchmark().run();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 2;
  }
  return 0;
}
