// SPDX-License-Identifier: Apache-2.0
// A rank that does not come while a group is being made: the others get an error that names the
// step, and the rank where that can be known.
#include "runtime/mpi/early_collectives.hpp"

#include <chrono>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/mpi/library.hpp"
#include "runtime/mpi/rank_info.hpp"
#include "tests/support/mpi_test.hpp"

using tutti::ErrorCode;
using tutti::ErrorScope;
using tutti::mpi::Calls;
using tutti::mpi::EarlyCollectives;
using tutti::mpi::Request;

namespace {

constexpr int kMissing = 1;
constexpr std::chrono::duration<double> kBrief{4};
constexpr std::chrono::duration<double> kLong{100};

bool says(const std::optional<tutti::Error>& error, ErrorCode code, ErrorScope scope,
          const std::vector<std::string>& words) {
  if (!error || error->code() != code || error->scope() != scope) return false;
  const std::string text = error->what();
  for (const std::string& word : words) {
    if (text.find(word) != std::string::npos) continue;
    MESSAGE("expected \"", word, "\" in: ", text);
    return false;
  }
  return true;
}

const Calls& calls() { return tutti::mpi::load_or_throw(); }
tutti::mpi::Comm world() { return calls().world(); }

EarlyCollectives in_own_communicator(std::chrono::duration<double> timeout) {
  EarlyCollectives ranks(world(), timeout);
  ranks.leave_parent("make a communicator of their own");
  return ranks;
}

/// True if `body` is so on every rank, once in three times: who asks where the others are waits for
/// half a second, in which a rank may have no core to answer.
bool any_roll_call(const std::function<bool()>& body) {
  for (int roll_call = 0; roll_call < 3; ++roll_call) {
    if (test::agree(body())) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("every rank learns what the others have") {
  EarlyCollectives ranks = in_own_communicator(kLong);
  const std::vector<int> all = ranks.allgather("exchange numbers", ranks.comm(), 10 + test::rank());
  bool is_right = all.size() == static_cast<std::size_t>(test::size());
  for (int rank = 0; rank < test::size(); ++rank) is_right = is_right && all[rank] == 10 + rank;
  CHECK(test::agree(is_right));
  CHECK(test::agree(ranks.minimum("compare", 7u + static_cast<unsigned>(test::rank())) == 7));
  std::uint64_t values[] = {static_cast<unsigned>(test::rank()), ~std::uint64_t{0}};
  ranks.minima("compare more", values);
  CHECK(test::agree(values[0] == 0 && values[1] == ~std::uint64_t{0}));
  int value = test::rank() == 1 ? 42 : 0;
  ranks.broadcast("learn a number", 1, std::span(&value, 1));
  CHECK(test::agree(value == 42));
}

TEST_CASE("some of the ranks exchange parts of any length while the others go on") {
  EarlyCollectives ranks = in_own_communicator(kLong);
  const bool takes_part = test::rank() % 2 == 0;
  const tutti::mpi::Comm some = ranks.split("choose some", takes_part);
  CHECK(test::agree(some.is_set() == takes_part));
  bool is_right = true;
  if (takes_part) {
    const std::vector<std::byte> own(static_cast<std::size_t>(test::rank()),
                                     static_cast<std::byte>(test::rank()));
    const auto parts = ranks.allgather_parts("exchange parts", some, own);
    is_right = parts.size() == static_cast<std::size_t>(test::size() + 1) / 2;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::vector<std::byte> expected(2 * i, static_cast<std::byte>(2 * i));
      is_right = is_right && parts[i] == expected;
    }
  }
  CHECK(test::agree(is_right));
  tutti::mpi::free_part(some);
  const tutti::mpi::Comm host = ranks.split_host("meet");
  const auto local = ranks.allgather("say who is here", host, test::rank());
  CHECK(test::agree(local.size() == static_cast<std::size_t>(test::size())));
  tutti::mpi::free_part(host);
}

TEST_CASE("what one rank throws, of whatever type, all throw") {
  struct Unknown {};
  EarlyCollectives ranks = in_own_communicator(kLong);
  const auto outcome = [&](auto fault) {
    return test::error_of([&] {
      ranks.agree("do something", [&] {
        if (test::rank() == kMissing) fault();
      });
    });
  };
  const auto agreed = ErrorScope::agreed;
  const auto io = outcome([] { throw tutti::Error(ErrorCode::io, "no file"); });
  CHECK(test::agree(says(io, ErrorCode::io, agreed, {"rank 1: no file"})));
  const auto memory = outcome([] { throw std::bad_alloc(); });
  CHECK(test::agree(says(memory, ErrorCode::out_of_memory, agreed, {"rank 1: no memory"})));
  const auto other = outcome([] { throw std::runtime_error("odd"); });
  CHECK(test::agree(says(other, ErrorCode::user_code, agreed, {"rank 1: odd"})));
  const auto unknown = outcome([] { throw Unknown(); });
  CHECK(test::agree(says(unknown, ErrorCode::user_code, agreed, {"rank 1: ", "unknown type"})));
  ranks.agree("go on", [] {});
}

TEST_CASE("a rank that stays away from a step is named, with the step") {
  const bool is_missing = test::rank() == kMissing;
  const std::vector<std::string> words = {"rank " + std::to_string(test::rank()) + " (host ",
                                          "for all ranks to meet here: rank 1 did not come;",
                                          "TUTTI_TIMEOUT"};
  CHECK(any_roll_call([&] {
    EarlyCollectives ranks = in_own_communicator(is_missing ? kLong : kBrief);
    if (is_missing) return true;
    const auto error = test::error_of([&] { ranks.agree("meet here", [] {}); });
    return says(error, ErrorCode::timeout, ErrorScope::failed, words);
  }));
}

TEST_CASE("a rank that waits in another step is not said to be missing") {
  CHECK(any_roll_call([&] {
    EarlyCollectives ranks = in_own_communicator(test::rank() == kMissing ? kLong : kBrief);
    Request request;
    if (test::rank() == kMissing) {
      // Nobody sends this message until the others have given up.
      static int value = 0;
      calls().receive(&value, sizeof value, 0, 7, ranks.comm(), &request);
      ranks.wait("hear from rank 0", request);
      return true;
    }
    const auto error = test::error_of([&] { ranks.barrier("meet here"); });
    const int value = 1;
    if (test::rank() == 0) {
      calls().send(&value, sizeof value, kMissing, 7, ranks.comm(), &request);
      calls().wait(&request);
    }
    return says(error, ErrorCode::timeout, ErrorScope::failed,
                {"meet here: rank 1 waits for all to hear from rank 0;"});
  }));
}

TEST_CASE("a rank that creates its communicator too late keeps the others no longer than theirs") {
  tutti::Settings settings = test::settings();
  settings.timeout = kBrief;
  const auto create = [&] { tutti::Communicator::world(settings); };
  std::optional<tutti::Error> error;
  if (test::rank() != kMissing) error = test::error_of(create);
  const std::vector<std::string> words = {
      "for all ranks to begin to create their store or communicator", "cannot be seen from here",
      "TUTTI_TIMEOUT"};
  const bool is_told = says(error, ErrorCode::timeout, ErrorScope::failed, words);
  CHECK(test::agree(test::rank() == kMissing || is_told));
  // It finds what the others had begun, and then that they have gone.
  if (test::rank() == kMissing) error = test::error_of(create);
  const bool is_late =
      says(error, ErrorCode::timeout, ErrorScope::failed,
           {"for all ranks to find a communicator of theirs that is free", "have given up since"});
  CHECK(test::agree(test::rank() != kMissing || is_late));
}
