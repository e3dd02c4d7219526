// SPDX-License-Identifier: Apache-2.0
// A rank that does not come: the others get an error that names it, and never hang.
#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/mpi_test.hpp"

using test::filled;
using tutti::Communicator;
using tutti::ErrorCode;
using tutti::KVStore;
using tutti::Tensor;

namespace {

constexpr int kMissing = 1;
constexpr double kNever = 3600;  // far beyond this test's own limit

tutti::Settings with_deadline(const test::Layout& layout, double seconds) {
  tutti::Settings settings = test::settings_for(layout);
  settings.timeout = std::chrono::duration<double>(seconds);
  return settings;
}

tutti::Settings hasty(const test::Layout& layout) { return with_deadline(layout, 4.0); }

using Failure = std::optional<tutti::Error>;

bool is_for_good(const Failure& failure) {
  if (!failure || failure->recoverable()) return false;
  const ErrorCode code = failure->code();
  return code == ErrorCode::timeout || code == ErrorCode::communication;
}

bool says(const Failure& failure, const std::string& words) {
  return failure && std::string(failure->what()).find(words) != std::string::npos;
}

bool names_the_missing(const Failure& failure) {
  return says(failure, "rank " + std::to_string(kMissing));
}

// Rank 1 comes only after all others have given up; if one waits on, so does the test, up to its
// limit. Between nodes rank 1 may still find what the others had sent before, and learn of their
// failure in its next call.
Failure come_late(const std::function<void()>& call) {
  Failure failure;
  if (test::rank() != kMissing) failure = test::error_of(call);
  CHECK(test::agree(true));  // nobody passes before all are here
  if (test::rank() != kMissing) return failure;
  return test::error_of([&] {
    call();
    call();
  });
}

// Every call of a failed store throws the error that it failed with: none waits a second time, for
// which its own name would be in the text.
void check_failed(KVStore& kv) {
  Tensor out = filled(0);
  const std::vector<std::function<void()>> calls = {
      [&] { kv.push(3, filled(1)); }, [&] { kv.pull(3, out); }, [&] { (void)kv.view(3); },
      [&] { kv.init(4, filled(1)); }, [&] { kv.barrier(); }};
  bool all_throw = true;
  for (const auto& call : calls) {
    const Failure failure = test::error_of(call);
    all_throw = all_throw && is_for_good(failure) && says(failure, "push of key 3");
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
    const bool is_named = names_the_missing(failure) && failure->code() == ErrorCode::timeout &&
                          says(failure, " waited ");
    CHECK(test::agree(test::rank() == kMissing || is_named));
    check_failed(kv);
  }
}

TEST_CASE("a large allreduce and a barrier that one rank does not join fail by the deadline") {
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
    std::optional<KVStore> kv = KVStore::create("dist", with_deadline(layout, kNever));
    kv->init(3, filled(1));
    CHECK(test::agree(true));  // no rank is still in init() when one drops its store
    Failure failure;
    if (test::rank() == kMissing) {
      kv.reset();
    } else {
      failure = test::error_of([&] { kv->push(3, filled(1)); });
    }
    const bool is_right = is_for_good(failure) && failure->code() == ErrorCode::communication;
    CHECK(test::agree(test::rank() == kMissing || is_right));
    CHECK(test::agree(test::rank() == kMissing || names_the_missing(failure)));
  }
}

TEST_CASE("a rank that is slow, but not too slow, is waited for") {
  KVStore kv = KVStore::create("dist", test::settings_for(test::one_node()));
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
