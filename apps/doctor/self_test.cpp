// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/self_test.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace apps::doctor {
namespace {

using tutti::Communicator;
using tutti::DType;
using tutti::ReduceOp;
using tutti::Tensor;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double largest(Communicator& world, double mine) {
  Tensor value = Tensor::full({1}, mine, DType::float64);
  world.allreduce(value, ReduceOp::max);
  return value.values<double>()[0];
}

/// Small whole numbers, whose sums are exact in every dtype, in any order.
template <class Element>
Element small_number(int factor, std::size_t index) {
  const int number = factor * static_cast<int>(index % 7 + 1);
  return static_cast<Element>(number);
}

template <class Element>
void fill(Tensor& tensor, int factor) {
  auto values = tensor.values<Element>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = small_number<Element>(factor, i);
  }
}

template <class Element>
std::uint64_t count_wrong(const Tensor& tensor, int factor) {
  const auto values = tensor.values<Element>();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += values[i] != small_number<Element>(factor, i) ? 1 : 0;
  }
  return wrong;
}

/// Tries an allreduce and a broadcast from the last rank, in the library's memory or in ordinary
/// memory. Returns the number of wrong elements.
template <class Element>
std::uint64_t try_size(Communicator& world, DType dtype, std::int64_t count, bool shared) {
  Tensor tensor = shared ? world.allocate({count}, dtype) : Tensor::zeros({count}, dtype);
  fill<Element>(tensor, world.rank() + 1);
  world.allreduce(tensor);
  std::uint64_t wrong = count_wrong<Element>(tensor, world.size() * (world.size() + 1) / 2);
  fill<Element>(tensor, world.rank() + 1);
  world.broadcast(tensor, world.size() - 1);
  return wrong + count_wrong<Element>(tensor, world.size());
}

/// The p50 of an allreduce in seconds, the longest over the ranks.
double time_allreduce(Communicator& world, std::int64_t count, int repeats) {
  Tensor tensor = world.allocate({count});
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    world.barrier();
    const double begin = now_s();
    world.allreduce(tensor);
    times.push_back(largest(world, now_s() - begin));
  }
  std::ranges::nth_element(times, times.begin() + repeats / 2);
  return times[static_cast<std::size_t>(repeats / 2)];
}

}  // namespace

std::string to_string(const SelfTest& result) {
  std::string text = std::to_string(result.calls) + " collectives, " +
                     std::to_string(result.wrong) + " wrong elements";
  if (result.large_busbw == 0) return text;  // the job has one rank
  std::array<char, 100> speed{};
  std::snprintf(speed.data(), speed.size(),
                "; allreduce of 8 B in %.2f us, of 16 MiB at %.2f GB/s (busbw)", result.small_us,
                result.large_busbw);
  return text + speed.data();
}

SelfTest run_self_test(Communicator& world, double seconds) {
  constexpr std::int64_t kLargeCount = std::int64_t{4} << 20;
  SelfTest result;
  const double begin = now_s();
  do {
    for (const std::int64_t count : {0, 1, 17, 1000, 4097, 1 << 20}) {
      for (const bool shared : {true, false}) {
        result.wrong += try_size<float>(world, DType::float32, count, shared);
        result.wrong += try_size<double>(world, DType::float64, count, shared);
        result.wrong += try_size<std::int64_t>(world, DType::int64, count, shared);
        result.calls += 6;
      }
    }
  } while (largest(world, now_s() - begin) < seconds);
  Tensor wrong = Tensor::full({1}, static_cast<double>(result.wrong), DType::int64);
  world.allreduce(wrong);
  result.wrong = static_cast<std::uint64_t>(wrong.values<std::int64_t>()[0]);
  result.small_us = 1e6 * time_allreduce(world, 2, 101);
  const double ranks = world.size();
  const double bytes = 4.0 * kLargeCount * 2 * (ranks - 1) / ranks;
  result.large_busbw = bytes / time_allreduce(world, kLargeCount, 9) / 1e9;
  return result;
}

}  // namespace apps::doctor
