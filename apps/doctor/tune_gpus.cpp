// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/tune_gpus.hpp"

#include <algorithm>
#include <array>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>

#include "support/progress.hpp"
#include "support/text.hpp"

namespace apps::doctor {

namespace {

using tutti::Communicator;
using tutti::DType;
using tutti::Tensor;

constexpr std::size_t kLeastSumBytes = std::size_t{4} << 10;
constexpr std::size_t kSumStep = 2;
constexpr int kSumWarmup = 3;
constexpr int kSumRounds = 11;
// What is faster by less may be chance, and NCCL lets the host go on.
constexpr double kSureFactor = 1.05;

/// The least of all ranks' numbers of GPUs.
int fewest_gpus(Communicator& world) {
  Tensor fewest = Tensor::full({1}, tutti::num_gpus(), DType::int32);
  world.allreduce(fewest, tutti::ReduceOp::min);
  return fewest.values<std::int32_t>()[0];
}

double measure_us(Communicator& communicator, std::size_t bytes) {
  const tutti::Device device = tutti::gpu_of(communicator);
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
  Tensor values = Tensor::zeros({count}, DType::float32, device);
  std::array<double, kSumRounds> times{};
  for (int round = -kSumWarmup; round < kSumRounds; ++round) {
    tutti::synchronize(device);
    communicator.barrier();
    const Stopwatch clock;
    communicator.allreduce(values);
    tutti::synchronize(device);
    if (round >= 0) times[static_cast<std::size_t>(round)] = clock.seconds() * 1e6;
  }
  Tensor slowest = Tensor::from(std::span<const double>(times));
  communicator.allreduce(slowest, tutti::ReduceOp::max);
  const auto sorted = slowest.values<double>();
  std::ranges::nth_element(sorted, sorted.begin() + kSumRounds / 2);
  return sorted[kSumRounds / 2];
}

std::vector<GpuSum> measure(tutti::Settings settings, std::size_t most_bytes) {
  settings.gpu_path = "peers";
  Communicator peers = Communicator::world(settings);
  settings.gpu_path = "nccl";
  Communicator nccl = Communicator::world(settings);
  std::vector<GpuSum> sums;
  for (std::size_t bytes = kLeastSumBytes; bytes <= most_bytes; bytes *= kSumStep) {
    sums.push_back({bytes, measure_us(peers, bytes), measure_us(nccl, bytes)});
  }
  return sums;
}

std::string line_of(const std::vector<GpuSum>& sums, std::size_t limit) {
  std::string text = limit == 0
                         ? "sums of GPUs: NCCL is the fastest at every size"
                         : "sums of GPUs of up to " + bytes_text(static_cast<double>(limit)) +
                               " go by kernels that read all GPUs";
  text += " (us by kernels, by NCCL:";
  for (const GpuSum& sum : sums) {
    text += format("%s %s %.0f %.0f", &sum == &sums.front() ? "" : ",",
                   bytes_text(static_cast<double>(sum.bytes)).c_str(), sum.peers_us, sum.nccl_us);
  }
  return text + ")";
}

}  // namespace

std::size_t peers_limit(const std::vector<GpuSum>& sums) {
  std::size_t limit = 0;
  for (const GpuSum& sum : sums) {
    if (sum.peers_us * kSureFactor > sum.nccl_us) break;
    limit = sum.bytes;
  }
  return limit;
}

GpuTuning tune_gpus(Communicator& world, tutti::Settings settings, std::size_t most_bytes) {
  if (fewest_gpus(world) == 0) return {};
  try {
    const std::vector<GpuSum> sums = measure(std::move(settings), most_bytes);
    const std::size_t limit = peers_limit(sums);
    return {"ranks=" + std::to_string(world.size()) +
                " kind=sum-of-gpus peers=" + std::to_string(limit) + "\n",
            line_of(sums, limit)};
  } catch (const tutti::Error& error) {
    if (!error.recoverable()) throw;
    return {{}, std::string("sums of GPUs were not tuned: ") + error.what()};
  }
}

}  // namespace apps::doctor
