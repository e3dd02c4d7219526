// SPDX-License-Identifier: Apache-2.0
// Large asynchronous calls in slices, with threads as ranks.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <doctest/doctest.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "unit/threads.hpp"

using namespace tutti;

namespace {

// Between nodes the first batch of a job takes half a MiB.
constexpr std::int64_t kLarge = 1'500'007;

Tensor values(int rank, DType dtype, unsigned seed) {
  const auto seed_of_rank = seed + 31 * static_cast<unsigned>(rank);
  const Tensor exact = Tensor::from(test::random_values(kLarge, seed_of_rank));
  Tensor converted = Tensor::empty({kLarge}, dtype);
  converted.view().copy_from(exact);
  return converted;
}

bool has_same_bits(const ConstTensorView& left, const ConstTensorView& right) {
  return left.size_bytes() == right.size_bytes() &&
         std::memcmp(left.bytes(), right.bytes(), left.size_bytes()) == 0;
}

struct Case {
  std::string rule;
  DType dtype;
  std::string value;  ///< "copied", "allocated", "borrowed" or "two"
};

/// Pushes in slices, and once synchronously. True if replicas and outputs are equal, and there were
/// slices.
bool has_bits_of_whole_push(Communicator& comm, const Case& how) {
  KVStore kv = KVStore::create(comm);
  KVStore expected = KVStore::create(comm);
  for (KVStore* store : {&kv, &expected}) {
    store->init(1, Tensor::full({kLarge}, 0.5, how.dtype));
    if (how.rule == "updater") {
      store->set_updater(
          [](const Key&, ConstTensorView merged, TensorView stored) { stored.copy_from(merged); });
    } else if (!how.rule.empty()) {
      store->set_optimizer(optimizer::create(how.rule));
    }
  }
  const Tensor value = values(comm.rank(), how.dtype, 1);
  const Tensor other = values(comm.rank(), how.dtype, 2);
  Tensor output = Tensor::zeros({kLarge}, how.dtype);
  if (how.value == "two") {
    kv.pushpull_async(1, {value, other}, output).wait();
    expected.push(1, {value, other});
  } else {
    Tensor shared = kv.allocate({kLarge}, how.dtype);
    shared.view().copy_from(value);
    const Tensor& given = how.value == "allocated" ? shared : value;
    kv.pushpull_async(1, given, output, {.borrow = how.value == "borrowed"}).wait();
    expected.push(1, value);
    if (!has_same_bits(given, value)) return false;
  }
  return has_same_bits(kv.view(1), expected.view(1)) && has_same_bits(output, expected.view(1)) &&
         kv.statistics().total("async_batch").calls > 1;
}

}  // namespace

TEST_CASE("a large push in slices has the bits of a whole one") {
  std::vector<Case> cases = {{"", DType::float32, "copied"}, {"lamb", DType::float32, "allocated"}};
  if (!test::kFewCases) {
    cases.insert(cases.end(),
                 {{"", DType::float16, "two"},
                  {"", DType::float64, "borrowed"},
                  {"updater", DType::float32, "copied"},
                  {"sgd,learning_rate=0.1,momentum=0.9", DType::float32, "borrowed"},
                  {"adam", DType::float32, "two"},
                  {"sgd,learning_rate=0.1,multi_precision=true", DType::bfloat16, "allocated"}});
  }
  for (const Case& how : cases) {
    for (const auto& layout : {std::vector{1, 1}, {2, 1}}) {
      CAPTURE(how.rule);
      CAPTURE(how.value);
      std::atomic<int> right{0};
      const auto outcomes = test::as_ranks(layout, {}, [&](Communicator& comm) {
        if (has_bits_of_whole_push(comm, how)) ++right;
      });
      CHECK(test::all_returned(outcomes));
      CHECK(right == test::size_of_job(layout));
    }
  }
}

/// The tensors have 6 or 12 MB, of which a slice is half a MiB at first, or 4 MiB where there is
/// one queue.
TEST_CASE("a large allreduce_async in slices has the bits of a whole one") {
  struct Row {
    bool is_beside_store;
    DType dtype;
    bool has_slices;
  };
  for (const Row& row : {Row{true, DType::float32, true}, Row{false, DType::float64, true},
                         Row{false, DType::float32, false}}) {
    CAPTURE(row.is_beside_store);
    CAPTURE(row.has_slices);
    std::atomic<int> right{0};
    const auto outcomes = test::as_ranks({1, 2}, {}, [&](Communicator& comm) {
      std::optional<KVStore> store;
      if (row.is_beside_store) store = KVStore::create(comm);
      Tensor one = values(comm.rank(), row.dtype, 1);
      Tensor other = values(comm.rank(), row.dtype, 1);
      comm.allreduce_async(one).wait();
      comm.allreduce(other);
      const bool has_slices = comm.statistics().total("allreduce_async").calls > 1;
      if (has_same_bits(one, other) && has_slices == row.has_slices) ++right;
    });
    CHECK(test::all_returned(outcomes));
    CHECK(right == 3);
  }
}

