// SPDX-License-Identifier: Apache-2.0
// The ring of pinned memory that tables are sent from, on a machine whose work runs when the test
// says: memory that is written again too early is seen.
#include "runtime/gpu/kernels/staging.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <vector>

namespace {

/// What a LateMachine has been asked for, and has not done yet.
struct LateWork {
  std::deque<std::function<void()>> waiting;
  int events_left = -1;  ///< that can be made; -1: any number

  void finish() {
    for (; !waiting.empty(); waiting.pop_front()) waiting.front()();
  }
};

/// The part of a Machine that Staging uses.
class LateMachine {
 public:
  using Event = std::shared_ptr<bool>;

  explicit LateMachine(LateWork* work) : work_(work) {}

  std::byte* allocate_pinned(std::size_t bytes) {
    return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256}));
  }
  void release_pinned(std::byte* memory) { ::operator delete (memory, std::align_val_t{256}); }

  void copy(tutti::gpus::Stream /*stream*/, std::byte* to, const std::byte* from,
            std::size_t bytes) {
    work_->waiting.emplace_back([=] { std::memcpy(to, from, bytes); });
  }

  Event create_event() {
    if (work_->events_left == 0) throw std::bad_alloc();
    --work_->events_left;
    return std::make_shared<bool>(true);
  }
  void destroy_event(const Event& /*event*/) {}
  void record(const Event& event, tutti::gpus::Stream /*stream*/) {
    *event = false;
    work_->waiting.emplace_back([event] { *event = true; });
  }
  bool done(const Event& event) { return *event; }

 private:
  LateWork* work_;
};

using Staging = tutti::gpus::kernels::Staging<LateMachine>;

}  // namespace

TEST_CASE("an event that cannot be made leaves no piece of pinned memory without one") {
  LateWork work;
  LateMachine machine(&work);
  Staging staging(machine);
  std::vector<std::byte> from(100, std::byte{7});
  std::vector<std::byte> to(100);
  work.events_left = 0;
  CHECK_THROWS_AS(staging.send(nullptr, to.data(), from.data(), 100), std::bad_alloc);
  work.events_left = -1;
  for (int i = 0; i < 3; ++i) staging.send(nullptr, to.data(), from.data(), 100);
  work.finish();
  CHECK(to == from);
}

TEST_CASE("a ring of pinned memory is not written before it was read, whatever is sent and when") {
  LateWork work;
  LateMachine machine(&work);
  Staging staging(machine);
  std::mt19937 random(7);
  std::deque<std::pair<std::vector<std::byte>, std::vector<std::byte>>> sent;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t bytes = random() % 20 == 0 ? random() % 30'000 : random() % 500;
    auto& [from, to] = sent.emplace_back(std::vector<std::byte>(bytes, std::byte(i)),
                                         std::vector<std::byte>(bytes));
    staging.send(nullptr, to.data(), from.data(), bytes);
    while (work.waiting.size() > 60 || (!work.waiting.empty() && random() % 2 == 0)) {
      work.waiting.front()();
      work.waiting.pop_front();
    }
  }
  work.finish();
  const auto is_right = [](const auto& one) { return one.first == one.second; };
  CHECK(std::ranges::all_of(sent, is_right));
  CHECK(staging.pinned_bytes() < (std::size_t{4} << 20));
}
