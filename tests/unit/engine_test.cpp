// SPDX-License-Identifier: Apache-2.0
// The engine's calls, with threads as ranks, and the record of them.
#include "collectives/engine/engine.hpp"

#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "tutti/kvstore.hpp"

#include "collectives/job/plain_text.hpp"
#include "collectives/node/call.hpp"
#include "collectives/wait/record.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using namespace tutti::collectives;
using test::same_bits;

// --- calls ---------------------------------------------------------------------------------------

// Whole calls, with threads as ranks: results are right in every layout, with any timing.

namespace {

constexpr std::size_t kSizes[] = {0, 1, 2, 255, 256, 257, 1023, 2500, 20001};

Settings small_pieces() {
  Settings settings;
  settings.chunk_bytes = 4096;  // many chunks, so that slots are reused
  settings.piece_bytes = 4096;
  settings.timeout = std::chrono::seconds(60);
  return settings;
}

/// Sleeps now and then, at different times on every rank and in every call.
void dawdle(int rank, int call) {
  if ((rank * 7 + call * 3) % 5 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (1 + rank % 3)));
  }
}

enum class Memory { arena, ordinary, mixed };

/// Makes one allreduce per size, in memory of this kind, with ranks that arrive at different times.
void allreduce_all(Communicator& comm, const std::vector<test::Summands>& all, Memory memory,
                   std::atomic<int>& wrong) {
  int call = 0;
  for (const auto& [inputs, sum] : all) {
    const std::vector<float>& own = inputs[static_cast<std::size_t>(comm.rank())];
    const Shape shape{static_cast<std::int64_t>(own.size())};
    const bool arena = memory == Memory::arena || (memory == Memory::mixed && comm.rank() % 2 == 0);
    Tensor input = arena ? comm.allocate(shape) : Tensor::empty(shape);
    Tensor output = arena ? comm.allocate(shape) : Tensor::empty(shape);
    std::copy(own.begin(), own.end(), input.values<float>().begin());
    dawdle(comm.rank(), call++);
    comm.allreduce(input, output);
    if (!same_bits(output.values<float>(), sum)) ++wrong;
    if (!same_bits(input.values<float>(), own)) ++wrong;
    comm.allreduce(input);  // in place
    if (!same_bits(input.values<float>(), sum)) ++wrong;
  }
}

/// True if every rank of this layout had the canonical sums.
bool sums_are_canonical(const std::vector<int>& nodes, const Settings& settings, Memory memory) {
  const auto all = test::summands_of(test::size_of_job(nodes), kSizes);
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks(
      nodes, settings, [&](Communicator& comm) { allreduce_all(comm, all, memory, wrong); });
  return test::all_returned(outcomes) && wrong == 0;
}

}  // namespace

TEST_CASE("allreduce gives every rank the canonical sum, in one node, from any memory") {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const Memory memory : {Memory::arena, Memory::ordinary, Memory::mixed}) {
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(memory));
      CHECK(sums_are_canonical({ranks}, small_pieces(), memory));
    }
  }
}

TEST_CASE("with two-level waits, too") {
  for (const char* choice : {"wait-group=1", "wait-group=2", "wait-group=3", "wait-group=7"}) {
    Settings settings = small_pieces();
    settings.algorithms = choice;
    CAPTURE(choice);
    CHECK(sums_are_canonical({8}, settings, Memory::mixed));
  }
}

TEST_CASE("ranks that each sum for themselves, or never, have the canonical sum, too") {
  for (const char* choice : {"own-sums=1", "own-sums=5", "streamed-outputs=0,streamed-slots=0"}) {
    for (const int ranks : {2, 5}) {
      Settings settings = small_pieces();
      settings.algorithms = choice;
      CAPTURE(choice);
      CAPTURE(ranks);
      CHECK(sums_are_canonical({ranks}, settings, Memory::ordinary));
    }
  }
}

