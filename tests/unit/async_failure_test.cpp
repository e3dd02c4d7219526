// SPDX-License-Identifier: Apache-2.0
// Errors of asynchronous calls, with threads as ranks.
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

#include "tutti/kvstore.hpp"

#include "runtime/job/async_calls.hpp"
#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/standard_error.hpp"
#include "unit/threads.hpp"

using namespace tutti;

TEST_CASE("an error of one rank's value is thrown at wait() on all ranks, and the store goes on") {
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({3}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(3, Tensor::full({20}, 0));
    const Pending sent = kv.push_async(3, Tensor::full({comm.rank() == 1 ? 21 : 20}, 1));
    try {
      sent.wait();
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.code() == ErrorCode::invalid_argument && error.recoverable() &&
          text.find("push_async") != text.npos && text.find("key 3") != text.npos &&
          text.find("rank 1") != text.npos) {
        ++right;
      }
    }
    kv.push_async(3, Tensor::full({20}, 1)).wait();
    if (kv.view(3).value<float>(0) == 3) ++right;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(right == 6);
}

TEST_CASE("what is wrong without the other ranks is thrown at once") {
  const auto outcomes = test::as_ranks({1}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(3, Tensor::full({20}, 0));
    test::expect_error([&] { (void)kv.push_async(4, Tensor::full({20}, 1)); }, test::kInvalid,
                       {"key 4"});
    CHECK_THROWS_AS(kv.push_async({3}, std::vector<Tensor>{}), Error);
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE(
    "an updater that does not return ends a process that destroys its store, at the deadline") {
  const std::string said = test::written_by([] {
    const test::ChildEnd end = test::in_child([]() -> std::string {
      Settings settings;
      settings.timeout = test::kShortDeadline;
      KVStore kv = KVStore::create(Communicator::self(settings));
      kv.init(1, Tensor::full({5}, 0));
      std::atomic<bool> is_in{false};
      kv.set_updater([&](const Key&, ConstTensorView, TensorView) {
        is_in = true;
        for (;;) pause();
      });
      static_cast<void>(kv.push_async(1, Tensor::full({5}, 1)));
      while (!is_in) std::this_thread::yield();
      return "never comes to its end";
    });
    CHECK(end.signal == 0);
    CHECK(end.code == exit_code(ErrorCode::timeout));
  });
  CHECK(said.find("See whether an updater returns") != std::string::npos);
}

TEST_CASE("a key that another rank never pushes is named with the ranks when the deadline passes") {
  Settings settings;
  settings.timeout = test::kShortDeadline;
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init({1, 2}, {Tensor::full({5}, 0), Tensor::full({5}, 0)});
    kv.push_async(1 + comm.rank(), Tensor::full({5}, 1)).wait();
  });
  CHECK(test::all_say(outcomes, ErrorCode::timeout, "push of key 1 (5) float32: rank 0"));
  CHECK(test::all_say(outcomes, ErrorCode::timeout, "made the call, and rank 1"));
  CHECK(test::all_say(outcomes, ErrorCode::timeout, "push of key 2 (5) float32: rank 1"));
  CHECK(test::all_say(outcomes, ErrorCode::timeout, "or raise TUTTI_TIMEOUT"));
}

TEST_CASE("a rank that pushes nothing is missed when the deadline passes") {
  Settings settings;
  settings.timeout = test::kShortDeadline;
  std::atomic<bool> has_failed{false};
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({5}, 0));
    if (comm.rank() == 0) {
      try {
        kv.push_async(1, Tensor::full({5}, 1)).wait();
      } catch (const Error&) {
        has_failed = true;
        throw;
      }
    }
    while (!has_failed) std::this_thread::yield();
  });
  REQUIRE(outcomes[0]);
  CHECK(outcomes[0]->code() == ErrorCode::timeout);
  const std::string text = outcomes[0]->what();
  CHECK(text.find("this rank has push of key 1 (5) float32") != text.npos);
  CHECK(text.find("rank 1") != text.npos);
}

TEST_CASE("a synchronous call that meets another rank's push is a mismatch on all ranks") {
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({5}, 0));
    if (comm.rank() == 0) {
      kv.push_async(1, Tensor::full({5}, 1)).wait();
    } else {
      kv.barrier();
    }
  });
  CHECK(test::all_say(outcomes, ErrorCode::mismatch, "barrier"));
  CHECK(test::all_say(outcomes, ErrorCode::mismatch, "push of key 1"));
}

