// SPDX-License-Identifier: Apache-2.0
#include "support/urgent_push.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "support/progress.hpp"

namespace apps {

namespace {

using tutti::KVStore;
using tutti::Pending;
using tutti::Tensor;

constexpr int kUrgentPushes = 10;
// Part of the time of all others that lies between two urgent pushes.
constexpr double kShare = 0.05;

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

UrgentPush::UrgentPush(tutti::Communicator& world, int keys, std::int64_t elements,
                       std::int64_t urgent)
    : world_(world),
      kv_(KVStore::create(world)),
      urgent_(keys),
      urgent_value_(kv_.allocate({urgent})) {
  for (int key = 0; key < keys; ++key) {
    keys_.emplace_back(key);
    values_.push_back(kv_.allocate({elements}));
    kv_.init(key, Tensor::zeros({elements}));
  }
  kv_.init(urgent_, Tensor::zeros({urgent}));
}

UrgentTimes UrgentPush::measure() {
  UrgentTimes times;
  begin_turn();
  const Stopwatch alone;
  push_urgent().wait();
  times.idle = longest(alone.seconds());
  begin_turn();
  const Stopwatch synchronous;
  kv_.push(keys_, values_);
  times.push = longest(synchronous.seconds());
  begin_turn();
  const Stopwatch beside;
  const Pending others = kv_.push_async(keys_, values_);
  std::vector<double> seconds;
  for (int i = 0; i < kUrgentPushes; ++i) {
    sleep_for(kShare * times.push);
    const Stopwatch watch;
    push_urgent().wait();
    seconds.push_back(watch.seconds());
  }
  others.wait();
  times.others = longest(beside.seconds());
  for (const double one : seconds) times.behind.push_back(longest(one));
  for (const tutti::Key& key : keys_) count_wrong(key);
  count_wrong(urgent_);
  return times;
}

/// Fills the values anew, which all ranks have.
void UrgentPush::begin_turn() {
  ++turn_;
  for (Tensor& value : values_) value.fill(turn_ % 100 + world_.rank());
  urgent_value_.fill(turn_ % 100 + world_.rank());
  world_.barrier();
}

Pending UrgentPush::push_urgent() {
  return kv_.push_async(urgent_, urgent_value_, {.priority = 1});
}

double UrgentPush::longest(double seconds) {
  world_.allreduce(tutti::view(&seconds, {1}), tutti::ReduceOp::max);
  return seconds;
}

void UrgentPush::count_wrong(const tutti::Key& key) {
  const int ranks = world_.size();
  const int expected = ranks * (turn_ % 100) + ranks * (ranks - 1) / 2;
  const auto sum = static_cast<float>(expected);
  const auto values = kv_.view(key).values<float>();
  wrong_ += std::ranges::count_if(values, [&](float value) { return value != sum; });
}

std::int64_t UrgentPush::wrong() {
  world_.allreduce(tutti::view(&wrong_, {1}));
  return wrong_;
}

}  // namespace apps
