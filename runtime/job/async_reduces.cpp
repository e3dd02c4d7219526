// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/async_reduces.hpp"

#include "runtime/base/digest.hpp"

namespace tutti {

namespace {

constexpr const char* kReduceCall = "allreduce_async";

struct ReduceJob final : AsyncJob {
  ConstTensorView input;
  TensorView output;
  ReduceOp op;
  std::string what;
  std::string refusal;

  ReduceJob(const ConstTensorView& from, const TensorView& to, ReduceOp by)
      : input(from), output(to), op(by) {}
};

}  // namespace

Pending AsyncReduces::allreduce(const ConstTensorView& input, const TensorView& output, ReduceOp op,
                                int priority, std::string what, std::string refusal) {
  auto job = std::make_unique<ReduceJob>(input, output, op);
  auto state = std::make_shared<AsyncState>(calls_.waiting(), what, 1);
  job->what = std::move(what);
  job->refusal = std::move(refusal);
  job->priority = priority;
  job->bytes = input.size_bytes();
  job->has_slices = calls_.may_slice() && job->refusal.empty();
  job->state = state;
  std::vector<AsyncCalls::Placed> jobs;
  jobs.push_back({0, std::move(job)});
  calls_.submit(number_, std::move(jobs));
  return Pending(std::move(state));
}

void AsyncReduces::carry_out(std::span<AsyncJob* const> jobs) {
  const auto& job = static_cast<const ReduceJob&>(*jobs.front());
  if (!job.refusal.empty()) {
    engine_.throw_on_all_ranks(ErrorCode::invalid_argument, "allreduce_async: " + job.refusal);
  }
  reduce(job, job.bytes);
  trace(*jobs.front());
}

/// An error after the first slice fails the group, because its part of the output cannot be undone.
void AsyncReduces::carry_slice(AsyncJob& job, std::size_t bytes) {
  try {
    reduce(job, bytes);
    if (job.done + bytes == job.bytes) trace(job);
  } catch (const Error& error) {
    if (job.done > 0) {
      engine_.raise_failure(error.code(), error.what(), collectives::reporter_of_agreed(error));
    }
    throw;
  }
}

void AsyncReduces::trace(AsyncJob& job) {
  job.times.moved = job.times.done = collectives::ticks();
  engine_.statistics().trace_async(kReduceCall, job.times, job.bytes);
}

/// Reduces `bytes` bytes, beginning at job.done.
void AsyncReduces::reduce(const AsyncJob& one, std::size_t bytes) {
  const auto& job = static_cast<const ReduceJob&>(one);
  const collectives::CountedCall counted(engine_.statistics(), kReduceCall);
  engine_.statistics().count_bytes(bytes);
  const collectives::Segment segment{job.input.bytes() + job.done, job.output.bytes() + job.done,
                                     bytes / size_of(job.input.dtype()), job.input.dtype()};
  const auto describe = [&] { return job.what; };
  engine_.run({.kind = collectives::Kind::allreduce,
               .reduce = job.op,
               .digest = Digest().add(job.input.shape(), job.input.dtype()).value(),
               .segments = {&segment, 1},
               .describe = describe});
}

}  // namespace tutti