TEST_CASE("an error that a helper thread met first is reported by one rank in its next call") {
  for (const auto& nodes : {std::vector{2}, {1, 1}}) {
    const auto outcomes = test::as_ranks(nodes, {}, [&](Communicator& comm) {
      KVStore kv = KVStore::create(comm);
      kv.init(1, Tensor::full({5}, 0));
      if (comm.rank() == 1) return kv.barrier();
      static_cast<void>(kv.push_async(1, Tensor::full({5}, 1)));  // its error is never asked for
      while (!comm.group()->failed()) std::this_thread::yield();
      static_cast<void>(kv.push_async(1, Tensor::full({5}, 1)));
    });
    REQUIRE(test::all_say(outcomes, ErrorCode::mismatch, "barrier"));
    CHECK(outcomes[0]->reporter());
    CHECK_FALSE(outcomes[1]->reporter());
  }
}

TEST_CASE(
    "a deadline that helper threads meet is reported by a rank that waits for nothing of it") {
  Settings settings;
  settings.timeout = test::kShortDeadline;
  for (const auto& nodes : {std::vector{2}, {1, 1}}) {
    const auto outcomes = test::as_ranks(nodes, settings, [&](Communicator& comm) {
      KVStore kv = KVStore::create(comm);
      kv.init({1, 2}, {Tensor::full({5}, 0), Tensor::full({5}, 0)});
      static_cast<void>(kv.push_async(1 + comm.rank(), Tensor::full({5}, 1)));
      kv.barrier();
    });
    CHECK(test::all_say(outcomes, ErrorCode::timeout, "made the call, and rank 1"));
  }
}

TEST_CASE("a rank that ends MPI with calls under way says so") {
  const std::string said = test::written_by([] {
    test::as_ranks({2}, {}, [&](Communicator& comm) {
      KVStore kv = KVStore::create(comm);
      kv.init(1, Tensor::full({5}, 0));
      if (comm.rank() == 0) static_cast<void>(kv.push_async(1, Tensor::full({5}, 1)));
      if (comm.rank() == 0) park_async_calls(/*tells_others=*/true);
      while (!comm.group()->failed()) std::this_thread::yield();
    });
  });
  CAPTURE(said);
  CHECK(said.find("error: the program ends MPI before its asynchronous calls are complete (push of "
                  "key 1") != std::string::npos);
}

TEST_CASE("ranks that made different stores over a communicator are a mismatch") {
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    std::optional<KVStore> unknown;
    if (comm.rank() == 1) unknown.emplace(KVStore::create(comm));
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({5}, 0));
    kv.push_async(1, Tensor::full({5}, 1)).wait();
  });
  CHECK(test::all_say(outcomes, ErrorCode::mismatch, "asynchronous calls"));
}

TEST_CASE("what an updater throws fails all ranks") {
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({5}, 0));
    kv.set_updater([&](const Key&, ConstTensorView, TensorView) {
      if (comm.rank() == 1) throw std::runtime_error("no such thing");
    });
    // The error comes here, or in the next call: see push().
    kv.push_async(1, Tensor::full({5}, 1)).wait();
    kv.barrier();
  });
  CHECK(test::all_say(outcomes, ErrorCode::user_code, "no such thing"));
}

TEST_CASE("a store that is destroyed with pushes under way fails all ranks, and leaves no thread") {
  std::atomic<bool> is_destroyed{false};
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      Pending sent;
      {
        KVStore kv = KVStore::create(comm);
        kv.init(1, Tensor::full({5}, 0));
        sent = kv.push_async(1, Tensor::full({5}, 1));
      }
      is_destroyed = true;
      try {
        sent.wait();
      } catch (const Error& error) {
        if (error.code() == ErrorCode::communication) ++right;
      }
    } else {
      KVStore kv = KVStore::create(comm);
      kv.init(1, Tensor::full({5}, 0));
      while (!is_destroyed) std::this_thread::yield();
      kv.push_async(1, Tensor::full({5}, 1)).wait();
    }
  });
  CHECK(right == 1);
  REQUIRE(outcomes[1]);
  CHECK(outcomes[1]->code() == ErrorCode::communication);
  CHECK(std::string(outcomes[1]->what()).find("destroyed") != std::string::npos);
}

