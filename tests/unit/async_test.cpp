// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls, which go on while the program computes, with threads as ranks.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr int kKeys = test::kFewCases ? 20 : 50;
constexpr int kSteps = test::kFewCases ? 3 : 6;

std::int64_t count_of(int key) { return 1 + (key * 37) % 900; }

/// The gradient that a rank pushes to a key in a step.
Tensor gradient(int rank, int key, int step) {
  const auto seed = static_cast<unsigned>(rank * 7919 + key * 101 + step);
  return Tensor::from(test::random_values(static_cast<std::size_t>(count_of(key)), seed));
}

void sleep_a_moment(std::mt19937& random) {
  if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
}

bool are_equal(const ConstTensorView& left, const ConstTensorView& right) {
  return left.size_bytes() == right.size_bytes() &&
         std::memcmp(left.bytes(), right.bytes(), left.size_bytes()) == 0;
}

void init_all(KVStore& kv) {
  for (int key = 0; key < kKeys; ++key) kv.init(key, Tensor::full({count_of(key)}, 0.5));
}

/// Pushes every key `kSteps` times, each rank in an order of its own, beside a store that pushes
/// synchronously. Returns the number of keys that differ.
int differences(Communicator& comm, const std::string& rule, const std::string& compression,
                unsigned seed) {
  KVStore kv = KVStore::create(comm);
  KVStore expected = KVStore::create(comm);
  for (KVStore* store : {&kv, &expected}) {
    init_all(*store);
    if (!rule.empty()) store->set_optimizer(optimizer::create(rule));
    store->set_gradient_compression(compression);
  }
  std::mt19937 random(seed + static_cast<unsigned>(comm.rank()));
  std::vector<Pending> pending;
  std::vector<int> pushes;  // each key once per step, but steps may mix
  for (int step = 0; step < kSteps; ++step) {
    for (int key = 0; key < kKeys; ++key) pushes.push_back(key);
  }
  std::shuffle(pushes.begin(), pushes.end(), random);
  std::vector<int> steps(kKeys);
  for (const int key : pushes) {
    const Tensor value = gradient(comm.rank(), key, steps[static_cast<std::size_t>(key)]++);
    pending.push_back(kv.push_async(key, value, {.priority = key % 3}));
    sleep_a_moment(random);
  }
  int wrong = 0;
  std::vector<Tensor> pulled;
  for (int key = kKeys - 1; key >= 0; --key) {
    pulled.push_back(Tensor::empty({count_of(key)}, DType::float32));
    kv.pull(key, pulled.back());
  }
  std::ranges::reverse(pulled);
  for (const Pending& one : pending) one.wait();
  for (int step = 0; step < kSteps; ++step) {
    for (int key = 0; key < kKeys; ++key) expected.push(key, gradient(comm.rank(), key, step));
  }
  for (int key = 0; key < kKeys; ++key) {
    const bool is_equal = are_equal(kv.view(key), expected.view(key)) &&
                          are_equal(pulled[static_cast<std::size_t>(key)], kv.view(key));
    if (!is_equal) ++wrong;
  }
  return wrong;
}

/// The rounds of the test of random orders: many if it is run by hand, with
/// ASYNC_TEST_ROUNDS=10000.
int num_rounds() {
  const char* text = std::getenv("ASYNC_TEST_ROUNDS");
  return text == nullptr ? 1 : std::atoi(text);
}

std::vector<std::vector<int>> layouts() {
  if (test::kFewCases) return {{1}, {3}, {2, 2}};
  return {{1}, {2}, {4}, {8}, {2, 2}, {1, 1, 1, 1}, {3, 1}};
}

}  // namespace

