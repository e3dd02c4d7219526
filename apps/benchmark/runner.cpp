// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/runner.hpp"

#include <algorithm>
#include <chrono>

#include <tutti/gpu.hpp>

#include "apps/benchmark/backends.hpp"
#include "support/command_line.hpp"

namespace apps::benchmark {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs one iteration on all ranks; returns this rank's time for a call of it.
double time_call(tutti::Communicator& world, TimedCall& work) {
  work.refresh();
  // The work between cold or fresh calls takes different times on the ranks, and a rank that has
  // waited long wakes late: the first barrier absorbs that.
  if (work.mode() != CacheMode::hot) world.barrier();
  world.barrier();
  const auto start = Clock::now();
  work.call();
  const double seconds = seconds_since(start);
  work.renew();
  return seconds / work.calls_per_iteration();
}

/// Repeats the call until the library has found its way at this size. All ranks learn the same.
void finish_learning(tutti::Communicator& world, TimedCall& work) {
  constexpr int kMostCalls = 200;
  int calls = 0;
  do {  // is_learning() is about the last call
    time_call(world, work);
  } while (++calls < kMostCalls && world.is_learning());
}

/// Runs the warm-ups. Returns the seconds that a call of the slowest work takes, with the work
/// around it; the same on every rank.
double warm_up(tutti::Communicator& world, MPI_Comm comm, std::span<TimedCall> works, int warmups) {
  double slowest = 0.0;
  for (TimedCall& work : works) {
    double fastest = 0.0;
    for (int call = 0; call < warmups; ++call) {
      const auto start = Clock::now();
      time_call(world, work);
      const double seconds = seconds_since(start);
      fastest = call == 0 ? seconds : std::min(fastest, seconds);
    }
    finish_learning(world, work);
    slowest = std::max(slowest, fastest);
  }
  max_over_ranks(comm, {&slowest, 1});
  return slowest;
}

void run_batch(tutti::Communicator& world, TimedCall& work, int calls,
               std::vector<double>& seconds) {
  if (work.mode() != CacheMode::cold) time_call(world, work);
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
                                                   std::span<TimedCall> works,
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

std::vector<Layout> plan(const Options& options, int ranks) {
  const Case& chosen = find_case(options.collective);
  const std::size_t element = tutti::size_of(options.dtype);
  if (!chosen.has_sizes) return {Layout{}};
  std::vector<Layout> layouts;
  if (!options.model.empty()) {
    layouts.push_back(layout_of(load_model(options.model), element));
  } else {
    for (const std::size_t size : sizes(options)) {
      Layout layout = chosen.layout(size, element, ranks);
      if (!layout.pairs.empty()) layouts.push_back(std::move(layout));
    }
  }
  if (layouts.empty()) {
    throw_usage_error("--maxbytes: too small for an element of " +
                      std::string(to_string(options.dtype)) + " on each of " +
                      std::to_string(ranks) + " ranks");
  }
  if (options.has_backend("mpi")) {
    for (const Layout& layout : layouts) check_mpi_counts(layout);
  }
  return layouts;
}

bool is_about_memory(const Options& options, const std::vector<Layout>& layouts) {
  return !options.on_gpu && std::ranges::any_of(layouts, [](const Layout& layout) {
    return layout.bytes >= kLeastBytesInMemory;
  });
}

Job job_of(const Options& pass, const Layout& layout, const Contender& contender, int rank,
           int ranks) {
  return {.chosen = find_case(pass.collective),
          .layout = layout,
          .pattern = Pattern(pass.dtype, pass.op, ranks),
          .rank = rank,
          .ranks = ranks,
          .root = pass.root.value_or(0),
          .in_place = contender.in_place,
          .calls_per_iteration = pass.calls_per_iteration};
}

namespace {

/// The bytes that replace a cache's content. Ranks with different caches take the same number, so
/// that they check equally many buffers.
std::size_t bytes_of_cold(const Options& options, const Machine& machine, MPI_Comm comm) {
  if (options.cache != CacheMode::cold) return 0;
  double bytes = 2.0 * static_cast<double>(machine.cache_bytes);
  max_over_ranks(comm, {&bytes, 1});
  return static_cast<std::size_t>(bytes);
}

}  // namespace

Runner::Runner(tutti::Communicator world, MPI_Comm comm, const Options& options,
               const Machine& machine, std::chrono::duration<double> timeout)
    : world_(std::move(world)),
      comm_(comm),
      options_(options),
      case_(find_case(options.collective)),
      cold_bytes_(bytes_of_cold(options, machine, comm)),
      timeout_(timeout) {
  if (options.cache == CacheMode::cold) world_.agree([&] { sweeper_.emplace(cold_bytes_); });
}

std::optional<std::size_t> Runner::packed_bytes(const Layout& layout) const {
  if (!options_.compresses()) return std::nullopt;
  std::size_t bytes = 0;
  for (const Layout::Pair& pair : layout.pairs) {
    bytes += tutti::compression::packed_bytes(options_.compression, pair.input.count());
  }
  return bytes;
}

bool Runner::can_run(const Contender& contender) const {
  return contender.backend != "mpi" || mpi_can_run(case_, options_.dtype);
}

std::vector<CallBuffers> Runner::make_slots(const Job& job, const Contender& contender) {
  const Allocate ordinary = [](const tutti::Shape& shape, tutti::DType dtype) {
    return tutti::Tensor::empty(shape, dtype);
  };
  const Allocate shared = [&](const tutti::Shape& shape, tutti::DType dtype) {
    return world_.allocate(shape, dtype);
  };
  const Allocate on_gpu = [&](const tutti::Shape& shape, tutti::DType dtype) {
    return tutti::Tensor::empty(shape, dtype, tutti::gpu_of(world_));
  };
  const Allocate on_cpu = contender.buffers == "store" ? shared : ordinary;
  const bool rotates = options_.cache == CacheMode::cold;
  const std::size_t count = rotates ? cold_slots(slot_bytes(job), cold_bytes_) : std::size_t{1};
  std::vector<CallBuffers> slots;
  world_.agree([&] {
    for (std::size_t i = 0; i < count; ++i) {
      slots.push_back(make_slot(job, options_.on_gpu ? on_gpu : on_cpu));
    }
  });
  return slots;
}

TimedCall Runner::prepare(const Job& job, const Contender& contender) {
  std::vector<CallBuffers> slots = make_slots(job, contender);
  const bool sweeps = sweeper_ && slots.size() * slot_bytes(job) < cold_bytes_;
  Call call;
  if (contender.backend == "tutti") {
    call = tutti_call(job, options_, world_);
  } else if (contender.backend == "nccl") {
    if (nccl_ == nullptr) nccl_ = join_nccl(world_, comm_, timeout_);
    call = nccl_->allreduce();
  } else {
    world_.agree([&] { call = mpi_call(job, options_.op, comm_); });
    if (options_.on_gpu) call = by_way_of_the_host(job, std::move(call));
  }
  return {job, std::move(slots), std::move(call), options_.cache, sweeps ? &*sweeper_ : nullptr};
}

Result Runner::result_of(const Row& row, const Contender& contender, TimedCall& work,
                         std::vector<double> seconds) {
  Result result{.collective = case_.name,
                .backend = contender.backend,
                .buffers = contender.buffers,
                .in_place = contender.in_place,
                .bytes = row.bytes,
                .count = row.count,
                .type = row.type,
                .redop = row.redop,
                .root = row.root,
                .iterations = seconds.size(),
                .time_us = summarize(std::move(seconds)),
                .wrong = std::nullopt};
  if (result.time_us.p50 > 0.0) {
    result.algbw_gbs = static_cast<double>(row.bytes) / result.time_us.p50 / 1e3;
  }
  result.busbw_gbs = result.algbw_gbs * case_.bus_factor(world_.size());
  if (options_.check) result.wrong = sum_over_ranks(comm_, work.check());
  return result;
}

Row Runner::measure(const Layout& layout) {
  Row row{.bytes = layout.bytes,
          .count = layout.count,
          .type = case_.has_sizes ? to_string(options_.dtype) : "none",
          .redop = case_.reduces ? to_string(options_.op) : "none",
          .root = options_.root.value_or(0),
          .results = {},
          .packed_bytes = packed_bytes(layout)};
  const std::vector<Contender> contenders = options_.contenders();
  std::vector<TimedCall> works;
  for (const Contender& contender : contenders) {
    if (!can_run(contender)) continue;
    works.push_back(
        prepare(job_of(options_, layout, contender, world_.rank(), world_.size()), contender));
  }
  auto seconds = time_side_by_side(
      world_, comm_, works, {.iterations = options_.iterations, .warmups = options_.warmups});
  std::size_t next = 0;
  for (const Contender& contender : contenders) {
    if (!can_run(contender)) {
      row.results.emplace_back(std::nullopt);
      continue;
    }
    row.results.emplace_back(result_of(row, contender, works[next], std::move(seconds[next])));
    ++next;
  }
  return row;
}

}  // namespace apps::benchmark