TEST_CASE("a store that is destroyed when its last push ends leaves the group as it is") {
  constexpr int kTries = test::kFewCases ? 10 : 60;
  int poisoned = 0;
  int complete = 0;
  for (int i = 0; i < kTries; ++i) {
    std::optional<bool> is_usable;  // of a group whose push has succeeded on rank 0
    static_cast<void>(test::as_ranks({2}, {}, [&](Communicator& comm) {
      std::optional<KVStore> first(KVStore::create(comm));
      KVStore second = KVStore::create(comm);
      first->init(1, Tensor::full({5000}, 0));
      second.init(1, Tensor::full({5}, 0));
      const Pending sent = first->push_async(1, Tensor::full({5000}, 1));
      if (comm.rank() != 0) sent.wait();
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(3 * i);
      while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
      first.reset();
      sent.wait();
      if (comm.rank() == 0) is_usable = false;
      second.push_async(1, Tensor::full({5}, 1)).wait();
      if (comm.rank() == 0) is_usable = true;
    }));
    if (is_usable) ++complete;
    if (is_usable && !*is_usable) ++poisoned;
  }
  CAPTURE(complete);
  CHECK(poisoned == 0);
}

TEST_CASE("a communicator that is destroyed with calls under way fails all ranks") {
  std::atomic<bool> is_destroyed{false};
  auto groups = make_thread_groups({2}, {});
  const auto outcomes = test::run_ranks(std::move(groups), [&](Communicator& comm) {
    Tensor data = Tensor::full({5}, 1);
    if (comm.rank() == 0) {
      static_cast<void>(comm.allreduce_async(data));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      comm = Communicator::self();
      is_destroyed = true;
    } else {
      while (!is_destroyed) std::this_thread::yield();
      comm.allreduce_async(data).wait();
    }
  });
  REQUIRE(outcomes[1]);
  CHECK(outcomes[1]->code() == ErrorCode::communication);
}

TEST_CASE("an invalid allreduce_async throws at wait() on all ranks") {
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    Tensor data = Tensor::full({5}, 1);
    Tensor other = Tensor::full({6}, 1);
    comm.allreduce_async(data, comm.rank() == 1 ? other : data).wait();
  });
  CHECK(test::all_say(outcomes, ErrorCode::invalid_argument, "must be alike"));
}

TEST_CASE("with TUTTI_ASYNC=1 the next collective call throws what a push failed with") {
  Settings settings;
  settings.asynchronous = true;
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({50}, 0));
    kv.push(1, Tensor::full({comm.rank() == 1 ? 51 : 50}, 1));
    kv.barrier();
  });
  CHECK(test::all_say(outcomes, ErrorCode::invalid_argument, "key 1"));
}

TEST_CASE("with TUTTI_ASYNC=1 what a push failed with is thrown once, and each push is made") {
  Settings settings;
  settings.asynchronous = true;
  std::atomic<int> told{0};
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({50}, 0));
    kv.push(1, Tensor::full({comm.rank() == 1 ? 51 : 50}, 1));
    const auto hears = [&](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        const bool is_said = std::string(error.what()).find("key 1") != std::string::npos;
        if (is_said && error.recoverable()) ++told;
      }
    };
    for (int i = 0; i < 200; ++i) hears([&] { kv.push(1, Tensor::full({50}, i)); });
    hears([&] { kv.barrier(); });
    if (kv.view(1).value<float>(0) == 2 * 199) ++told;
    kv.push(1, Tensor::full({50}, 7));
    if (kv.view(1).value<float>(49) == 14) ++told;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(told == 6);
}

