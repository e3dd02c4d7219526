// SPDX-License-Identifier: Apache-2.0
// The record of a rank's last calls, as others read it.
#include "collectives/record.hpp"

#include <doctest/doctest.h>
#include <limits>
#include <memory>

#include "tutti/kvstore.hpp"

#include "collectives/call.hpp"
#include "collectives/plain_text.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using namespace tutti::collectives;

namespace {

std::string described(const RecordBook& book, std::uint64_t sequence) {
  char text[RecordBook::kWords];
  return {text, book.describe(sequence, text)};
}

CallFacts push_of(std::uint64_t sequence, const Key& key, std::uint32_t keys) {
  return {.sequence = sequence,
          .verb = Verb::push,
          .keys = keys,
          .first_key = &key,
          .digest = 5,
          .bytes = 4096,
          .begun = ticks()};
}

bool begins_with(const std::string& text, const std::string& words) {
  return text.compare(0, words.size(), words) == 0;
}

}  // namespace

TEST_CASE("a record says call, keys, bytes, and how far it is") {
  const auto book = std::make_unique<RecordBook>();
  CHECK(book->newest() == 0);
  CHECK(described(*book, 0).empty());
  book->begin(push_of(1, Key(-3), 1));
  CHECK(begins_with(described(*book, 1),
                    "call 1, push of key -3, 4096 bytes: not yet announced, begun 0."));
  CHECK_FALSE(book->is_in(1));
  book->mark(1, Phase::announced);
  CHECK(book->is_in(1));
  CHECK(described(*book, 1).find("waiting for the other ranks") != std::string::npos);
  book->begin(push_of(2, Key("fc1.weight"), 7));
  book->mark(2, Phase::done);
  CHECK(begins_with(described(*book, 2),
                    "call 2, push of key fc1.weight and 6 more, 4096 bytes: done, begun 0."));
  book->begin(push_of(3, Key("a name that is too long for the record"), 1));
  CHECK(begins_with(described(*book, 3), "call 3, push of key a name that is too long, 4096"));
  book->begin({.sequence = 4, .verb = Verb::barrier, .begun = ticks()});
  CHECK(begins_with(described(*book, 4), "call 4, barrier, 0 bytes: "));
  CHECK(book->newest() == 4);
}

TEST_CASE("the last 256 calls are there, and no older one") {
  const auto book = std::make_unique<RecordBook>();
  for (std::uint64_t sequence = 1; sequence <= 300; ++sequence) {
    book->begin(push_of(sequence, Key(1), 1));
  }
  CHECK(described(*book, 44).empty());
  CHECK(begins_with(described(*book, 45), "call 45, "));
  CHECK(begins_with(described(*book, 300), "call 300, "));
  CHECK(described(*book, 301).empty());
}

TEST_CASE("plain text has all numbers, and cuts off what does not fit") {
  char buffer[64];
  PlainText text(buffer);
  text.add(std::numeric_limits<std::int64_t>::min()).add(" ").add(std::uint64_t{0}).add(" ");
  text.add(std::numeric_limits<std::uint64_t>::max());
  CHECK(std::string(buffer, text.size()) == "-9223372036854775808 0 18446744073709551615");
  PlainText time(buffer);
  time.add_seconds(12345678901.0);
  CHECK(std::string(buffer, time.size()) == "12.345 s");
  char little[4];
  PlainText cut(little);
  cut.add("abc").add("def");
  CHECK(std::string(little, cut.size()) == "abcd");
}

TEST_CASE("the deadline's error says what the missing rank did last") {
  Settings settings;
  settings.timeout = std::chrono::duration<double>(0.3);
  settings.log = tutti::LogLevel::quiet;
  std::atomic<bool> done{false};
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    Tensor data = Tensor::ones({6});  // 24 bytes, and padding
    comm.allreduce(data);
    if (comm.rank() == 1) {
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    const std::unique_ptr<bool, std::function<void(bool*)>> ending(new bool, [&](bool* flag) {
      delete flag;
      done = true;
    });
    comm.barrier();
  });
  REQUIRE(outcomes[0]);
  const std::string text = outcomes[0]->what();
  INFO(text);
  CHECK(text.find("rank 1 made its last call: call 1, allreduce, 24 bytes: done, begun 0.") !=
        std::string::npos);
}

