// SPDX-License-Identifier: Apache-2.0
// The kernels' speed on the first GPU, beside a copy within the device in the same run.
//
//   kernel-benchmark > kernels.json
//
// "us" is the device's own time: the call is put into the stream while the device is busy.
// "idle_us" is from the call to its end on a device that waits for it; "host_us" is how long a call
// keeps the host. GB/s counts what a kernel must read and write in "us", each tensor once, however
// many passes a rule with norms takes; "of_copy" is the ratio to the speed of a copy of 1 GiB,
// which counts both, too. Values are random, since some memories compress zeros, but for the cases
// that are called so.
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

using tutti::DType;
using tutti::Optimizer;
using tutti::Tensor;
using tutti::UpdateStep;
using tutti::cuda::check;
using tutti::gpus::TensorRow;

constexpr std::size_t kLarge = std::size_t{64} << 20;
constexpr int kWarmup = 5;
constexpr int kRounds = 21;

/// A sum or an update of tensors of one dtype.
struct Case {
  std::string name;
  std::string optimizer{};  ///< as optimizer::create() takes it; empty: a sum
  int num_inputs = 1;
  DType dtype = DType::float32;
  std::size_t offset = 0;  ///< elements behind an aligned address
  bool zeros = false;      ///< inputs and weights; else they are random
};

std::vector<Case> all_cases() {
  const std::string halves = "adamw,multi_precision=true";
  return {
      {.name = "sum of 2", .num_inputs = 2},
      {.name = "sum of 4", .num_inputs = 4},
      {.name = "sum of 8", .num_inputs = 8},
      {.name = "sum of 2, unaligned", .num_inputs = 2, .offset = 1},
      {.name = "sgd with momentum", .optimizer = "sgd,momentum=0.9"},
      {.name = "adamw", .optimizer = "adamw"},
      {.name = "adamw, zeros", .optimizer = "adamw", .zeros = true},
      {.name = "adamw, unaligned", .optimizer = "adamw", .offset = 1},
      {.name = "adamw, bf16", .optimizer = halves, .dtype = DType::bfloat16},
      {.name = "lamb", .optimizer = "lamb"},
  };
}

struct FreeDevice {
  void operator()(std::byte* memory) const { static_cast<void>(cudaFree(memory)); }
};
using Memory = std::unique_ptr<std::byte, FreeDevice>;

Memory allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc", 0);
  return Memory(static_cast<std::byte*>(memory));
}

/// Zeros, or values in 0.1 to 1: a block of them, again and again.
Memory values(const Case& now, DType dtype, std::size_t count) {
  static constexpr std::size_t kBlock = std::size_t{1} << 20;
  const std::size_t bytes = count * size_of(dtype);
  Memory memory = allocate(bytes);
  check(cudaMemset(memory.get(), 0, bytes), "cudaMemset", 0);
  if (now.zeros) return memory;
  auto block = Tensor::empty({static_cast<std::int64_t>(std::min(count, kBlock))}, dtype);
  std::mt19937 random(7);
  std::uniform_real_distribution<float> distribution(0.1F, 1.0F);
  tutti::visit(dtype, [&]<class T>(T) {
    for (T& value : block.values<T>()) value = static_cast<T>(distribution(random));
  });
  for (std::size_t first = 0; first < bytes; first += block.size_bytes()) {
    check(cudaMemcpy(memory.get() + first, block.bytes(),
                     std::min(block.size_bytes(), bytes - first), cudaMemcpyHostToDevice),
          "cudaMemcpy", 0);
  }
  return memory;
}

/// The rows of a case on the device. All tensors of a kind lie one after the other, each aligned to
/// 256 bytes as in an arena, or the case's offset behind that.
class Rows {
 public:
  Rows(const Case& now, const Optimizer* optimizer, const std::vector<std::size_t>& counts)
      : is_update_(optimizer != nullptr), rows_(counts.size()) {
    for (const std::size_t count : counts) {
      begins_.push_back(total_ + now.offset);
      total_ += (count + now.offset + 127) / 128 * 128;
      elements_ += count;
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].count = counts[i];
      rows_[i].dtype = now.dtype;
      rows_[i].num_inputs = now.num_inputs;
    }
    for (int i = 0; i < now.num_inputs; ++i) {
      add(now, now.dtype, 1, [i](TensorRow& row, std::byte* at) { row.inputs[i] = at; });
    }
    add(now, now.dtype, has_exact(now) || !is_update_ ? 1 : 2,
        [](TensorRow& row, std::byte* at) { row.output = at; });
    if (!is_update_) return;
    const int num_states = optimizer->num_states() + (has_exact(now) ? 1 : 0);
    for (int i = 0; i < num_states; ++i) {
      add(now, DType::float32, 2, [i](TensorRow& row, std::byte* at) { row.states[i] = at; });
    }
  }

  [[nodiscard]] const std::vector<TensorRow>& all() const { return rows_; }
  /// Read and written.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  static bool has_exact(const Case& now) { return size_of(now.dtype) == 2; }

  template <class Place>
  void add(const Case& now, DType dtype, std::size_t accesses, Place place) {
    const std::size_t width = size_of(dtype);
    memory_.push_back(values(now, dtype, total_));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      place(rows_[i], memory_.back().get() + begins_[i] * width);
    }
    bytes_ += accesses * elements_ * width;
  }

  bool is_update_;
  std::vector<TensorRow> rows_;
  std::vector<std::size_t> begins_;
  std::size_t total_ = 0;
  std::size_t elements_ = 0;
  std::size_t bytes_ = 0;
  std::vector<Memory> memory_;
};

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

