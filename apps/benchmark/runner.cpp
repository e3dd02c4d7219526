// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/runner.hpp"

#include <algorithm>

#include <tutti/gpu.hpp>

#include "apps/benchmark/models.hpp"
#include "apps/benchmark/mpi_calls.hpp"
#include "apps/benchmark/timing.hpp"
#include "apps/benchmark/tutti_calls.hpp"
#include "support/command_line.hpp"

namespace apps::benchmark {

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
    throw_bad_option("--maxbytes: too small for an element of " +
                     std::string(to_string(options.dtype)) + " on each of " +
                     std::to_string(ranks) + " ranks");
  }
  if (options.has_backend("mpi")) {
    for (const Layout& layout : layouts) check_mpi_counts(layout);
  }
  return layouts;
}

Runner::Runner(tutti::Communicator world, MPI_Comm comm, const Options& options,
               const Machine& machine, std::chrono::duration<double> timeout)
    : world_(std::move(world)),
      comm_(comm),
      options_(options),
      case_(find_case(options.collective)),
      cold_bytes_(options.cold ? 2 * machine.cache_bytes : 0),
      timeout_(timeout) {
  if (options.cold) world_.agree([&] { sweeper_.emplace(cold_bytes_); });
}

Job Runner::job_of(const Layout& layout) const {
  return {case_, layout, Pattern(options_.dtype, options_.op, world_.size()), world_.rank(),
          world_.size()};
}

std::optional<std::size_t> Runner::packed_bytes(const Layout& layout) const {
  if (!options_.compresses()) return std::nullopt;
  std::size_t bytes = 0;
  for (const Layout::Pair& pair : layout.pairs) {
    bytes += tutti::compression::packed_bytes(options_.compression, pair.input.count());
  }
  return bytes;
}

bool Runner::can_run(const std::string& backend) const {
  return backend != "mpi" || mpi_can_run(case_, options_.dtype);
}

std::string Runner::buffers_of(const std::string& backend) const {
  if (options_.on_gpu) return "gpu";
  return backend == "tutti" ? options_.buffers : "user";
}

std::vector<Slot> Runner::make_slots(const Job& job, const std::string& backend) {
  const Allocate ordinary = [](const tutti::Shape& shape, tutti::DType dtype) {
    return tutti::Tensor::empty(shape, dtype);
  };
  const Allocate shared = [&](const tutti::Shape& shape, tutti::DType dtype) {
    return world_.allocate(shape, dtype);
  };
  const Allocate on_gpu = [&](const tutti::Shape& shape, tutti::DType dtype) {
    return tutti::Tensor::empty(shape, dtype, tutti::gpu_of(world_));
  };
  const Allocate on_cpu = buffers_of(backend) == "store" ? shared : ordinary;
  const std::size_t count =
      options_.cold ? cold_slots(slot_bytes(job), cold_bytes_) : std::size_t{1};
  std::vector<Slot> slots;
  world_.agree([&] {
    for (std::size_t i = 0; i < count; ++i) {
      slots.push_back(make_slot(job, options_.on_gpu ? on_gpu : on_cpu));
    }
  });
  return slots;
}

Work Runner::prepare(const Job& job, const std::string& backend) {
  std::vector<Slot> slots = make_slots(job, backend);
  const bool sweeps = options_.cold && slots.size() * slot_bytes(job) < cold_bytes_;
  Call call;
  if (backend == "tutti") {
    call = tutti_call(job, options_, world_);
  } else if (backend == "nccl") {
    if (nccl_ == nullptr) nccl_ = join_nccl(world_, comm_, timeout_);
    call = nccl_->allreduce();
  } else {
    world_.agree([&] { call = mpi_call(job, options_.op, comm_); });
    if (options_.on_gpu) call = by_way_of_the_host(job, std::move(call));
  }
  return {job, std::move(slots), std::move(call), sweeps ? &*sweeper_ : nullptr};
}

Result Runner::result_of(const Row& row, const std::string& backend, Work& work,
                         std::vector<double> seconds) {
  Result result{.collective = case_.name,
                .backend = backend,
                .buffers = buffers_of(backend),
                .bytes = row.bytes,
                .count = row.count,
                .type = row.type,
                .redop = row.redop,
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
          .results = {},
          .packed_bytes = packed_bytes(layout)};
  const Job job = job_of(layout);
  std::vector<Work> works;
  for (const std::string& backend : options_.backends) {
    if (can_run(backend)) works.push_back(prepare(job, backend));
  }
  auto seconds = time_side_by_side(
      world_, comm_, works, {.iterations = options_.iterations, .warmups = options_.warmups});
  std::size_t next = 0;
  for (const std::string& backend : options_.backends) {
    if (!can_run(backend)) {
      row.results.emplace_back(std::nullopt);
      continue;
    }
    row.results.emplace_back(result_of(row, backend, works[next], std::move(seconds[next])));
    ++next;
  }
  return row;
}

}  // namespace apps::benchmark
