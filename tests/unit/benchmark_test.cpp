// SPDX-License-Identifier: Apache-2.0
// collective-benchmark: its layouts, values and times.
#include <algorithm>
#include <array>
#include <cmath>
#include <doctest/doctest.h>
#include <numeric>
#include <string>
#include <vector>

#include "apps/benchmark/cases.hpp"
#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/models.hpp"
#include "apps/benchmark/pattern.hpp"
#include "apps/benchmark/result.hpp"
#include "apps/benchmark/runner.hpp"
#include "apps/benchmark/work.hpp"

using namespace apps::benchmark;
using tutti::DType;
using tutti::ReduceOp;

namespace {

constexpr std::array kDTypes{DType::float16, DType::bfloat16, DType::float32, DType::float64,
                             DType::int8,    DType::uint8,    DType::int32,   DType::int64};
constexpr std::array kOps{ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max};

}  // namespace

// --- what is moved -------------------------------------------------------------------------------

TEST_CASE("bus factors are those of nccl-tests") {
  CHECK(find_case("allreduce").bus_factor(4) == doctest::Approx(1.5));
  CHECK(find_case("pushpull").bus_factor(4) == doctest::Approx(1.5));
  CHECK(find_case("reduce_scatter").bus_factor(4) == doctest::Approx(0.75));
  CHECK(find_case("allgather").bus_factor(4) == doctest::Approx(0.75));
  CHECK(find_case("broadcast").bus_factor(4) == 1.0);
  CHECK(find_case("reduce").bus_factor(4) == 1.0);
  CHECK(find_case("allreduce").bus_factor(1) == 0.0);
}

TEST_CASE("sizes are those of the whole vector, in equal blocks where a rank has one") {
  const Layout all = find_case("allreduce").layout(10, 4, 3);
  CHECK(all.bytes == 8);
  CHECK(all.count == 2);
  const Layout gather = find_case("allgather").layout(32, 4, 3);
  CHECK(gather.bytes == 24);
  CHECK(gather.count == 2);
  CHECK(gather.pairs[0].input.count() == 2);
  CHECK(gather.pairs[0].output.count() == 6);
  const Layout scatter = find_case("reduce_scatter").layout(32, 4, 3);
  CHECK(scatter.pairs[0].input.count() == 6);
  CHECK(scatter.pairs[0].output.count() == 2);
  CHECK(find_case("allgather").layout(8, 4, 3).pairs.empty());
  CHECK(find_case("allreduce").layout(3, 4, 1).pairs.empty());
}

TEST_CASE("what a rank must find is told by source and place") {
  const auto scattered = find_case("reduce_scatter").expected(5, 2, 4, 0);
  REQUIRE(scattered.size() == 1);
  CHECK(scattered[0].source == kReduced);
  CHECK(scattered[0].first == 10);
  const auto gathered = find_case("allgather").expected(12, 1, 3, 0);
  REQUIRE(gathered.size() == 3);
  CHECK(gathered[2].source == 2);
  CHECK(gathered[2].count == 4);
  CHECK(gathered[2].first == 0);
  CHECK(find_case("broadcast").expected(3, 2, 4, 1)[0].source == 1);
  CHECK(find_case("reduce").expected(3, 0, 4, 0).size() == 1);
  CHECK(find_case("reduce").expected(3, 1, 4, 0).empty());
  CHECK(find_case("reduce").expected(3, 1, 4, 1).size() == 1);
}

TEST_CASE("ResNet-50 has 161 tensors and BERT-base 199, with their known numbers of parameters") {
  const Layout resnet = layout_of(resnet50(), 4);
  CHECK(resnet.pairs.size() == 161);
  CHECK(resnet.count == 25557032);
  CHECK(resnet.bytes == 4 * resnet.count);
  const Layout bert = layout_of(bert_base(), 4);
  CHECK(bert.pairs.size() == 199);
  CHECK(bert.count == 109482240);
}