TEST_CASE("pushes in any order have the bits of synchronous ones") {
  for (const auto& layout : layouts()) {
    for (const std::string rule : {"", "sgd,learning_rate=0.1,momentum=0.9", "lamb"}) {
      CAPTURE(rule);
      std::atomic<int> wrong{0};
      const auto outcomes = test::as_ranks(layout, {}, [&](Communicator& comm) {
        for (int round = 0; round < num_rounds(); ++round) {
          wrong += differences(comm, rule, "none", 11 + 100 * static_cast<unsigned>(round));
        }
      });
      CHECK(test::all_returned(outcomes));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("compressed pushes in any order have the bits of synchronous ones") {
  for (const auto& layout : {std::vector{3}, {2, 2}}) {
    for (const std::string compression : {"2bit,threshold=0.1", "1bit", "topk,ratio=0.1", "fp16",
                                          "2bit,threshold=0.1,leg=between"}) {
      CAPTURE(compression);
      std::atomic<int> wrong{0};
      const auto outcomes = test::as_ranks(
          layout, {}, [&](Communicator& comm) { wrong += differences(comm, "", compression, 5); });
      CHECK(test::all_returned(outcomes));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a push returns before other ranks come, and its value may be changed") {
  std::atomic<bool> has_returned{false};
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({1000}, 0));
    Tensor value = Tensor::full({1000}, 1 + comm.rank());
    if (comm.rank() == 0) {
      const Pending sent = kv.push_async(1, value);
      value.fill(100);
      if (sent.ready()) ++wrong;
      has_returned = true;
      sent.wait();
      sent.wait();
      if (!sent.ready()) ++wrong;
    } else {
      while (!has_returned) std::this_thread::yield();
      kv.push_async(1, value).wait();
    }
    if (kv.view(1).value<float>(999) != 3) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE(
    "values of the store's memory, borrowed ones and lists are not copied or summed wrongly") {
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({2, 1}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    const float rank = static_cast<float>(comm.rank());
    kv.init({1, 2, 3}, {Tensor::full({40}, 0), Tensor::full({50}, 0), Tensor::full({60}, 0)});
    Tensor shared = kv.allocate({40});
    std::ranges::fill(shared.values<float>(), rank);
    const Tensor borrowed = Tensor::full({50}, 10 * rank);
    const Tensor one = Tensor::full({60}, rank);
    const Tensor other = Tensor::full({60}, 100);
    const Pending first = kv.push_async({1, 2}, {shared, borrowed}, {.borrow = true});
    const Pending second = kv.push_async(3, {one, other});
    second.wait();
    first.wait();
    if (kv.view(1).value<float>(39) != 3) ++wrong;
    if (kv.view(2).value<float>(49) != 30) ++wrong;
    if (kv.view(3).value<float>(59) != 303) ++wrong;
    // A pushed replica has the value that the pushes before leave.
    const Pending third = kv.push_async(1, shared);
    const Pending fourth = kv.push_async(1, kv.view(1));
    third.wait();
    fourth.wait();
    if (kv.view(1).value<float>(0) != 9) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE("pushpull_async fills its outputs before it is complete") {
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({3}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init({1, 2}, {Tensor::full({70}, 0), Tensor::full({80}, 0)});
    Tensor one = Tensor::full({70}, 7);
    Tensor two = Tensor::full({80}, 7);
    kv.pushpull_async({2, 1}, {Tensor::full({80}, 1), Tensor::full({70}, 2)}, {two, one}).wait();
    if (one.value<float>(69) != 6 || two.value<float>(79) != 3) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE("a push of a higher priority overtakes those that wait") {
  std::vector<std::int64_t> order;
  std::atomic<int> queued{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.set_gradient_compression("fp16");  // so that each key is pushed alone
    for (int key = 0; key < 10; ++key) kv.init(key, Tensor::full({10}, 0));
    kv.set_updater([&](const Key& key, ConstTensorView, TensorView) {
      while (queued.load() < 2) std::this_thread::yield();
      if (comm.rank() == 0) order.push_back(key.number());
    });
    std::vector<Pending> pending;
    for (int key = 0; key < 9; ++key) {
      pending.push_back(kv.push_async(key, Tensor::full({10}, 1), {.priority = -key}));
    }
    pending.push_back(kv.push_async(9, Tensor::full({10}, 1), {.priority = 1}));
    ++queued;
    for (const Pending& one : pending) one.wait();
  });
  CHECK(test::all_returned(outcomes));
  REQUIRE(order.size() == 10);
  CHECK(std::ranges::find(order, 9) - order.begin() <= 2);
  std::erase(order, 9);
  CHECK(std::ranges::is_sorted(order));
}

TEST_CASE("synchronous calls come after the pushes that were made before") {
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({2, 2}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({300}, 0));
    for (int step = 1; step <= 20; ++step) {
      const Pending sent = kv.push_async(1, Tensor::full({300}, step));
      switch (step % 6) {
        case 0:
          kv.barrier();
          break;
        case 1:
          kv.push(1, Tensor::full({300}, step));
          break;
        case 2:
          kv.init(100 + step, Tensor::full({2}, 0));
          break;
        case 3:
          kv.verify();
          break;
        case 4:
          comm.barrier();
          break;
        default:
          static_cast<void>(kv.statistics());
      }
      if (!sent.ready()) ++wrong;
      if (kv.view(1).value<float>(0) != static_cast<float>(4 * step)) ++wrong;
    }
    const Statistics statistics = kv.statistics();
    const CallStatistics pushes = statistics.total("push_async");
    if (pushes.calls != 20 || pushes.bytes != 20 * 1200) ++wrong;
    if (pushes.waiting_seconds <= 0 || pushes.waiting_seconds > pushes.seconds) ++wrong;
    if (statistics.total("async_batch").calls != 20) ++wrong;
    if (statistics.total("async_agreement").calls < 20) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE("pushes of two stores of one communicator do not meet") {
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore one = KVStore::create(comm);
    KVStore other = KVStore::create(comm);
    one.init(1, Tensor::full({5}, 0));
    other.init(1, Tensor::full({5}, 0));
    one.push_async(1, Tensor::full({5}, 1)).wait();
    other.push_async(1, Tensor::full({5}, 10)).wait();
    for (int i = 0; i < 50; ++i) {
      KVStore& first = (i + comm.rank()) % 2 == 0 ? one : other;
      KVStore& second = (i + comm.rank()) % 2 == 0 ? other : one;
      first.push_async(1, Tensor::full({5}, &first == &one ? 1 : 10));
      second.push_async(1, Tensor::full({5}, &second == &one ? 1 : 10));
    }
    if (one.view(1).value<float>(0) != 2 || other.view(1).value<float>(0) != 20) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE("an updater of an asynchronous push may pull, and makes no collective call") {
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init({1, 2}, {Tensor::full({5}, 4), Tensor::full({5}, 5)});
    kv.set_updater([&](const Key&, ConstTensorView merged, TensorView stored) {
      Tensor other = Tensor::full({5}, 0);
      kv.pull(2, other);
      if (other.value<float>(0) == 5 && kv.view(1).value<float>(0) == 4) ++right;
      for (const auto& call : {std::function<void()>([&] { kv.barrier(); }),
                               std::function<void()>([&] { kv.push(2, other); }),
                               std::function<void()>([&] { kv.push_async(2, other); })}) {
        try {
          call();
        } catch (const Error& error) {
          if (std::string(error.what()).find("which neither an updater nor") != std::string::npos) {
            ++right;
          }
        }
      }
      stored.copy_from(merged);
    });
    kv.push_async(1, Tensor::full({5}, 1)).wait();
    if (kv.view(1).value<float>(0) == 2) ++right;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 10);
}

TEST_CASE("allreduces go on in the order in which they were made, beside other calls") {
  std::atomic<int> wrong{0};
  for (const auto& layout : {std::vector{1}, {3}, {2, 2}}) {
    const auto outcomes = test::as_ranks(layout, {}, [&](Communicator& comm) {
      std::mt19937 random(static_cast<unsigned>(comm.rank()));
      for (int round = 0; round < 20; ++round) {
        Tensor one = Tensor::full({round * 50}, 1);
        Tensor two = Tensor::full({700}, comm.rank(), DType::int32);
        const Pending first = comm.allreduce_async(one);
        const Pending second = comm.allreduce_async(two, ReduceOp::max);
        sleep_a_moment(random);
        if (round % 3 == 0) comm.barrier();
        first.wait();
        second.wait();
        if (round > 0 && one.value<float>(0) != static_cast<float>(comm.size())) ++wrong;
        if (two.value<std::int32_t>(699) != comm.size() - 1) ++wrong;
      }
    });
    CHECK(test::all_returned(outcomes));
  }
  CHECK(wrong == 0);
}

TEST_CASE("with TUTTI_ASYNC=1 push returns at once, and pull waits for its key") {
  Settings settings;
  settings.asynchronous = true;
  std::atomic<bool> has_returned{false};
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init({1, 2}, {Tensor::full({50}, 0), Tensor::full({60}, 0)});
    if (comm.rank() == 1) {
      while (!has_returned) std::this_thread::yield();
    }
    kv.push({1, 2}, {Tensor::full({50}, 1), Tensor::full({60}, 2)});
    has_returned = true;
    Tensor pulled = Tensor::empty({60}, DType::float32);
    kv.pull(2, pulled);
    if (pulled.value<float>(59) != 4) ++wrong;
    Tensor shared = kv.allocate({50});
    for (int i = 0; i < 200; ++i) {  // its memory is used again at once
      std::ranges::fill(shared.values<float>(), static_cast<float>(i));
      kv.push(1, shared);
    }
    std::ranges::fill(shared.values<float>(), -1);
    if (kv.view(1).value<float>(0) != 2 * 199) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}
