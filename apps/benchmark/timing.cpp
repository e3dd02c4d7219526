// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/timing.hpp"

#include <algorithm>
#include <chrono>

#include "apps/benchmark/mpi_calls.hpp"

namespace apps::benchmark {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One call of all ranks, and this rank's time for it.
double time_call(tutti::Communicator& world, Work& work) {
  // What lies between cold calls takes the ranks differently long, and a rank that has waited long
  // wakes late: the first barrier takes that up.
  if (work.is_cold()) world.barrier();
  world.barrier();
  const auto start = Clock::now();
  work.call();
  const double seconds = seconds_since(start);
  work.renew();
  return seconds;
}

/// Runs the warm-ups; seconds that a call of the slowest work takes with what is around it, the
/// same on every rank.
double warm_up(tutti::Communicator& world, MPI_Comm comm, std::span<Work> works, int warmups) {
  double slowest = 0.0;
  for (Work& work : works) {
    double fastest = 0.0;
    for (int call = 0; call < warmups; ++call) {
      const auto start = Clock::now();
      time_call(world, work);
      const double seconds = seconds_since(start);
      fastest = call == 0 ? seconds : std::min(fastest, seconds);
    }
    slowest = std::max(slowest, fastest);
  }
  max_over_ranks(comm, {&slowest, 1});
  return slowest;
}

void run_batch(tutti::Communicator& world, Work& work, int calls, std::vector<double>& seconds) {
  if (!work.is_cold()) time_call(world, work);
  for (int call = 0; call < calls; ++call) seconds.push_back(time_call(world, work));
}

}  // namespace

int choose_iterations(const TimingOptions& options, double seconds_per_call) {
  if (options.iterations) return *options.iterations;
  if (!(seconds_per_call > 0.0)) return kMinIterations;
  const double fit = kTimePerSize / seconds_per_call;
  return static_cast<int>(std::clamp(fit, double{kMinIterations}, double{kMaxIterations}));
}

int batch_size(int iterations) { return std::clamp(iterations / 10, 1, 50); }

std::vector<std::vector<double>> time_side_by_side(tutti::Communicator& world, MPI_Comm comm,
                                                   std::span<Work> works,
                                                   const TimingOptions& options) {
  const double estimate = warm_up(world, comm, works, options.warmups);
  const int iterations = choose_iterations(options, estimate);
  const int batch = batch_size(iterations);
  std::vector<std::vector<double>> seconds(works.size());
  for (auto& series : seconds) series.reserve(static_cast<std::size_t>(iterations));
  bool forward = true;
  for (int done = 0; done < iterations; done += batch, forward = !forward) {
    const int calls = std::min(batch, iterations - done);
    for (std::size_t turn = 0; turn < works.size(); ++turn) {
      const std::size_t chosen = forward ? turn : works.size() - 1 - turn;
      run_batch(world, works[chosen], calls, seconds[chosen]);
    }
  }
  for (auto& series : seconds) max_over_ranks(comm, series);
  return seconds;
}

}  // namespace apps::benchmark