// --- values --------------------------------------------------------------------------------------

TEST_CASE("a reduction in the type itself, from either end, gives exactly the expected value") {
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      for (const int ranks : {1, 2, 3, 8, 300}) {
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(op));
        CAPTURE(ranks);
        const Pattern pattern(dtype, op, ranks);
        tutti::visit(dtype, [&]<class T>(T) {
          const auto combine = [&](T left, T right) {
            const auto a = static_cast<double>(static_cast<float>(left));
            const auto b = static_cast<double>(static_cast<float>(right));
            const double all[] = {a + b, a * b, std::min(a, b), std::max(a, b)};
            return static_cast<T>(static_cast<float>(all[static_cast<int>(op)]));
          };
          const auto input = [&](int rank, std::size_t phase) {
            const T element = static_cast<T>(static_cast<float>(pattern.value(rank, 5, phase)));
            CHECK(static_cast<double>(static_cast<float>(element)) ==
                  pattern.value(rank, 5, phase));
            return element;
          };
          for (std::size_t phase = 0; phase < 20; ++phase) {
            T up = input(0, phase);
            T down = input(ranks - 1, phase);
            for (int rank = 1; rank < ranks; ++rank) {
              up = combine(up, input(rank, phase));
              down = combine(input(ranks - 1 - rank, phase), down);
            }
            CHECK(static_cast<double>(static_cast<float>(up)) == pattern.reduced(5, phase));
            CHECK(static_cast<double>(static_cast<float>(down)) == pattern.reduced(5, phase));
          }
        });
      }
    }
  }
}

TEST_CASE("no partial sum of 1000 ranks leaves the integers that the type has exactly") {
  const auto check = [](DType dtype, double limit) {
    const Pattern pattern(dtype, ReduceOp::sum, 1000);
    double largest = 0.0;
    for (std::size_t phase = 0; phase < kPeriod; ++phase) {
      double sum = 0.0;
      for (int rank = 0; rank < 1000; ++rank) sum += std::abs(pattern.value(rank, 1, phase));
      largest = std::max(largest, sum);
    }
    CHECK(largest <= limit);
    CHECK(largest > 0.3 * limit);  // the values are not all zeros
  };
  check(DType::float16, 2048.0);
  check(DType::bfloat16, 256.0);
  check(DType::int8, 127.0);
  check(DType::uint8, 255.0);
}

TEST_CASE("inputs differ between ranks, turns and places") {
  const Pattern pattern(DType::float32, ReduceOp::sum, 2);
  const auto differing = [&](int rank, std::uint64_t turn, std::size_t shift) {
    int count = 0;
    for (std::size_t phase = 0; phase + shift < kPeriod; ++phase) {
      count += pattern.value(0, 1, phase) != pattern.value(rank, turn, phase + shift) ? 1 : 0;
    }
    return count;
  };
  CHECK(differing(0, 1, 0) == 0);
  CHECK(differing(1, 1, 0) > 200);
  CHECK(differing(0, 2, 0) > 200);
  CHECK(differing(0, 1, 1) > 200);
}

TEST_CASE("count_wrong finds every changed element, stale values, poison and shifted pieces") {
  const Pattern pattern(DType::int32, ReduceOp::sum, 3);
  tutti::Tensor tensor = tutti::Tensor::zeros({1000}, DType::int32);
  const auto write = [&](std::size_t reduced_from, std::size_t input_from) {
    const auto place = tensor.values<std::int32_t>();
    Pattern::Values(pattern, kReduced, 7).write(tutti::view(place.data(), {600}), reduced_from);
    Pattern::Values(pattern, 1, 7).write(tutti::view(place.data() + 600, {400}), input_from);
  };
  const std::vector<Stretch> whole{{600, kReduced, 30}, {400, 1, 0}};
  write(30, 0);
  CHECK(pattern.count_wrong(tensor, 7, whole) == 0);
  CHECK(tensor.values<std::int32_t>()[0] == static_cast<int>(pattern.reduced(7, 30)));
  CHECK(tensor.values<std::int32_t>()[600] == static_cast<int>(pattern.value(1, 7, 0)));
  CHECK(pattern.count_wrong(tensor, 8, whole) > 800);
  for (const std::size_t place : {0, 250, 251, 599, 600, 999}) {
    tensor.values<std::int32_t>()[place] += 1;
  }
  CHECK(pattern.count_wrong(tensor, 7, whole) == 6);
  write(31, 256);
  CHECK(pattern.count_wrong(tensor, 7, whole) > 800);
  poison(tensor);
  CHECK(pattern.count_wrong(tensor, 7, whole) == 1000);
}

