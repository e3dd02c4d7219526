// SPDX-License-Identifier: Apache-2.0
// Early ends of calls: failures, and replicas that differ. Threads as ranks.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tutti/kvstore.hpp"
#include "tutti/preemption.hpp"

#include "collectives/lanes/exchange.hpp"
#include "collectives/wait/wait.hpp"
#include "unit/threads.hpp"

using namespace tutti;

// --- failures ------------------------------------------------------------------------------------

// Calls that cannot be carried out, with threads as ranks: an error on every rank, never a hang.

namespace {

const std::vector<std::vector<int>> kLayouts{{4}, {2, 2}, {1, 3}, {1, 1, 1, 1}};

Settings with_timeout(double seconds) {
  Settings settings;
  settings.chunk_bytes = 4096;
  settings.piece_bytes = 4096;
  settings.timeout = std::chrono::duration<double>(seconds);
  settings.log = tutti::LogLevel::quiet;
  return settings;
}

bool contains(const Error& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

/// True if a communicator still works: the sum of ones over all ranks is right.
bool still_works(Communicator& comm) {
  Tensor ones = Tensor::ones({5000});
  comm.allreduce(ones);
  return ones.values<float>()[4999] == static_cast<float>(comm.size());
}

}  // namespace

TEST_CASE("a call that differs on one rank is an error on all, and the group works afterwards") {
  for (const auto& nodes : kLayouts) {
    std::atomic<int> fine{0};
    const auto outcomes = test::as_ranks(nodes, with_timeout(60), [&](Communicator& comm) {
      try {
        Tensor data = Tensor::ones({comm.rank() == 2 ? 7 : 5});
        comm.allreduce(data);
      } catch (const Error& error) {
        const bool told = error.code() == ErrorCode::mismatch && error.recoverable() &&
                          error.scope() == ErrorScope::agreed &&
                          error.reporter() == (comm.rank() == 0) && contains(error, "rank 2 ") &&
                          contains(error, "(7)") && contains(error, "ranks 0, 1 and 3");
        if (told && still_works(comm)) ++fine;
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(fine == 4);
  }
}

TEST_CASE("different kinds of calls are told apart") {
  std::atomic<int> fine{0};
  test::as_ranks({2, 2}, with_timeout(60), [&](Communicator& comm) {
    try {
      Tensor data = Tensor::ones({5});
      if (comm.rank() == 3) comm.barrier();
      if (comm.rank() != 3) comm.allreduce(data, ReduceOp::max);
    } catch (const Error& error) {
      if (contains(error, "rank 3 ") && contains(error, "barrier") &&
          contains(error, "allreduce (max)") && still_works(comm)) {
        ++fine;
      }
    }
  });
  CHECK(fine == 4);
}

TEST_CASE("a call refused on one rank throws that rank's reason on all") {
  for (const auto& nodes : kLayouts) {
    std::atomic<int> fine{0};
    test::as_ranks(nodes, with_timeout(60), [&](Communicator& comm) {
      try {
        Tensor data = Tensor::ones({5});
        Tensor other = Tensor::ones({6});
        comm.allreduce(data, comm.rank() == 1 ? other.view() : data.view());
      } catch (const Error& error) {
        if (error.code() == ErrorCode::invalid_argument && contains(error, "rank 1 ") &&
            contains(error, "(5) float32") && contains(error, "(6) float32") && still_works(comm)) {
          ++fine;
        }
      }
    });
    CHECK(fine == 4);
  }
}

namespace {

/// Takes all shared memory that this rank can get.
std::vector<Tensor> fill_arena(Communicator& comm) {
  std::vector<Tensor> taken;
  for (std::int64_t bytes = std::int64_t{1} << 24; bytes > 0;) {
    try {
      taken.push_back(comm.allocate({bytes}, DType::uint8));
    } catch (const Error&) {
      bytes /= 2;
    }
  }
  return taken;
}

/// Sums so many tensors of one element in one call.
void sum_of_many(Communicator& comm, std::size_t count) {
  std::vector<float> data(count, 1.0f);
  std::vector<collectives::Segment> segments;
  for (float& value : data) {
    auto* bytes = reinterpret_cast<std::byte*>(&value);
    segments.push_back({bytes, bytes, 1, DType::float32});
  }
  const auto describe = [] { return std::string("sum of many"); };
  comm.group()->engine().run(
      {.kind = collectives::Kind::allreduce, .segments = segments, .describe = describe});
  if (data.back() != static_cast<float>(comm.size())) {
    throw Error(ErrorCode::divergence, "the sum is " + std::to_string(data.back()));
  }
}

}  // namespace

TEST_CASE("a rank whose memory is full cannot announce a call, and all ranks throw that") {
  constexpr std::size_t kArenaBytes = std::size_t{64} << 20;
  for (const auto& nodes : kLayouts) {
    std::atomic<int> fine{0};
    const auto body = [&](Communicator& comm) {
      if (comm.size() == comm.num_nodes()) return;  // alone on a node, it announces nothing
      std::vector<Tensor> taken;
      if (comm.rank() == 1) taken = fill_arena(comm);
      try {
        sum_of_many(comm, 3000);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory && error.scope() == ErrorScope::agreed &&
            contains(error, "rank 1 ") && contains(error, "sum of many")) {
          ++fine;
        }
      }
      taken.clear();
      sum_of_many(comm, 3000);
    };
    const auto outcomes =
        test::run_ranks(make_thread_groups(nodes, with_timeout(20), {}, kArenaBytes), body);
    CHECK(test::all_returned(outcomes));
    CHECK((fine == 4 || nodes.size() == 4));
  }
}

TEST_CASE("agree throws the lowest failing rank's error on all ranks") {
  std::atomic<int> fine{0};
  test::as_ranks({2, 2}, with_timeout(60), [&](Communicator& comm) {
    comm.agree([] {});
    try {
      comm.agree([&] {
        if (comm.rank() == 1) throw Error(ErrorCode::io, "no such file");
        if (comm.rank() == 3) throw std::runtime_error("something else");
      });
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io && contains(error, "rank 1 ") &&
          contains(error, "no such file") && still_works(comm)) {
        ++fine;
      }
    }
  });
  CHECK(fine == 4);
}

TEST_CASE("agree: what ranks of another group have agreed on reaches all ranks") {
  for (const auto& nodes : {std::vector{3}, {1, 2}}) {
    std::atomic<int> fine{0};
    test::as_ranks(nodes, with_timeout(test::kShortDeadline.count()), [&](Communicator& comm) {
      Communicator part = comm.split(comm.rank() == 0 ? 0 : 1);
      try {
        comm.agree([&] {
          if (comm.rank() == 0) return;
          part.agree([&] {
            if (comm.rank() == 2) throw Error(ErrorCode::io, "no such file");
          });
        });
      } catch (const Error& error) {
        if (error.code() == ErrorCode::io && error.scope() == ErrorScope::agreed &&
            error.reporter() == (comm.rank() == 0) && contains(error, "no such file") &&
            still_works(comm) && still_works(part)) {
          ++fine;
        }
      }
    });
    CHECK(fine == 3);
  }
}

TEST_CASE("agree: what a call of the group itself in it throws is an error of all ranks") {
  std::atomic<int> fine{0};
  test::as_ranks({3}, with_timeout(test::kShortDeadline.count()), [&](Communicator& comm) {
    for (const int catches : {3, 1}) {  // no rank, or rank 1
      try {
        comm.agree([&] {
          try {
            Tensor data = Tensor::ones({comm.rank() == 2 ? 7 : 5});
            comm.allreduce(data);
          } catch (const Error&) {
            if (comm.rank() != catches) throw;
          }
        });
      } catch (const Error& error) {
        if (error.code() == ErrorCode::mismatch && error.scope() == ErrorScope::agreed &&
            error.reporter() == (comm.rank() == 0) && still_works(comm)) {
          ++fine;
        }
      }
    }
  });
  CHECK(fine == 6);
}

TEST_CASE("a rank that does not come is named when the deadline passes") {
  for (const auto& nodes : kLayouts) {
    std::atomic<int> fine{0};
    std::atomic<int> waiting{3};
    test::as_ranks(nodes, with_timeout(test::kShortDeadline.count()), [&](Communicator& comm) {
      if (comm.rank() == 3) {
        while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      try {
        Tensor data = Tensor::ones({5000});
        comm.allreduce(data);
      } catch (const Error& error) {
        const bool told = error.code() == ErrorCode::timeout && !error.recoverable() &&
                          contains(error, "allreduce (sum)") && contains(error, "rank 3") &&
                          contains(error, "TUTTI_TIMEOUT");
        if (told) ++fine;
      }
      --waiting;
    });
    CHECK(fine == 3);
  }
}

TEST_CASE("the deadline's error names the missing rank of the same node") {
  std::atomic<int> waiting{2};
  const auto outcomes =
      test::as_ranks({3}, with_timeout(test::kShortDeadline.count()), [&](Communicator& comm) {
        if (comm.rank() == 1) {
          while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        const test::CountDown leaving(waiting);
        comm.barrier();
      });
  REQUIRE(outcomes[0]);
  REQUIRE(outcomes[2]);
  CHECK(contains(*outcomes[0], "rank 1 "));
  CHECK(std::string(outcomes[0]->what()) == outcomes[2]->what());
  CHECK(outcomes[0]->reporter() != outcomes[2]->reporter());  // one of them prints
}

TEST_CASE("a rank that has left is named without waiting for the deadline") {
  for (const auto& nodes : kLayouts) {
    constexpr double kNever = 3600;  // the test's own limit is far below
    const auto outcomes = test::as_ranks(nodes, with_timeout(kNever), [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 3) return;
      comm.barrier();
    });
    int named = 0;
    for (int rank = 0; rank < 3; ++rank) {
      REQUIRE(outcomes[rank]);
      CHECK(outcomes[rank]->code() == ErrorCode::communication);
      CHECK_FALSE(outcomes[rank]->recoverable());
      if (contains(*outcomes[rank], "left before this call")) ++named;
    }
    CHECK(named == 3);
  }
}

TEST_CASE("a group that has failed throws from every later call") {
  std::atomic<int> fine{0};
  std::atomic<bool> done{false};
  test::as_ranks({2}, with_timeout(test::kShortDeadline.count()), [&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (int call = 0; call < 3; ++call) {
      try {
        comm.barrier();
      } catch (const Error& error) {
        if (!error.recoverable() && contains(error, "rank 1 ")) ++fine;
      }
    }
    done = true;
  });
  CHECK(fine == 6);
}

TEST_CASE("whichever message is lost, every rank gets an error and none a wrong sum") {
  constexpr int kNone = -1;
  int messages_in_all = kNone;
  for (int lost = kNone; lost < (messages_in_all == kNone ? 1 : messages_in_all); ++lost) {
    if (test::kFewCases && lost % 3 == 1) continue;
    std::atomic<int> sent{0};
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(
        {2, 2}, with_timeout(lost == kNone ? 60 : 0.05),
        [&](Communicator& comm) {
          Tensor data = Tensor::ones({9000});  // too large for the handshakes
          comm.allreduce(data);
          for (const float value : data.values<float>()) {
            if (value != 4.0f) ++wrong;
          }
        },
        [&](int, int, int tag) { return tag < 0 || sent++ != lost; });
    CHECK(wrong == 0);
    if (lost == kNone) {
      CHECK(test::all_returned(outcomes));
      messages_in_all = sent;
      REQUIRE(messages_in_all > 4);
      continue;
    }
    CAPTURE(lost);
    int failed = 0;
    for (const auto& outcome : outcomes) failed += outcome ? 1 : 0;
    CHECK(failed > 0);
  }
}

TEST_CASE("what arrived before the group failed is no error of the call that waited for it") {
  const auto block = std::make_unique<collectives::ControlBlock>();
  const collectives::NodeMemory memory{
      .peers = {{reinterpret_cast<std::byte*>(block.get()), block.get()}},
      .arena_bytes = sizeof(collectives::ControlBlock),
  };
  const collectives::Topology topology;
  collectives::Waiter waiter(memory, topology, with_timeout(60), nullptr);
  const auto nobody = [] { return std::vector<int>(); };

  // The peer completes this call, and fails in the next, while this rank has lost its core.
  constexpr int kLongAgo = 1000;  // more polls than those that look at nothing else
  int polls = 0;
  const auto ready = [&] {
    if (++polls == kLongAgo) {
      waiter.raise_failure(ErrorCode::communication, "rank 7 left", collectives::kThisRank);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return polls > kLongAgo;
  };
  CHECK_NOTHROW(waiter.until(ready, nobody));
  try {
    waiter.until([] { return false; }, nobody);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::communication);
    CHECK(contains(error, "rank 7 left"));
  }
}

// --- replicas that differ ------------------------------------------------------------------------

// Digests that differ although the replicas do not.

namespace {

constexpr std::int64_t kCount = 20000;  // more elements than a push samples

/// Pushes, and expects the error of a difference that no comparison can mend; true if nothing
/// changed.
bool is_refused(Communicator& world) {
  KVStore kv = KVStore::create(world);
  kv.init(3, Tensor::ones({kCount}));
  try {
    kv.push(3, Tensor::ones({kCount}));
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool is_right = error.code() == ErrorCode::divergence && error.recoverable() &&
                          text.find("push of key 3") != text.npos &&
                          text.find("again and again") != text.npos;
    kv.barrier();  // all ranks can go on
    return is_right && kv.view(3).values<float>()[7] == 1;
  }
  return false;
}

}  // namespace

// Rank 0 samples all of a key and the others parts of it. A job with such settings is refused, so
// they are changed afterwards: they stand for any reason that makes equal replicas look different.
TEST_CASE("a difference that comes back after every comparison is an error on all ranks") {
  for (const auto& nodes : std::vector<std::vector<int>>{{3}, {1, 1}}) {
    Settings settings;
    settings.log = LogLevel::quiet;
    settings.verify = Verify::sampled;
    auto groups = make_thread_groups(nodes, settings);
    const_cast<Settings&>(groups[0]->settings()).verify = Verify::full;
    std::vector<char> refused(groups.size(), 0);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        Communicator world(std::move(groups[rank]));
        refused[rank] = is_refused(world) ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const char is_right : refused) CHECK(is_right == 1);
  }
}

TEST_CASE("what goes wrong while a call is refused fails the group, as in the middle of any call") {
  const auto filter = [](int from, int /*to*/, int tag) {
    if (from == 0 && tag == collectives::kStatementTag)
      throw std::runtime_error("no more messages");
    return true;
  };
  const auto body = [](Communicator& comm) {
    Tensor data = Tensor::ones({5});
    comm.broadcast(data, comm.rank() == 0 ? 99 : 0);
  };
  const auto outcomes = test::as_ranks({1, 1}, with_timeout(3600), body, filter);
  for (const auto& outcome : outcomes) {
    REQUIRE(outcome);
    CHECK(outcome->code() == ErrorCode::user_code);
    CHECK_FALSE(outcome->recoverable());
    CHECK(contains(*outcome, "rank 0 "));
    CHECK(contains(*outcome, "no more messages"));
  }
}
