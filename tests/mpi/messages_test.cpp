// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks.
#include "tests/support/messages.hpp"

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/hasty_group.hpp"
#include "tests/support/mpi_test.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::MeetingPartner;
using tutti::Tensor;

namespace {

using Failure = std::optional<tutti::Error>;

Communicator new_world() { return Communicator::world(test::settings()); }
std::string name_of(int rank) { return "rank " + std::to_string(rank); }

tutti::Settings with_deadline(const test::Layout& layout, double seconds) {
  tutti::Settings settings = test::settings_for(layout);
  settings.timeout = std::chrono::duration<double>(seconds);
  return settings;
}

bool says(const Failure& failure, const std::string& words) {
  const bool found = failure && std::string(failure->what()).find(words) != std::string::npos;
  if (!found) MESSAGE(words, " is not in: ", failure ? failure->what() : "no error");
  return found;
}

/// The first two ranks do this; true on the others.
bool in_first_two(const std::function<bool()>& body) { return test::rank() > 1 || body(); }

}  // namespace

TEST_CASE("messages of sizes 0, 1, odd and large reach the other rank of every pair") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    Communicator world = Communicator::world(test::settings_for(layout));
    for (const std::size_t count : {0, 1, 7, 1023, 2049, 20001, 300007}) {
      for (const bool shared : {true, false, test::rank() % 2 == 0}) {
        CHECK(test::agree(test::pairs_are_right(world, count, shared)));
      }
    }
  }
}

