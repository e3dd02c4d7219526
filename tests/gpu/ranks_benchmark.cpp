// SPDX-License-Identifier: Apache-2.0
// Pushes of values on GPUs over the ranks of a job: what collective-benchmark measures, and pushes
// of many keys, by a program that needs neither Boost nor a data set.
//
//   mpirun -np 2 ranks-benchmark [MOST_BYTES] > ranks.json
//
// Ranks that share a GPU sum by way of the host: TUTTI_RANKS_PER_NODE=1 says that each is a node.
// "host_us" is how long a push keeps the host, "us" how long it takes until the GPU is through.
// Both are the median over rounds of the slowest rank's. Exit code 0: done; 3: a sum was wrong; 77:
// no GPU.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using tutti::Communicator;
using tutti::DType;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

constexpr int kWarmup = 3;
constexpr int kRounds = 11;
constexpr int kExitWrong = 3;
constexpr int kExitNoGpu = 77;

struct Case {
  const char* name;
  std::int64_t keys;
  std::int64_t count;  ///< float32 of each key
};

constexpr std::array<Case, 5> kCases = {{{"8 KiB", 1, 2 << 10},
                                         {"1 MiB", 1, 256 << 10},
                                         {"64 MiB", 1, 16 << 20},
                                         {"10,000 keys of 256 B", 10'000, 64},
                                         {"100 keys of 1 MiB", 100, 256 << 10}}};

struct Result {
  double host_us = 0;
  double us = 0;
  bool is_right = false;
};

double since_us(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + kRounds / 2);
  return values[kRounds / 2];
}

/// The median over rounds of the slowest rank.
double median_of_slowest(Communicator& communicator, const std::vector<double>& times) {
  Tensor all = Tensor::from(std::span<const double>(times));
  communicator.allreduce(all, tutti::ReduceOp::max);
  return median({all.values<double>().begin(), all.values<double>().end()});
}

Result measure(Communicator& communicator, const Case& one) {
  const tutti::Device device = tutti::gpu_of(communicator);
  auto kv = KVStore::create(communicator);
  std::vector<Key> keys;
  std::vector<Tensor> values;
  for (std::int64_t i = 0; i < one.keys; ++i) {
    keys.emplace_back(i);
    values.push_back(Tensor::full({one.count}, 1.0 + communicator.rank(), DType::float32, device));
  }
  kv.init(keys, values);
  std::vector<double> host;
  std::vector<double> whole;
  for (int round = 0; round < kWarmup + kRounds; ++round) {
    tutti::synchronize(device);
    kv.barrier();
    const auto begin = std::chrono::steady_clock::now();
    kv.push(keys, values);
    const double returned = since_us(begin);
    tutti::synchronize(device);
    if (round < kWarmup) continue;
    host.push_back(returned);
    whole.push_back(since_us(begin));
  }
  Tensor last = Tensor::zeros({one.count});
  kv.pull(keys.back(), last);
  const int ranks = communicator.size();
  const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
  const bool is_right = std::ranges::count(last.values<float>(), sum) == one.count;
  return {median_of_slowest(communicator, host), median_of_slowest(communicator, whole), is_right};
}

int run(std::int64_t most_bytes) {
  Communicator communicator = Communicator::world();
  const bool speaks = communicator.rank() == 0;
  if (tutti::num_gpus() == 0) {
    if (speaks) std::fprintf(stderr, "no GPU: %s\n", tutti::describe_gpus().c_str());
    return kExitNoGpu;
  }
  bool is_right = true;
  if (speaks) std::printf("{\"ranks\": %d, \"results\": [", communicator.size());
  const char* comma = "";
  for (const Case& one : kCases) {
    const std::int64_t bytes = one.keys * one.count * 4;
    if (bytes > most_bytes) continue;
    const Result result = measure(communicator, one);
    is_right = is_right && result.is_right;
    if (!speaks) continue;
    std::printf(
        "%s\n  {\"push\": \"%s\", \"bytes\": %lld, \"host_us\": %.1f, \"us\": %.1f, "
        "\"right\": %s}",
        comma, one.name, static_cast<long long>(bytes), result.host_us, result.us,
        result.is_right ? "true" : "false");
    comma = ",";
  }
  if (speaks) std::printf("]}\n");
  return is_right ? 0 : kExitWrong;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("ranks-benchmark", [&] {
    const std::int64_t most_bytes = argc > 1 ? std::atoll(argv[1]) : std::int64_t{1} << 40;
    return run(most_bytes);
  });
}