TEST_CASE("cold buffers are more than the cache, and at least two") {
  CHECK(cold_slots(1 << 20, 10 << 20) == 11);
  CHECK(cold_slots(1 << 30, 10 << 20) == 2);
  CHECK(cold_slots(8, 10 << 20) == kMaxSlots);
  CHECK(cold_slots(0, 10 << 20) == 2);
}

TEST_CASE("work counts what a broken call leaves wrong, wherever its inputs are") {
  const Case& allreduce = find_case("allreduce");
  const Job job{allreduce, allreduce.layout(400, 4, 1), Pattern(DType::float32, ReduceOp::sum, 1),
                0, 1};
  const Allocate allocate = [](const tutti::Shape& shape, DType dtype) {
    return tutti::Tensor::empty(shape, dtype);
  };
  const Call copy = [](CallBuffers& slot) { slot.outputs[0].copy_from(slot.inputs[0]); };
  const Call nothing = [](CallBuffers&) {};
  for (const CacheMode mode : {CacheMode::hot, CacheMode::cold, CacheMode::fresh}) {
    for (const bool works : {true, false}) {
      const std::size_t slots = mode == CacheMode::cold ? 3 : 1;
      std::vector<CallBuffers> buffers;
      for (std::size_t i = 0; i < slots; ++i) buffers.push_back(make_slot(job, allocate));
      TimedCall work(job, std::move(buffers), works ? copy : nothing, mode);
      work.refresh();
      work.call();
      work.renew();
      // The timed call's result is checked too, where its slot is not written again.
      CHECK(work.check() == (works ? 0 : 100 * (slots == 1 ? 2 : slots)));
    }
  }
}

TEST_CASE("in place, input and output are one buffer, and each call has new inputs") {
  const Case& allreduce = find_case("allreduce");
  Job job{allreduce, allreduce.layout(400, 4, 1), Pattern(DType::float32, ReduceOp::sum, 1), 0, 1};
  job.in_place = true;
  CHECK(slot_bytes(job) == 400);
  for (const CacheMode mode : {CacheMode::cold, CacheMode::fresh}) {
    std::vector<CallBuffers> buffers;
    buffers.push_back(make_slot(job, [](const tutti::Shape& shape, DType dtype) {
      return tutti::Tensor::empty(shape, dtype);
    }));
    REQUIRE(buffers[0].inputs[0].bytes() == buffers[0].outputs[0].bytes());
    TimedCall work(
        job, std::move(buffers),
        [](CallBuffers& slot) { slot.outputs[0].values<float>()[7] += 1.0F; }, mode);
    for (int call = 0; call < 3; ++call) {
      work.refresh();
      work.call();
      work.renew();
    }
    // With one rank the sum equals the input.
    CHECK(work.check() == (mode == CacheMode::cold ? 1 : 2));
  }
}

