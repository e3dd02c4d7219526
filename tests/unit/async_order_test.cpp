// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls of several stores and threads, and of ranks that are out of step.
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "unit/threads.hpp"

using namespace tutti;

namespace {

using std::chrono::milliseconds;

Settings with_deadline(milliseconds timeout) {
  Settings settings;
  settings.timeout = timeout;
  return settings;
}

KVStore store_with_keys(Communicator& comm, int keys) {
  KVStore kv = KVStore::create(comm);
  for (int key = 0; key < keys; ++key) kv.init(key, Tensor::full({30}, 0));
  return kv;
}

/// The error that a call throws.
template <class Call>
std::optional<Error> error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

bool says(const std::optional<Error>& error, const std::string& words) {
  return error && std::string(error->what()).find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a thread that waits for a push is told when another one destroys the store") {
  // The waiter drives the push, or the helper does.
  for (const auto begins_after : {milliseconds(0), milliseconds(30)}) {
    std::atomic<bool> is_over{false};
    std::optional<Error> found;
    Settings settings = with_deadline(std::chrono::hours(1));
    settings.threads = 1;  // the helper leaves the first milliseconds to the waiter
    const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
      auto kv = std::make_unique<KVStore>(store_with_keys(comm, 1));
      kv->push_async(0, Tensor::full({30}, 1)).wait();
      std::this_thread::sleep_for(milliseconds(20));  // the helper sleeps again
      if (comm.rank() == 1) {
        while (!is_over) std::this_thread::yield();
        return;
      }
      const Pending sent = kv->push_async(0, Tensor::full({30}, 1));
      std::this_thread::sleep_for(begins_after);
      std::thread waiter([&] { found = error_of([&] { sent.wait(); }); });
      std::this_thread::sleep_for(milliseconds(30));
      kv.reset();
      comm = Communicator::self();
      waiter.join();
      is_over = true;
    });
    CHECK(says(found, "destroyed"));
  }
}

TEST_CASE("many threads wait for pushes, and all return") {
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({2, 1}, {}, [&](Communicator& comm) {
    KVStore kv = store_with_keys(comm, 8);
    for (int round = 0; round < (test::kFewRounds ? 20 : 200); ++round) {
      std::vector<std::thread> waiters;
      for (int key = 0; key < 8; ++key) {
        const Pending sent = kv.push_async(key, Tensor::full({30}, 1), {.priority = key});
        if (key % 2 == 0) waiters.emplace_back([sent] { sent.wait(); });
      }
      for (std::thread& waiter : waiters) waiter.join();
    }
    kv.barrier();
    if (kv.view(7).value<float>(29) == 3) ++right;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 3);
}

TEST_CASE("stores of one communicator may begin with pushes in any order") {
  std::atomic<int> right{0};
  const auto outcomes =
      test::as_ranks({2}, with_deadline(std::chrono::seconds(20)), [&](Communicator& comm) {
        KVStore one = store_with_keys(comm, 1);
        KVStore other = store_with_keys(comm, 2);
        KVStore& first = comm.rank() == 0 ? one : other;
        KVStore& second = comm.rank() == 0 ? other : one;
        const Pending sent = first.push_async(0, Tensor::ones({30}));
        std::this_thread::sleep_for(milliseconds(20));
        second.push_async(0, Tensor::ones({30})).wait();
        sent.wait();
        if (one.view(0).value() == 2) ++right;
        if (other.view(0).value() == 2) ++right;
      });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 4);
}

TEST_CASE("a store may end while the pushes of another one go on") {
  std::atomic<int> right{0};
  const auto outcomes =
      test::as_ranks({2}, with_deadline(std::chrono::seconds(20)), [&](Communicator& comm) {
        for (int round = 0; round < 20; ++round) {
          auto one = std::make_unique<KVStore>(store_with_keys(comm, 3));
          KVStore other = store_with_keys(comm, 2);
          one->push_async(1, Tensor::ones({30})).wait();
          other.push_async(0, Tensor::ones({30})).wait();
          const Pending sent = other.push_async(1, Tensor::ones({30}));
          if (comm.rank() == 0) one.reset();
          if (comm.rank() == 0) std::this_thread::sleep_for(milliseconds(8));
          const Pending last = other.push_async(0, Tensor::full({30}, 4));
          last.wait();
          sent.wait();
          one.reset();
          other.push_async(1, Tensor::full({30}, 3)).wait();
          if (other.view(0).value() == 8 && other.view(1).value() == 6) ++right;
        }
      });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 40);
}