TEST_CASE("an urgent push overtakes a large one that is under way") {
  constexpr int kInFirstSlice = 10;
  std::atomic<int> messages{0};
  std::atomic<int> urgent{0};
  std::vector<std::int64_t> order;
  const auto hold = [&](int, int, int) {
    if (++messages > kInFirstSlice) {
      while (urgent.load() != 2) std::this_thread::yield();
    }
    return true;
  };
  std::atomic<bool> holds{false};
  const auto outcomes = test::as_ranks(
      {1, 1}, {},
      [&](Communicator& comm) {
        KVStore kv = KVStore::create(comm);
        kv.init({1, 2}, {Tensor::zeros({4'000'000}), Tensor::zeros({1000})});
        kv.set_updater([&](const Key& key, ConstTensorView, TensorView) {
          if (comm.rank() == 0) order.push_back(key.number());
        });
        comm.barrier();
        holds = true;
        const Pending large = kv.push_async(1, Tensor::ones({4'000'000}));
        while (messages.load() <= kInFirstSlice) std::this_thread::yield();
        const Pending first = kv.push_async(2, Tensor::ones({1000}), {.priority = 1});
        ++urgent;
        first.wait();
        large.wait();
      },
      [&](int from, int to, int tag) { return holds.load() ? hold(from, to, tag) : true; });
  CHECK(test::all_returned(outcomes));
  CHECK(order == std::vector<std::int64_t>{2, 1});
}

// After the first slice the speed of the link is known: then the rest could go with others as one
// batch.
TEST_CASE("urgent pushes between slices of a large one leave what is summed as it is") {
  constexpr std::int64_t kSliced = 300'000;  // a little more than two slices of half a MiB
  std::atomic<int> wrong{0};
  for (int run = 0; run < (test::kFewRounds ? 5 : 20); ++run) {
    const auto outcomes = test::as_ranks({1, 1}, {}, [&](Communicator& comm) {
      KVStore kv = KVStore::create(comm);
      kv.init({1, 2}, {Tensor::zeros({kSliced}), Tensor::zeros({1000})});
      const Pending large = kv.push_async(1, Tensor::ones({kSliced}));
      for (int urgent = 0; urgent < 20; ++urgent) {
        kv.push_async(2, Tensor::ones({1000}), {.priority = 1}).wait();
      }
      kv.barrier();
      for (const float value : kv.view(1).values<float>()) {
        if (value != 2) ++wrong;
      }
    });
    CHECK(test::all_returned(outcomes));
  }
  CHECK(wrong == 0);
}

TEST_CASE("an error of one rank's large value is thrown on all ranks, and the store goes on") {
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({1, 1}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::zeros({kLarge}));
    const Pending sent = kv.push_async(1, Tensor::ones({comm.rank() == 1 ? kLarge + 1 : kLarge}));
    try {
      sent.wait();
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.recoverable() && text.find("rank 1") != text.npos &&
          text.find("push_async: key 1") != text.npos) {
        ++right;
      }
    }
    kv.push_async(1, Tensor::ones({kLarge})).wait();
    if (kv.view(1).value<float>(kLarge - 1) == 2) ++right;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 4);
}

TEST_CASE("what a push in slices heals is counted") {
  Settings settings;
  settings.verify = Verify::full;
  settings.log = LogLevel::quiet;
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({1, 1, 1}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::zeros({kLarge}));
    if (comm.rank() == 2) const_cast<std::byte*>(kv.view(1).bytes())[5] ^= std::byte{1};
    kv.push_async(1, Tensor::ones({kLarge})).wait();
    const VerifyResult found = kv.verify();
    if (found.healed == 0 && found.healed_since_creation == 1) ++right;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 3);
}

TEST_CASE("what an updater throws after the last slice fails all ranks") {
  const auto outcomes = test::as_ranks({1, 1}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::zeros({kLarge}));
    kv.set_updater([&](const Key&, ConstTensorView, TensorView) {
      if (comm.rank() == 1) throw std::runtime_error("no such thing");
    });
    kv.push_async(1, Tensor::ones({kLarge})).wait();
    kv.barrier();
  });
  CHECK(test::all_say(outcomes, ErrorCode::user_code, "no such thing"));
}