TEST_CASE("a rank that waits itself is not blamed: the one who is missing is") {
  for (int trial = 0; trial < 5; ++trial) {
    Settings settings;
    settings.timeout = std::chrono::duration<double>(0.3);
    settings.log = tutti::LogLevel::quiet;
    std::atomic<int> waiting{3};
    const auto outcomes = test::as_ranks({2, 2}, settings, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      const test::CountDown leaving(waiting);
      comm.barrier();
    });
    int reporters = 0;
    for (const int rank : {0, 2, 3}) {
      REQUIRE(outcomes[static_cast<std::size_t>(rank)]);
      const Error& error = *outcomes[static_cast<std::size_t>(rank)];
      CHECK(std::string(error.what()).find(" for rank 1 ") != std::string::npos);
      reporters += error.reporter() ? 1 : 0;
    }
    CHECK(reporters == 1);
  }
}

TEST_CASE("a rank that ends by an exception reports it alone") {
  Settings settings;
  settings.timeout = std::chrono::duration<double>(60);
  for (const auto& nodes : std::vector<std::vector<int>>{{3}, {1, 1, 1}}) {
    const auto outcomes = test::as_ranks(nodes, settings, [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 1) {
        const Communicator last = std::move(comm);  // ends while the exception is under way
        throw Error(ErrorCode::io, "no more images");
      }
      comm.barrier();
    });
    for (const int rank : {0, 2}) {
      REQUIRE(outcomes[static_cast<std::size_t>(rank)]);
      const Error& error = *outcomes[static_cast<std::size_t>(rank)];
      CHECK_FALSE(error.reporter());
      CHECK(std::string(error.what()).find("ended by an exception of its own") !=
            std::string::npos);
    }
  }
}

namespace {

/// This rank's last call, without what it says of time.
std::string last_call(Communicator& comm) {
  const RecordBook& book = comm.group()->engine().memory().control().calls;
  const std::string text = described(book, book.newest());
  return text.substr(0, text.find(", begun "));
}

}  // namespace

TEST_CASE("a record names what the program called, however the data moves") {
  Settings settings;
  settings.timeout = std::chrono::duration<double>(60);
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    const auto look = [&](const std::string& words) {
      if (last_call(comm).find(words) != std::string::npos) return;
      throw Error(ErrorCode::divergence, "'" + words + "' is not in: " + last_call(comm));
    };
    kv.init("w", Tensor::zeros({4000}));
    look(", init of key w, 16000 bytes: done");
    kv.push("w", Tensor::ones({4000}));
    look(", push of key w, 16000 bytes: done");
    kv.init_row_sparse("rows", {5, 2});
    look(", init, 0 bytes: done");
    const std::vector<std::int64_t> ids = {1, 3};
    kv.push("rows", RowSparse{Tensor::from<std::int64_t>(ids), Tensor::ones({2, 2})});
    look(", push of key rows, ");
    kv.set_gradient_compression("2bit,threshold=0.5");
    kv.push("w", Tensor::ones({4000}));
    look(", push of key w, ");
    static_cast<void>(kv.verify());
    look(", verify, ");
    kv.barrier();
    look(", barrier, 0 bytes: done");
    Tensor sum = Tensor::ones({7});
    comm.allreduce(sum);
    look(", allreduce, ");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a compressed push that a rank does not join is a push in the deadline's error, too") {
  Settings settings;
  settings.timeout = std::chrono::duration<double>(0.3);
  settings.log = tutti::LogLevel::quiet;
  std::atomic<bool> done{false};
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init("w", Tensor::zeros({4000}));
    kv.set_gradient_compression("2bit,threshold=0.5");
    kv.push("w", Tensor::ones({4000}));
    if (comm.rank() == 1) {
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    const std::unique_ptr<bool, std::function<void(bool*)>> ending(new bool, [&](bool* flag) {
      delete flag;
      done = true;
    });
    kv.push("w", Tensor::ones({4000}));
  });
  REQUIRE(outcomes[0]);
  const std::string text = outcomes[0]->what();
  INFO(text);
  CHECK(begins_with(text, "push of key w "));
  CHECK(text.find("rank 1 made its last call: call 2, push of key w, ") != std::string::npos);
}