TEST_CASE("an optimizer that is changed by its own handle waits for the pushes under way") {
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    Communicator other = comm.split(0);
    KVStore kv = KVStore::create(comm);
    KVStore second = KVStore::create(other);
    const auto sgd = optimizer::sgd({.learning_rate = 1});
    for (KVStore* store : {&kv, &second}) {
      store->init(1, Tensor::zeros({50}));
      store->set_optimizer(sgd);
    }
    const Tensor ones = Tensor::ones({50});
    const std::vector<std::function<void()>> changes = {
        [&] { sgd->set_learning_rate(0.5); }, [&] { sgd->set_lr_mult(1, 2); },
        [&] { sgd->set_wd_mult(1, 0.5); },
        [&] { sgd->set_schedule(Schedule{schedule::Factor{.step = 1, .factor = 0.5}}); }};
    for (const auto& change : changes) {
      if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const Pending one = kv.push_async(1, ones);
      const Pending another = second.push_async(1, ones);
      change();
      if (one.ready() && another.ready()) ++right;
      one.wait();
      another.wait();
    }
    const float expected = -2 * (1 + 0.5f + 1 + 1);
    for (KVStore* store : {&kv, &second}) {
      if (store->view(1).value<float>(7) == expected) ++right;
    }
  });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 2 * (4 + 2));
}

TEST_CASE("an optimizer may be changed in an updater, and when its stores are gone") {
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    const auto sgd = optimizer::sgd({.learning_rate = 1});
    {
      KVStore kv = KVStore::create(comm);
      KVStore other = KVStore::create(comm);
      kv.init(1, Tensor::zeros({50}));
      other.init(1, Tensor::zeros({50}));
      kv.set_optimizer(sgd);
      other.set_updater([&](const Key&, ConstTensorView, TensorView) {
        sgd->set_learning_rate(sgd->learning_rate() / 2);
      });
      const Tensor ones = Tensor::ones({50});
      for (int i = 0; i < 3; ++i) {
        const Pending changing = other.push_async(1, ones);
        const Pending changed = kv.push_async(1, ones);
        changing.wait();
        changed.wait();
      }
      kv.set_updater(nullptr);  // the store runs the optimizer no more
      const Pending pushed = kv.push_async(1, ones);
      sgd->set_learning_rate(3);
      pushed.wait();
    }
    sgd->set_learning_rate(4);
    if (sgd->learning_rate() == 4) ++right;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 2);
}

TEST_CASE("ranks that give a push different priorities fail together, and say why") {
  std::atomic<int> right{0};
  std::atomic<int> queued{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = store_with_keys(comm, 3);
    kv.set_gradient_compression("fp16");  // so that each key is pushed alone
    std::atomic<bool> is_held{false};
    kv.set_updater([&](const Key& key, ConstTensorView, TensorView) {
      if (key != Key(2)) return;
      is_held = true;
      while (queued.load() < 2) std::this_thread::yield();  // so that both wait for one round
    });
    const Pending held = kv.push_async(2, Tensor::ones({30}));
    while (!is_held) std::this_thread::yield();
    std::vector<Pending> pending;
    for (const int key : {0, 1}) {
      const int priority = comm.rank() == 0 ? key : -key;
      pending.push_back(kv.push_async(key, Tensor::ones({30}), {.priority = priority}));
    }
    ++queued;
    held.wait();
    for (const Pending& one : pending) {
      const auto error = error_of([&] { one.wait(); });
      if (says(error, "equal priority") && error->code() == ErrorCode::mismatch &&
          !error->recoverable()) {
        ++right;
      }
    }
    kv.push(0, Tensor::ones({30}));
  });
  CHECK(test::all_say(outcomes, ErrorCode::mismatch, "equal priority"));
  CHECK(right == 4);
}

TEST_CASE(
    "a push that met another call fails the store: its later ones would meet the wrong ones") {
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = store_with_keys(comm, 1);
    const auto error = error_of([&] {
      if (comm.rank() == 0) {
        kv.push_async(0, Tensor::ones({30})).wait();
      } else {
        kv.barrier();
      }
    });
    if (says(error, "barrier") && error->code() == ErrorCode::mismatch) ++right;
    if (comm.rank() == 0 && !error->recoverable()) ++right;
    kv.push_async(0, Tensor::ones({30})).wait();
  });
  CHECK(test::all_say(outcomes, ErrorCode::mismatch, "barrier"));
  CHECK(right == 3);
}