TEST_CASE("messages of a pair come in the order of their sends, between calls of all ranks") {
  Communicator world = new_world();
  bool right = true;
  for (int i = 0; i < 300; ++i) {
    Tensor tensor = Tensor::full({1 + (i * 71) % 5000}, test::rank());
    const auto values = tensor.values<float>();
    const int next = (test::rank() + 1) % test::size();
    const int before = (test::rank() + test::size() - 1) % test::size();
    if (i % 50 == test::rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (int turn = 0; turn < 2 && test::size() > 1; ++turn) {  // one side of each pair at a time
      tensor.fill(1000 * test::rank() + i);
      const bool sends_first = test::rank() % 2 == 0 && next != 0;
      if (sends_first) world.send(tensor, next);
      if (test::rank() > 0) world.receive(tensor, before);
      if (test::rank() > 0) right = right && values.back() == static_cast<float>(1000 * before + i);
      tensor.fill(1000 * test::rank() + i);
      if (!sends_first && next != 0) world.send(tensor, next);
    }
    if (i % 3 == 0) {
      tensor.fill(1);
      world.allreduce(tensor);
      right = right && values[0] == static_cast<float>(test::size());
    }
  }
  CHECK(test::agree(right));
}

TEST_CASE("ranks that wait in a circle meet, and one of another call is told") {
  constexpr int kMeetings = 30;
  Communicator world = new_world();
  if (test::size() == 1 || world.num_nodes() > 1) return;
  std::vector<int> left(static_cast<std::size_t>(test::size()), 0);
  left[static_cast<std::size_t>((test::rank() + 1) % test::size())] = kMeetings;
  left[static_cast<std::size_t>((test::rank() + test::size() - 1) % test::size())] = kMeetings;
  bool right = true;
  for (;;) {
    std::vector<MeetingPartner> partners;
    for (int other = 0; other < test::size(); ++other) {
      const int meetings = left[static_cast<std::size_t>(other)];
      if (meetings > 0) partners.push_back({.rank = other, .has_news = true});
    }
    if (partners.empty()) break;
    const int awaited = (test::rank() % 2 == 0 ? partners.front() : partners.back()).rank;
    for (const int other : world.meet(partners, awaited)) {
      Tensor tensor = Tensor::full({3}, test::rank());
      if (test::rank() < other) world.send(tensor, other);
      Tensor theirs = Tensor::zeros({3});
      world.receive(theirs, other);
      if (test::rank() > other) world.send(tensor, other);
      right = right && theirs.values<float>()[2] == static_cast<float>(other);
      --left[static_cast<std::size_t>(other)];
    }
  }
  CHECK(test::agree(right));

  const MeetingPartner wrong[] = {{.rank = test::rank()}, {.rank = test::size()}, {.rank = -1}};
  for (const MeetingPartner& one : wrong) {
    const Failure refused =
        test::error_of([&] { static_cast<void>(world.meet(std::span(&one, 1), -1)); });
    CHECK(test::agree(says(refused, "found rank " + std::to_string(one.rank))));
  }
  const Failure refused = test::error_of([&] { static_cast<void>(world.meet({}, -1)); });
  CHECK(test::agree(says(refused, "found none")));

  const bool is_last = test::rank() == test::size() - 1;  // it waits for rank 0
  const Failure failure = test::error_of([&] {
    const MeetingPartner first{.rank = 0, .has_news = true};
    if (is_last) static_cast<void>(world.meet(std::span(&first, 1), 0));
    if (!is_last) world.barrier();
  });
  CHECK(test::agree(says(failure, "waits for a message of rank 0")));
}

TEST_CASE("another count or dtype is a mismatch on both ranks, and the next message works") {
  if (test::size() == 1) return;
  for (const test::Layout& layout : {test::one_node(), test::Layout{1}}) {
    Communicator world = Communicator::world(test::settings_for(layout));
    for (const std::int64_t count : {5, 100000}) {
      for (const bool other_dtype : {false, true}) {
        const auto failure = test::rank() > 1 ? Failure() : test::error_of([&] {
          Tensor sent = Tensor::ones({count});
          Tensor room =
              other_dtype ? Tensor::zeros({count}, DType::int32) : Tensor::zeros({count - 1});
          if (test::rank() == 1) return world.receive(room, 0);
          world.send(sent, 1);
          world.barrier();  // is not made: it begins with what the send has left
        });
        CHECK(test::agree(in_first_two([&] {
          return failure->code() == ErrorCode::mismatch && failure->recoverable() &&
                 says(failure, "rank 0 (") && says(failure, "sent " + std::to_string(count)) &&
                 says(failure, "rank 1 (") && says(failure, other_dtype ? "int32" : "receives") &&
                 says(failure, "nothing was moved");
        })));
        CHECK(test::agree(test::pairs_are_right(world, 100, true)));
      }
    }
  }
}

TEST_CASE("what a send has left is found different by the asynchronous call that comes next") {
  if (test::size() == 1) return;
  Communicator world = Communicator::world(test::settings_for(test::one_node()));
  for (const bool after_another : {false, true}) {
    Tensor values = Tensor::ones({3});
    if (after_another) world.allreduce_async(values).wait();
    const auto failure = test::rank() > 1 ? Failure() : test::error_of([&] {
      Tensor five = Tensor::ones({5});
      if (test::rank() == 1) return world.receive(values, 0);
      world.send(five, 1);
      world.allreduce_async(values).wait();  // is not made
    });
    CHECK(test::agree(in_first_two([&] {
      return failure->code() == ErrorCode::mismatch && failure->recoverable() &&
             says(failure, "sent 5") && says(failure, "nothing was moved");
    })));
    CHECK(test::agree(test::pairs_are_right(world, 100, true)));
  }
}

TEST_CASE("a message to oneself, or to no rank, throws on this rank alone") {
  Communicator world = new_world();
  Tensor tensor = Tensor::ones({3});
  const int me = test::rank();
  for (const bool sends : {true, false}) {
    const auto call = [&](int other) {
      return test::error_of(
          [&] { sends ? world.send(tensor, other) : world.receive(tensor, other); });
    };
    const std::string what = sends ? "send of (3) float32 to " : "receive of (3) float32 from ";
    const auto to_self = call(me);
    CHECK(test::agree(says(to_self, what + name_of(me) + ": a rank sends no message to itself")));
    for (const int nobody : {-1, test::size()}) {
      const auto error = call(nobody);
      CHECK(test::agree(says(error, what + name_of(nobody) + ": not a rank; expected 0 to ") &&
                        error->code() == ErrorCode::invalid_argument && error->recoverable()));
    }
  }
  CHECK(test::agree(test::pairs_are_right(world, 4, false)));
}

TEST_CASE("a tensor without memory is refused on this rank alone") {
  if (test::size() == 1) return;
  Communicator world = new_world();
  const tutti::TensorView nothing(nullptr, {3}, DType::float32);
  const auto error = test::error_of([&] { world.send(nothing, test::rank() == 0 ? 1 : 0); });
  CHECK(test::agree(says(error, "a tensor without memory")));
  CHECK(test::agree(test::pairs_are_right(world, 4, false)));
}

TEST_CASE("a message whose other rank does not come ends at the deadline, naming both") {
  if (test::size() == 1) return;
  struct Case {
    bool sends;
    std::int64_t count;
    const char* in_node;
    const char* between_nodes;
  };
  for (const auto& [sends, count, in_node, between_nodes] :
       {Case{true, 5, "send of 5 elements of float32 to rank 1", "send of (5) float32 to rank 1"},
        Case{true, 5000, "send of (5000) float32 to rank 1", "send of (5000) float32 to rank 1"},
        Case{false, 5, "receive of (5)", "receive of (5)"}}) {
    for (const test::Layout& layout : {test::one_node(), test::Layout{1}}) {
      const std::string what = layout == test::one_node() ? in_node : between_nodes;
      CAPTURE(what);
      Communicator all = Communicator::world(test::settings_for(layout));
      Communicator world = test::hasty_group(all, 0, std::chrono::seconds(1));
      Tensor tensor = Tensor::ones({count});
      const bool is_send = sends;
      Failure failure;
      if (test::rank() == 0) {
        failure = test::error_of([&] {
          if (!is_send) return world.receive(tensor, 1);
          world.send(tensor, 1);
          world.barrier();  // waits for what a send of few bytes has left
        });
      }
      CHECK(test::agree(test::rank() != 0 ||
                        (failure->code() == ErrorCode::timeout && !failure->recoverable() &&
                         says(failure, what) && says(failure, "rank 0 (") &&
                         says(failure, "for rank 1 (") && says(failure, "which did not arrive"))));
    }
  }
}

TEST_CASE("a small message in the node is left behind: its sender goes on before it is received") {
  if (test::size() == 1) return;
  Communicator world = new_world();
  for (const std::int64_t count : {0, 1, 8, 9, 1000, 1024}) {
    for (const bool shared : {true, false}) {
      Tensor tensor = shared ? world.allocate({count}) : Tensor::empty({count});
      tensor.fill(test::rank() == 0 ? 7 : 0);
      if (test::rank() == 0) world.send(tensor, 1);
      tensor.fill(static_cast<double>(count));
      CHECK(test::agree(true));  // rank 1 receives nothing before rank 0 has come here
      if (test::rank() == 1) world.receive(tensor, 0);
      const double expected = test::rank() == 1 ? 7 : static_cast<double>(count);
      CHECK(
          test::agree(count == 0 || tensor.value(static_cast<std::size_t>(count) - 1) == expected));
    }
  }
  world.barrier();
}

TEST_CASE("two ranks that send to each other are told at the deadline that the other one sends") {
  if (test::size() == 1) return;
  // No rank that is there misses it on a busy machine.
  Communicator world = Communicator::world(with_deadline(test::one_node(), 4.0));
  Tensor tensor = Tensor::ones({5});
  Failure failure;
  if (test::rank() < 2) {
    failure = test::error_of([&] {
      world.send(tensor, 1 - test::rank());
      world.receive(tensor, 1 - test::rank());  // however small: the send comes first
    });
  }
  CHECK(test::agree(in_first_two([&] {
    return failure->code() == ErrorCode::timeout && says(failure, "waits in a send to rank");
  })));
}

TEST_CASE("a rank that has left is named at once to who waits for its message") {
  if (test::size() == 1) return;
  for (const test::Layout& layout : {test::one_node(), test::Layout{1}}) {
    CAPTURE(test::to_string(layout));
    std::optional<Communicator> world = Communicator::world(with_deadline(layout, 3600));
    Failure failure;
    Tensor tensor = Tensor::ones({5});
    CHECK(test::agree(true));  // no rank is still in creation when rank 1 leaves
    if (test::rank() == 1) world.reset();
    if (test::rank() == 0) failure = test::error_of([&] { world->receive(tensor, 1); });
    CHECK(test::agree(test::rank() != 0 || (failure->code() == ErrorCode::communication &&
                                            says(failure, "receive of (5) float32 from rank 1") &&
                                            says(failure, "rank 1 (") && says(failure, " left "))));
  }
}

TEST_CASE("what is taken before a rank leaves counts") {
  if (test::size() == 1) return;
  for (int round = 0; round < 20; ++round) {
    std::optional<Communicator> world = new_world();
    Tensor tensor = Tensor::full({5}, test::rank());
    if (test::rank() == 1) world->receive(tensor, 0);
    if (test::rank() == 1) world.reset();
    if (test::rank() == 0) world->send(tensor, 1);
    CHECK(test::agree(test::rank() != 1 || tensor.values<float>()[4] == 0.0f));
  }
}