TEST_CASE("an iteration makes as many calls as it is asked for") {
  const Case& allreduce = find_case("allreduce");
  Job job{allreduce, allreduce.layout(400, 4, 1), Pattern(DType::float32, ReduceOp::sum, 1), 0, 1};
  job.calls_per_iteration = 5;
  std::vector<CallBuffers> buffers;
  buffers.push_back(make_slot(job, [](const tutti::Shape& shape, DType dtype) {
    return tutti::Tensor::empty(shape, dtype);
  }));
  int calls = 0;
  TimedCall work(
      job, std::move(buffers), [&calls](CallBuffers&) { ++calls; }, CacheMode::fresh);
  work.refresh();
  work.call();
  CHECK(calls == 5);
}

TEST_CASE("a call that only worked once does not pass with its stale result") {
  const Case& allreduce = find_case("allreduce");
  const Job job{allreduce, allreduce.layout(400, 4, 1), Pattern(DType::float32, ReduceOp::sum, 1),
                0, 1};
  std::vector<CallBuffers> buffers;
  buffers.push_back(make_slot(job, [](const tutti::Shape& shape, DType dtype) {
    return tutti::Tensor::empty(shape, dtype);
  }));
  int calls = 0;
  TimedCall work(
      job, std::move(buffers),
      [&calls](CallBuffers& slot) {
        if (calls++ == 0) slot.outputs[0].copy_from(slot.inputs[0]);
      },
      CacheMode::hot);
  work.call();
  CHECK(work.check() == 100);
}

TEST_CASE("fresh inputs are stored before every call, hot and cold ones are not") {
  const Case& allreduce = find_case("allreduce");
  const Job job{allreduce, allreduce.layout(4000, 4, 1), Pattern(DType::float32, ReduceOp::sum, 1),
                0, 1};
  for (const CacheMode mode : {CacheMode::hot, CacheMode::cold, CacheMode::fresh}) {
    CAPTURE(to_string(mode));
    std::vector<CallBuffers> buffers;
    buffers.push_back(make_slot(job, [](const tutti::Shape& shape, DType dtype) {
      return tutti::Tensor::empty(shape, dtype);
    }));
    auto* const input = const_cast<std::byte*>(buffers[0].inputs[0].bytes());
    TimedCall work(
        job, std::move(buffers), [](CallBuffers&) {}, mode);
    std::vector<std::vector<std::byte>> seen;
    for (int call = 0; call < 3; ++call) {
      std::fill_n(input, 4000, std::byte{0xEE});
      work.refresh();
      seen.emplace_back(input, input + 4000);
    }
    const std::vector<std::byte> untouched(4000, std::byte{0xEE});
    CHECK((seen[0] == untouched) == (mode != CacheMode::fresh));
    if (mode != CacheMode::fresh) continue;
    CHECK(std::ranges::find(seen[0], std::byte{0xEE}) == seen[0].end());
    CHECK(seen[0] != seen[1]);  // a result of old inputs would be wrong
    CHECK(seen[0] == seen[2]);
  }
}

TEST_CASE("a call that reads the inputs of the call before is wrong on fresh inputs") {
  const Case& allreduce = find_case("allreduce");
  const Job job{allreduce, allreduce.layout(400, 4, 1), Pattern(DType::float32, ReduceOp::sum, 1),
                0, 1};
  std::vector<CallBuffers> buffers;
  buffers.push_back(make_slot(job, [](const tutti::Shape& shape, DType dtype) {
    return tutti::Tensor::empty(shape, dtype);
  }));
  tutti::Tensor before = tutti::Tensor::zeros({100});
  const Call stale = [&before](CallBuffers& slot) {
    slot.outputs[0].copy_from(before);
    before.view().copy_from(slot.inputs[0]);
  };
  TimedCall work(job, std::move(buffers), stale, CacheMode::fresh);
  for (int call = 0; call < 2; ++call) {
    work.refresh();
    work.call();
  }
  CHECK(work.check() > 190);  // of small integers some are equal
}

// --- times ---------------------------------------------------------------------------------------

