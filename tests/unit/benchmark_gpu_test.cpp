// SPDX-License-Identifier: Apache-2.0
// collective-benchmark with tensors on GPUs.
#include <doctest/doctest.h>
#include <string>

#include <tutti/gpu.hpp>

#include "apps/benchmark/backends.hpp"
#include "apps/benchmark/work.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/unit/benchmark_arguments.hpp"
#include "tests/unit/threads.hpp"

namespace {

using namespace apps::benchmark;

Job job_of(const std::string& collective, const tutti::Communicator& world) {
  const Case& chosen = find_case(collective);
  return {chosen, chosen.layout(4000, 4, world.size()),
          Pattern(tutti::DType::float32, tutti::ReduceOp::sum, world.size()), world.rank(),
          world.size()};
}

std::vector<CallBuffers> slots_of(const Job& job, tutti::Device device) {
  std::vector<CallBuffers> slots;
  slots.push_back(make_slot(job, [&](const tutti::Shape& shape, tutti::DType dtype) {
    return tutti::Tensor::empty(shape, dtype, device);
  }));
  return slots;
}

}  // namespace

TEST_CASE("sums of tensors on GPUs are right, and checked") {
  for (const char* collective : {"allreduce", "pushpull"}) {
    const test::FakeGpus gpus(2);
    Options options;
    options.on_gpu = true;
    const auto outcomes = test::as_ranks({2}, {}, [&](tutti::Communicator& world) {
      const Job job = job_of(collective, world);
      TimedCall work(job, slots_of(job, tutti::gpu_of(world)), tutti_call(job, options, world),
                     CacheMode::fresh);
      work.refresh();
      work.call();
      test::require_equal(work.check(), std::size_t{0}, "wrong elements");
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("a compressed push of tensors on GPUs is measured, and checked where it is exact") {
  const test::FakeGpus gpus(2);
  for (const char* compression : {"fp16", "2bit"}) {
    const Options options =
        test::parse({"--device", "gpu", "--collective", "pushpull", "--compression", compression});
    CHECK(options.check == (std::string(compression) == "fp16"));
    const auto outcomes = test::as_ranks({2}, {}, [&](tutti::Communicator& world) {
      const Job job = job_of("pushpull", world);
      TimedCall work(job, slots_of(job, tutti::gpu_of(world)), tutti_call(job, options, world),
                     CacheMode::fresh);
      work.refresh();
      work.call();
      const std::size_t wrong = work.check();
      if (options.check) test::require_equal(wrong, std::size_t{0}, "wrong elements");
      if (!options.check && wrong == 0) test::fail_here("2bit has sent small integers exactly");
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("a call that does nothing has its elements on the GPU counted as wrong") {
  const test::FakeGpus gpus(1);
  const auto world = tutti::Communicator::self({});
  const Job job = job_of("allreduce", world);
  TimedCall work(
      job, slots_of(job, tutti::gpu(0)), [](CallBuffers&) {}, CacheMode::hot);
  work.call();
  CHECK(work.check() == 2000);
}

TEST_CASE("by way of the host a call sees the inputs, and its outputs come back") {
  const test::FakeGpus gpus(1);
  const auto world = tutti::Communicator::self({});
  const Job job = job_of("allreduce", world);
  const Call copy = [](CallBuffers& slot) {
    CHECK(slot.inputs[0].device() == tutti::cpu());
    slot.outputs[0].copy_from(slot.inputs[0]);
  };
  TimedCall work(job, slots_of(job, tutti::gpu(0)), by_way_of_the_host(job, copy), CacheMode::hot);
  work.call();
  CHECK(work.check() == 0);
}
