// SPDX-License-Identifier: Apache-2.0
// The choice of the next jobs, by the jobs that all ranks have.
#include "runtime/job/async_queues.hpp"

#include <doctest/doctest.h>
#include <vector>

using namespace tutti;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// The queues of a batch with one client.
std::vector<std::size_t> queues_of(const AsyncBatch& batch) {
  std::vector<std::size_t> queues;
  for (const AsyncQueue& place : batch.queues) queues.push_back(place.queue);
  return queues;
}

CommonJob job(std::size_t queue, int priority, std::size_t bytes) {
  return {.queue = {0, queue}, .priority = priority, .bytes = bytes};
}

using Queues = std::vector<std::size_t>;

}  // namespace

TEST_CASE("without a job that all ranks have there is no batch") {
  CHECK(choose_batch({}, kMiB, false).queues.empty());
}

TEST_CASE("jobs come by priority, then by queue, as many as go at once") {
  const auto batch = choose_batch({job(0, 0, 400), job(1, 5, 400), job(2, 5, 400)}, 1000, false);
  CHECK(queues_of(batch) == Queues{1, 2});
  CHECK(batch.slice == 0);
  CHECK(queues_of(choose_batch({job(0, 0, 5000)}, 1000, false)) == Queues{0});
  CHECK(queues_of(choose_batch({job(0, 0, 0), job(1, 0, 0)}, 0, false)) == Queues{0, 1});
}

TEST_CASE("a batch is of one client") {
  CommonJob other = job(0, 0, 10);
  other.queue.client = 1;
  CHECK(queues_of(choose_batch({job(3, 0, 10), other, job(4, 0, 10)}, 1000, false)) ==
        Queues{3, 4});
}

TEST_CASE("a job that goes alone shares no batch") {
  CommonJob alone = job(1, 0, 10);
  alone.is_alone = true;
  CHECK(queues_of(choose_batch({job(0, 0, 10), alone, job(2, 0, 10)}, 1000, false)) == Queues{0});
  CHECK(queues_of(choose_batch({alone, job(2, 0, 10)}, 1000, false)) == Queues{1});
}

TEST_CASE("a large job goes in slices, eight times as long where it is the only queue's") {
  CommonJob large = job(0, 0, 100 * kMiB);
  CHECK(choose_batch({large}, kMiB, false).slice == 0);  // slices are not allowed
  large.has_slices = true;
  CHECK(choose_batch({large}, kMiB, false).slice == kMiB);
  CHECK(choose_batch({large}, kMiB, true).slice == 8 * kMiB);
  large.done = 100 * kMiB - 5;
  CHECK(choose_batch({large}, kMiB, true).slice == 5);
  CommonJob small = job(0, 0, 2 * kMiB);
  small.has_slices = true;
  CHECK(choose_batch({small}, kMiB, false).slice == 0);
}

TEST_CASE("a job of which slices are done shares no batch with those before it") {
  CommonJob begun = job(1, 0, 10 * kMiB);
  begun.done = kMiB;
  CHECK(queues_of(choose_batch({job(0, 0, 10), begun}, 100 * kMiB, false)) == Queues{0});
}