std::shared_ptr<Optimizer> optimizer_of(const Case& now) {
  return now.optimizer.empty() ? nullptr : tutti::optimizer::create(now.optimizer);
}

class Benchmark {
 public:
  /// The library's kernels, as JSON.
  void run() {
    std::printf("{\n");
    report("copy, 1 GiB", measure_copy(), 2 * kCopyBytes);
    std::vector<std::size_t> resnet;
    for (const tutti::Shape& shape : apps::benchmark::resnet50()) resnet.push_back(shape.count());
    for (const Case& now : all_cases()) {
      run(now, now.optimizer.empty() ? "64M" : "4 x 64M", large(now));
      if (!now.optimizer.empty()) run(now, "resnet50", resnet);
    }
    run({.name = "sgd", .optimizer = "sgd"}, "10000 x 64", std::vector<std::size_t>(10000, 64));
    std::printf("\n}\n");
  }

 private:
  static constexpr std::size_t kCopyBytes = 4 * kLarge * sizeof(float);

  static std::vector<std::size_t> large(const Case& now) {
    return std::vector<std::size_t>(now.optimizer.empty() ? 1 : 4, kLarge);
  }

  Times measure_copy() {
    const Memory from = values({}, DType::float32, 4 * kLarge);
    const Memory to = allocate(kCopyBytes);
    const auto copy = [&] {
      check(cudaMemcpyAsync(to.get(), from.get(), kCopyBytes, cudaMemcpyDeviceToDevice, nullptr),
            "cudaMemcpyAsync", 0);
    };
    const Times times = timer_.measure([] {}, copy);
    copy_speed_ = 2.0 * static_cast<double>(kCopyBytes) / times.device_us / 1000;
    return times;
  }

  Times measure(const Optimizer* optimizer, const Rows& rows) {
    const auto table = kernels_->make_table();
    if (optimizer == nullptr)
      return timer_.measure([] {}, [&] { kernels_->sum(nullptr, *table, rows.all()); });
    std::vector<UpdateStep> steps(rows.all().size());
    std::uint64_t count = 0;
    const auto next = [&] {
      ++count;
      std::fill(steps.begin(), steps.end(), optimizer->step(1, count, count));
    };
    return timer_.measure(
        next, [&] { kernels_->update(nullptr, *table, rows.all(), *optimizer, steps); });
  }

  void run(const Case& now, const std::string& sizes, const std::vector<std::size_t>& counts) {
    const auto optimizer = optimizer_of(now);
    const Rows rows(now, optimizer.get(), counts);
    report(now.name + ", " + sizes, measure(optimizer.get(), rows), rows.bytes());
  }

  [[nodiscard]] double of_copy(const Times& times, std::size_t bytes) const {
    return static_cast<double>(bytes) / times.device_us / 1000 / copy_speed_;
  }

  void report(const std::string& name, const Times& times, std::size_t bytes) {
    std::printf(
        "%s  \"%s\": {\"us\": %.1f, \"idle_us\": %.1f, \"host_us\": %.1f, \"GB/s\": %.0f, "
        "\"of_copy\": %.3f}",
        is_first_ ? "" : ",\n", name.c_str(), times.device_us, times.idle_us, times.host_us,
        static_cast<double>(bytes) / times.device_us / 1000, of_copy(times, bytes));
    is_first_ = false;
  }

  Timer timer_;
  std::unique_ptr<tutti::gpus::Kernels> kernels_ = tutti::cuda::make_kernels(0);
  double copy_speed_ = 0;
  bool is_first_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    std::fprintf(stderr, "usage: %s\n", argv[0]);
    return 1;
  }
  const tutti::cuda::Devices devices = tutti::cuda::find_devices();
  if (devices.count == 0) {
    std::fprintf(stderr, "no GPU: %s\n", devices.why_none.c_str());
    return 77;
  }
  try {
    Benchmark().run();
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 2;
  }
}