TEST_CASE("allreduce gives the canonical sum across nodes of an equal power of two") {
  for (const auto& nodes : std::vector<std::vector<int>>{
           {1, 1}, {2, 2}, {1, 1, 1}, {2, 2, 2}, {4, 4}, {2, 2, 2, 2}, {1, 1, 1, 1, 1}}) {
    for (const Memory memory : {Memory::arena, Memory::ordinary, Memory::mixed}) {
      CAPTURE(nodes.size());
      CAPTURE(nodes.front());
      CHECK(sums_are_canonical(nodes, small_pieces(), memory));
    }
  }
}

TEST_CASE("with reproducible set, every layout of up to 6 ranks gives the canonical sum") {
  Settings settings = small_pieces();
  settings.reproducible = true;
  for (const auto& nodes : test::layouts_of(test::kFewCases ? 5 : 6)) {
    CAPTURE(nodes.size());
    CHECK(sums_are_canonical(nodes, settings, Memory::mixed));
  }
}

TEST_CASE("broadcast copies the root's tensor to every rank, from every root, in every layout") {
  for (const auto& nodes : test::layouts_of(test::kFewCases ? 4 : 5)) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(nodes, small_pieces(), [&](Communicator& comm) {
      int call = 0;
      for (int root = 0; root < comm.size(); ++root) {
        for (const std::size_t count : kSizes) {
          const auto expected = test::random_values(count, static_cast<unsigned>(root) + 1);
          std::vector<float> data(count, -1.0f);
          if (comm.rank() == root) data = expected;
          dawdle(comm.rank(), call++);
          comm.broadcast(view(data.data(), {static_cast<std::int64_t>(count)}), root);
          if (!same_bits(data, expected)) ++wrong;
        }
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

TEST_CASE("messages that come late change nothing") {
  std::atomic<int> wrong{0};
  std::atomic<int> messages{0};
  const auto late = [&](int from, int to, int tag) {
    if ((++messages + from + to + tag) % 3 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    return true;
  };
  const auto outcomes = test::as_ranks(
      {2, 3}, small_pieces(),
      [&](Communicator& comm) {
        std::vector<float> first;
        for (int call = 0; call < 3; ++call) {
          std::vector<float> data = test::values_of(comm.rank(), 20001);
          comm.allreduce(view(data.data(), {20001}));
          if (call == 0) first = data;
          if (!same_bits(data, first)) ++wrong;
        }
      },
      late);
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
  CHECK(messages > 20);
}

TEST_CASE("a call of many small tensors is the same as many calls") {
  constexpr int kTensors = 300;
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({2, 2}, small_pieces(), [&](Communicator& comm) {
    std::vector<std::vector<float>> data;
    std::vector<collectives::Segment> segments;
    for (unsigned i = 0; i < kTensors; ++i) {
      data.push_back(test::random_values(i % 50, i + 1000u * static_cast<unsigned>(comm.rank())));
    }
    for (auto& values : data) {
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      segments.push_back({bytes, bytes, values.size(), DType::float32});
    }
    const auto describe = [] { return std::string("many tensors"); };
    comm.group()->engine().run(
        {.kind = collectives::Kind::allreduce, .segments = segments, .describe = describe});
    for (unsigned i = 0; i < kTensors; ++i) {
      std::vector<std::vector<float>> inputs;
      for (unsigned rank = 0; rank < 4; ++rank) {
        inputs.push_back(test::random_values(i % 50, i + 1000u * rank));
      }
      if (!same_bits(data[i], test::expected_sum(inputs))) ++wrong;
    }
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

namespace {

/// The bits of a bfloat16 sum over the ranks of a layout, as rank 0 gets them; equal on all ranks.
std::vector<std::uint16_t> bfloat16_sum(const std::vector<int>& nodes, bool shared) {
  constexpr std::size_t kCount = 6001;
  Settings settings = small_pieces();
  settings.reproducible = true;
  std::vector<std::uint16_t> sum(kCount);
  std::atomic<int> different{0};
  const auto outcomes = test::as_ranks(nodes, settings, [&](Communicator& comm) {
    const auto values = test::random_values(kCount, static_cast<unsigned>(comm.rank()) + 1);
    Tensor tensor = shared ? comm.allocate({kCount}, DType::bfloat16)
                           : Tensor::empty({kCount}, DType::bfloat16);
    const auto elements = tensor.values<BFloat16>();
    for (std::size_t i = 0; i < kCount; ++i) elements[i] = BFloat16(values[i]);
    comm.allreduce(tensor);
    Tensor first = tensor.clone();
    comm.broadcast(first, 0);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (!(first.values<BFloat16>()[i] == elements[i])) ++different;
      if (comm.rank() == 0) sum[i] = elements[i].bits;
    }
  });
  CHECK(test::all_returned(outcomes));
  CHECK(different == 0);
  return sum;
}

}  // namespace

TEST_CASE("with reproducible set, 16-bit sums have the bits of one node in every layout") {
  for (const bool shared : {true, false}) {
    const auto expected = bfloat16_sum({4}, shared);
    for (const auto& nodes : test::layouts_of(4)) {
      CAPTURE(shared);
      CAPTURE(nodes.size());
      CHECK(bfloat16_sum(nodes, shared) == expected);
    }
  }
}

// --- records of calls ----------------------------------------------------------------------------

// The record of a rank's last calls, as other ranks read it.

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
                    "call 1, push of key -3, 4096 bytes: waiting for the other ranks, begun "));
  CHECK(book->is_in(1));
  book->mark(1, Phase::done);
  CHECK_FALSE(book->is_in(1));
  book->begin(push_of(2, Key("fc1.weight"), 7));
  book->mark(2, Phase::done);
  CHECK(begins_with(described(*book, 2),
                    "call 2, push of key fc1.weight and 6 more, 4096 bytes: done, begun "));
  book->begin(push_of(3, Key("a name that is too long for the record"), 1));
  CHECK(begins_with(described(*book, 3), "call 3, push of key a name that is too long, 4096"));
  book->begin({.sequence = 4, .verb = Verb::barrier, .begun = ticks()});
  CHECK(begins_with(described(*book, 4), "call 4, barrier, 0 bytes: "));
  CHECK(book->newest() == 4);
}

TEST_CASE("the last 128 calls are there, and no older one") {
  const auto book = std::make_unique<RecordBook>();
  for (std::uint64_t sequence = 1; sequence <= 300; ++sequence) {
    book->begin(push_of(sequence, Key(1), 1));
  }
  CHECK(described(*book, 172).empty());
  CHECK(begins_with(described(*book, 173), "call 173, "));
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
  settings.timeout = test::kShortDeadline;
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
  CHECK(text.find("rank 1 made its last call: call 1, allreduce, 24 bytes: done, begun ") !=
        std::string::npos);
}

TEST_CASE("a disagreement of more ranks than a report has room for says how many it leaves out") {
  const auto outcomes = test::as_ranks({40}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    const Key key = std::string(100, 'k') + std::to_string(comm.rank());
    kv.init(key, Tensor::zeros({1}));
  });
  CHECK(test::all_say(outcomes, ErrorCode::mismatch, "rank 3 (host"));
  REQUIRE(test::all_say(outcomes, ErrorCode::mismatch, " more ranks made other calls; "));
  CHECK(std::string(outcomes[0]->what()).ends_with("; nothing was changed"));
}

TEST_CASE("names of very many ranks are cut short") {
  std::vector<int> ranks(65);
  std::iota(ranks.begin(), ranks.end(), 0);
  const Topology topology = Topology::consecutive(0, {100});
  CHECK(names_of(topology, ranks).starts_with("ranks 0, 1, 2, 3, 4, 5, 6, 7, ... and 57 more ("));
  ranks.pop_back();
  CHECK(names_of(topology, ranks).find(", 62 and 63 (") != std::string::npos);
}

TEST_CASE("a rank that ends by an exception reports it alone") {
  Settings settings;
  settings.timeout = std::chrono::duration<double>(60);
  for (const auto& nodes : std::vector<std::vector<int>>{{3}, {1, 1, 1}}) {
    const auto outcomes = test::as_ranks(nodes, settings, [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 1) {
        const Communicator last = std::move(comm);  // ends while the exception is being thrown
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

/// The record of this rank's last call, without its times.
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
  settings.timeout = test::kShortDeadline;
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