TEST_CASE("percentiles are of the nearest rank") {
  std::vector<double> values(200);
  std::iota(values.begin(), values.end(), 1.0);
  CHECK(percentile(values, 50.0) == 100.0);
  CHECK(percentile(values, 99.0) == 198.0);
  CHECK(percentile(values, 100.0) == 200.0);
  CHECK(percentile(std::vector{4.0}, 99.0) == 4.0);
  const Times times = summarize({3e-6, 1e-6, 2e-6, 2e-6});
  CHECK(times.p50 == doctest::Approx(2.0));
  CHECK(summarize({1e-6, 1e-6, 4e-6}).avg == doctest::Approx(2.0));
  CHECK(times.min == doctest::Approx(1.0));
  CHECK(times.p99 == doctest::Approx(3.0));
  CHECK(times.max == doctest::Approx(3.0));
}

TEST_CASE("iterations are what was asked for, else what the time allows") {
  CHECK(choose_iterations({.iterations = 7}, 1e-9) == 7);
  CHECK(choose_iterations({}, 1e-9) == kMaxIterations);
  CHECK(choose_iterations({}, 1e-3) == 250);
  CHECK(choose_iterations({}, 1.0) == kMinIterations);
  CHECK(choose_iterations({}, 0.0) == kMinIterations);
  CHECK(batch_size(1) == 1);
  CHECK(batch_size(20) == 2);
  CHECK(batch_size(kMaxIterations) == 50);
}

TEST_CASE("the streaming addition adds, for lengths that are no multiple of a line too") {
  for (const std::int64_t count : {0, 1, 16, 37}) {
    const tutti::Tensor left = tutti::Tensor::full({count}, 2.0);
    const tutti::Tensor right = tutti::Tensor::full({count}, 3.0);
    tutti::Tensor sum = tutti::Tensor::zeros({count});
    add_streaming(left.values<float>(), right.values<float>(), sum.values<float>());
    for (const float value : sum.values<float>()) CHECK(value == 5.0f);
  }
}

TEST_CASE("the memory's speed is measured with bounded arrays and traffic, whatever the cache") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  for (const std::size_t cache : {std::size_t{0}, kMiB, 32 * kMiB, 480 * kMiB, 64 * 1024 * kMiB}) {
    for (const int ranks : {1, 2, 3, 4, 64, 1000}) {
      CAPTURE(cache);
      CAPTURE(ranks);
      const MemoryProbe probe = plan_memory_probe(cache, ranks);
      const std::size_t all = 3 * probe.array_bytes * static_cast<std::size_t>(ranks);
      const std::size_t passes = static_cast<std::size_t>(probe.repetitions) + 1;
      CHECK(all <= kMostProbeBytes);
      CHECK(all * passes <= kMostProbedBytes);
      CHECK(probe.repetitions >= 1);
      CHECK(probe.array_bytes % 64 == 0);
      CHECK(probe.array_bytes > 0);
      CHECK(probe.exceeds_cache == (cache <= 192 * kMiB));
      if (cache == 32 * kMiB) CHECK(all > 3 * cache);
    }
  }
  CHECK(kMostProbeBytes <= 1024 * kMiB);
}

TEST_CASE("the memory's limit of busbw counts what a rank must read and write") {
  CHECK(busbw_limit(find_case("allreduce"), 2, 12.0) == doctest::Approx(6.0));  // 2 S, factor 1
  CHECK(busbw_limit(find_case("allreduce"), 4, 12.0) == doctest::Approx(9.0));  // 2 S, factor 3/2
  CHECK(busbw_limit(find_case("allgather"), 2, 12.0) == doctest::Approx(4.0));  // 3/2 S, 1/2
  CHECK(busbw_limit(find_case("pushpull"), 2, 12.0) == doctest::Approx(4.0));   // 3 S, 1
  CHECK(busbw_limit(find_case("broadcast"), 3, 12.0) == doctest::Approx(12.0));
  CHECK(busbw_limit(find_case("allreduce"), 1, 12.0) == 0.0);
  CHECK(busbw_limit(find_case("barrier"), 2, 12.0) == 0.0);
}
