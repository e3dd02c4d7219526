// SPDX-License-Identifier: Apache-2.0
// A rank that does not come: the others get an error that names it, in time, and never hang.
#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/layouts.hpp"
#include "tests/mpi/store_fixture.hpp"

using test::filled;
using tutti::Communicator;
using tutti::ErrorCode;
using tutti::KVStore;
using tutti::Tensor;

namespace {

constexpr double kDeadline = 2.0;
constexpr double kSlack = 3.0;  // a busy machine; far below a test's own limit
constexpr int kMissing = 1;

tutti::Settings hasty(const test::Layout& layout) {
  tutti::Settings settings = test::settings_for(layout);
  settings.timeout = std::chrono::duration<double>(kDeadline);
  return settings;
}

struct Failure {
  std::optional<tutti::Error> error;
  double seconds = 0;
};

Failure fail(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  Failure failure{.error = test::error_of(body)};
  failure.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return failure;
}

bool is_for_good(const Failure& failure) {
  if (!failure.error || failure.error->recoverable()) return false;
  const ErrorCode code = failure.error->code();
  return (code == ErrorCode::timeout || code == ErrorCode::communication) &&
         failure.seconds < kDeadline + kSlack;
}

bool names_the_missing(const Failure& failure) {
  const std::string name = "rank " + std::to_string(kMissing);
  return failure.error && std::string(failure.error->what()).find(name) != std::string::npos;
}

// Rank 1 comes after the deadline. Between nodes it may still find what the others had sent before
// they gave up, and learn of their failure in its next call.
Failure come_late(const std::function<void()>& call) {
  if (test::rank() != kMissing) return fail(call);
  std::this_thread::sleep_for(std::chrono::duration<double>(kDeadline + 1.0));
  return fail([&] {
    call();
    call();
  });
}

// Every call of a failed store throws, and at once.
void check_failed(KVStore& kv) {
  Tensor out = filled(0);
  const std::vector<std::function<void()>> calls = {
      [&] { kv.push(3, filled(1)); }, [&] { kv.pull(3, out); }, [&] { (void)kv.view(3); },
      [&] { kv.init(4, filled(1)); }, [&] { kv.barrier(); }};
  bool all_throw = true;
  for (const auto& call : calls) {
    const Failure failure = fail(call);
    all_throw = all_throw && is_for_good(failure) && failure.seconds < 1.0;
  }
  CHECK(test::agree(all_throw));
  CHECK(test::agree(kv.rank() == test::rank() && kv.num_workers() == test::size()));
  CHECK(test::agree(kv.type() == "dist"));
}

}  // namespace

TEST_CASE("a push that one rank does not join fails on all with a timeout that names it") {
  for (const test::Layout& layout : {test::one_node(), test::Layout{1}}) {
    CAPTURE(test::to_string(layout));
    KVStore kv = KVStore::create("dist", hasty(layout));
    kv.init(3, filled(1));
    const Failure failure = come_late([&] { kv.push(3, filled(1)); });
    CHECK(test::agree(is_for_good(failure)));
    const bool is_named = names_the_missing(failure) && failure.error->code() == ErrorCode::timeout;
    CHECK(test::agree(test::rank() == kMissing || is_named));
    CHECK(test::agree(test::rank() == kMissing || failure.seconds > kDeadline - 0.5));
    check_failed(kv);
  }
}

TEST_CASE("a large allreduce and a barrier that one rank does not join fail in time") {
  for (const bool is_barrier : {true, false}) {
    Communicator world = Communicator::world(hasty(test::one_node()));
    Tensor tensor = world.allocate({1000000});
    const Failure failure =
        come_late([&] { is_barrier ? world.barrier() : world.allreduce(tensor); });
    CHECK(test::agree(is_for_good(failure)));
    CHECK(test::agree(test::rank() == kMissing || names_the_missing(failure)));
  }
}

TEST_CASE("a rank that drops its store early is named at once, not after the deadline") {
  for (const test::Layout& layout : {test::one_node(), test::Layout{1}}) {
    CAPTURE(test::to_string(layout));
    tutti::Settings settings = hasty(layout);
    settings.timeout = std::chrono::duration<double>(20);
    std::optional<KVStore> kv = KVStore::create("dist", settings);
    kv->init(3, filled(1));
    Failure failure;
    if (test::rank() == kMissing) {
      kv.reset();
    } else {
      failure = fail([&] { kv->push(3, filled(1)); });
    }
    const bool is_right = is_for_good(failure) && failure.error->code() == ErrorCode::communication;
    CHECK(test::agree(test::rank() == kMissing || is_right));
    CHECK(test::agree(test::rank() == kMissing || names_the_missing(failure)));
  }
}

TEST_CASE("a rank that is slow, but not too slow, is waited for") {
  KVStore kv = KVStore::create("dist", hasty(test::one_node()));
  kv.init(3, filled(0));
  if (test::rank() == kMissing) std::this_thread::sleep_for(std::chrono::milliseconds(800));
  kv.push(3, filled(test::one_plus_rank()));
  CHECK(test::all_are(test::stored(kv, 3), test::sum_of_ranks()));
}

TEST_CASE("after a failed store a new one works") {
  {
    KVStore kv = KVStore::create("dist", hasty(test::one_node()));
    kv.init(3, filled(1));
    CHECK(test::agree(is_for_good(come_late([&] { kv.push(3, filled(1)); }))));
  }
  KVStore kv = test::dist();
  kv.init(3, filled(0));
  kv.push(3, filled(test::one_plus_rank()));
  CHECK(test::all_are(test::stored(kv, 3), test::sum_of_ranks()));
}

TEST_CASE("a deadline of 0 is none: a late rank is waited for") {
  tutti::Settings settings = test::settings();
  settings.timeout = std::chrono::duration<double>(0);
  KVStore kv = KVStore::create("dist", settings);
  kv.init(3, filled(1));
  if (test::rank() == kMissing) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kv.push(3, filled(2));
  CHECK(test::all_are(kv.view(3), 2.0f * static_cast<float>(test::size())));
}
