// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/stream.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "apps/benchmark/mpi_calls.hpp"

namespace apps::benchmark {

void add_streaming(std::span<const float> left, std::span<const float> right,
                   std::span<float> sum) {
  std::size_t i = 0;
#if defined(__SSE__)
  for (; i + 16 <= sum.size(); i += 16) {  // a line at a time
    for (std::size_t part = i; part < i + 16; part += 4) {
      _mm_stream_ps(&sum[part], _mm_add_ps(_mm_load_ps(&left[part]), _mm_load_ps(&right[part])));
    }
  }
  _mm_sfence();
#endif
  for (; i < sum.size(); ++i) sum[i] = left[i] + right[i];
}

MemorySpeed measure_memory(tutti::Communicator& world, MPI_Comm comm, std::size_t cache_bytes) {
  constexpr int kRepetitions = 7;
  constexpr std::size_t kLeastBytes = std::size_t{16} << 20;
  const auto sharers = static_cast<std::size_t>(world.local_size());
  const std::size_t bytes = std::max(4 * cache_bytes / sharers, kLeastBytes);
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
  std::vector<tutti::Tensor> arrays;
  world.agree([&] {
    for (int array = 0; array < 3; ++array) arrays.push_back(tutti::Tensor::ones({count}));
  });
  std::vector<double> rates;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    world.barrier();
    const auto start = std::chrono::steady_clock::now();
    add_streaming(arrays[0].values<float>(), arrays[1].values<float>(), arrays[2].values<float>());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rates.push_back(3.0 * static_cast<double>(arrays[0].size_bytes()) / seconds.count() / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  const std::vector<double> all = gather(comm, percentile(rates, 50.0));
  const double total = std::accumulate(all.begin(), all.end(), 0.0);
  return {.per_rank_gbs = total / static_cast<double>(all.size()), .total_gbs = total};
}

}  // namespace apps::benchmark