namespace {

/// True if the call throws the error of the push of key 1, and the store goes on.
bool tells_of_key_1(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.recoverable() && std::string(error.what()).find("key 1 (50)") != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE(
    "with TUTTI_ASYNC=1 no push throws, whatever the ranks' timing, and one collective does") {
  Settings settings;
  settings.asynchronous = true;
  std::atomic<int> told{0};
  std::atomic<int> thrown{0};
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init({1, 2}, {Tensor::full({50}, 0), Tensor::full({50}, 0)});
    for (int round = 0; round < 3; ++round) {
      const bool is_late = comm.rank() == round % 2;
      kv.push(1, Tensor::full({comm.rank() == 1 ? 51 : 50}, 1));
      for (int i = 0; i < 100; ++i) {
        if (is_late && i % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (tells_of_key_1([&] { kv.push(2, Tensor::full({50}, i)); })) ++thrown;
      }
      if (!is_late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      for (int i = 0; i < 100; ++i) {
        if (tells_of_key_1([&] { kv.push(2, Tensor::full({50}, i)); })) ++thrown;
      }
      if (tells_of_key_1([&] { kv.barrier(); })) ++told;
      kv.barrier();
    }
    if (kv.view(2).value<float>(0) == 2 * 99) ++told;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(thrown == 0);
  CHECK(told == 8);
}

TEST_CASE("with TUTTI_ASYNC=1 a pull of the key throws, and all ranks' next collective call does") {
  Settings settings;
  settings.asynchronous = true;
  std::atomic<int> told{0};
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init({1, 2}, {Tensor::full({50}, 3), Tensor::full({50}, 0)});
    kv.push(1, Tensor::full({comm.rank() == 1 ? 51 : 50}, 1));
    kv.push(2, Tensor::full({50}, 1));
    Tensor pulled = Tensor::zeros({50});
    if (comm.rank() == 0) {
      kv.pull(2, pulled);  // another key
      if (tells_of_key_1([&] { kv.pull(1, pulled); })) ++told;
      kv.pull(1, pulled);  // its error has been told
      if (pulled.value<float>(7) == 3 && kv.view(1).value<float>(7) == 3) ++told;
    }
    if (tells_of_key_1([&] { kv.barrier(); })) ++told;
    kv.barrier();
    if (comm.rank() == 1 && kv.view(1).value<float>(7) == 3) ++told;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(told == 5);
}

TEST_CASE("ranks throw the error of the same push, in whatever order they have pushed") {
  Settings settings;
  settings.asynchronous = true;
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init({1, 2}, {Tensor::full({50}, 3), Tensor::full({50}, 0)});
    const Tensor wrong = Tensor::full({51}, 1);
    for (const int key : {1 + comm.rank(), 2 - comm.rank()}) kv.push(key, wrong);
    kv.barrier();
  });
  REQUIRE((outcomes[0] && outcomes[1]));
  CHECK(std::string(outcomes[0]->what()) == outcomes[1]->what());
}

TEST_CASE("a push that does not fit leaves those that share its batch as they should be") {
  std::atomic<int> right{0};
  for (const auto& layout : {std::vector{2}, {1, 1}}) {
    const auto outcomes = test::as_ranks(layout, {}, [&](Communicator& comm) {
      KVStore kv = KVStore::create(comm);
      const Tensor zeros = Tensor::full({50}, 0);
      kv.init({1, 2, 3}, {zeros, zeros, zeros});
      const Tensor ones = Tensor::full({50}, 1);
      const Tensor wrong = Tensor::full({comm.rank() == 1 ? 51 : 50}, 1);
      const Pending sent = kv.push_async({2, 1, 3}, {ones, wrong, ones});
      if (tells_of_key_1([&] { sent.wait(); })) ++right;
      if (kv.view(2).value<float>(0) == 2 && kv.view(3).value<float>(49) == 2) ++right;
      if (kv.view(1).value<float>(0) == 0) ++right;
      kv.push_async(1, ones).wait();
      if (kv.view(1).value<float>(0) == 2) ++right;
    });
    CHECK(test::all_returned(outcomes));
  }
  CHECK(right == 16);
}

TEST_CASE("an updater that waits for another push is an error, not a hang") {
  const auto outcomes = test::as_ranks({2}, {}, [](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.set_gradient_compression("fp16");  // so that each key is pushed alone
    kv.init({1, 2}, {Tensor::full({5}, 0), Tensor::full({5}, 0)});
    std::atomic<bool> is_made{false};
    Pending second;
    kv.set_updater([&](const Key& key, ConstTensorView, TensorView) {
      while (!is_made) std::this_thread::yield();
      if (key == Key(1)) second.wait();
    });
    const Pending first = kv.push_async(1, Tensor::full({5}, 1), {.priority = 1});
    second = kv.push_async(2, Tensor::full({5}, 1));
    is_made = true;
    first.wait();
    kv.barrier();
  });
  CHECK(test::all_say(outcomes, ErrorCode::user_code, "an updater waits for an asynchronous call"));
}
