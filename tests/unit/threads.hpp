// SPDX-License-Identifier: Apache-2.0
// Threads that play the ranks of a job.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <doctest/doctest.h>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "runtime/local/threads.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/summands.hpp"

namespace test {

using tutti::Communicator;
using tutti::Error;

/// A deadline for tests that let it pass. It is long enough that on a busy machine no rank that is
/// present misses it in the calls before.
inline constexpr std::chrono::duration<double> kShortDeadline{4};

/// The error of each rank's body, if it threw.
using Outcomes = std::vector<std::optional<Error>>;

/// Runs `body` as every rank of a job with these groups, each rank in a thread of its own.
inline Outcomes run_ranks(std::vector<std::shared_ptr<tutti::Group>> groups,
                          const std::function<void(Communicator&)>& body) {
  Outcomes outcomes(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator communicator(std::move(groups[rank]));
        body(communicator);
      } catch (const Error& error) {
        outcomes[rank] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// Runs threads as ranks, with groups that are made for this, on nodes of these sizes.
inline Outcomes as_ranks(const std::vector<int>& node_sizes, const tutti::Settings& settings,
                         const std::function<void(Communicator&)>& body,
                         tutti::MessageFilter filter = {}) {
  return run_ranks(tutti::make_thread_groups(node_sizes, settings, std::move(filter)), body);
}

inline int size_of_job(const std::vector<int>& node_sizes) {
  return std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
}

inline bool all_returned(const Outcomes& outcomes) {
  for (const auto& outcome : outcomes) {
    if (outcome) MESSAGE("a rank threw: ", std::string(outcome->what()));
    if (outcome) return false;
  }
  return true;
}

/// True if every rank threw an error with this code and these words in its text, and at least one
/// of them is told to report it.
inline bool all_say(const Outcomes& outcomes, tutti::ErrorCode code, const std::string& words) {
  bool is_reported = outcomes.empty();
  for (const auto& outcome : outcomes) {
    if (!outcome || outcome->code() != code) return false;
    if (std::string(outcome->what()).find(words) == std::string::npos) return false;
    is_reported = is_reported || outcome->reporter();
  }
  return is_reported;
}

/// Decrements a counter when a rank's body ends, in any way.
class CountDown {
 public:
  explicit CountDown(std::atomic<int>& count) : count_(count) {}
  ~CountDown() { --count_; }
  CountDown(const CountDown&) = delete;
  CountDown& operator=(const CountDown&) = delete;

 private:
  std::atomic<int>& count_;
};

/// All sequences of positive numbers that add up to n: every way to cut n ranks into nodes.
inline std::vector<std::vector<int>> layouts_of(int n) {
  if (n == 0) return {{}};
  std::vector<std::vector<int>> layouts;
  for (int first = 1; first <= n; ++first) {
    for (auto rest : layouts_of(n - first)) {
      rest.insert(rest.begin(), first);
      layouts.push_back(std::move(rest));
    }
  }
  return layouts;
}

/// A second implementation of the canonical tree: recursion over an element's operands.
template <class Value>
Value tree_sum(const std::vector<Value>& operands, std::size_t first, std::size_t count) {
  if (count == 1) return operands[first];
  std::size_t left = 1;
  while (2 * left < count) left *= 2;
  return tree_sum(operands, first, left) + tree_sum(operands, first + left, count - left);
}

/// The bytes of one or several tensors, which are compared at once.
using Bits = std::string;

inline void append(Bits& bits, const tutti::ConstTensorView& tensor) {
  bits.append(reinterpret_cast<const char*>(tensor.bytes()), tensor.size_bytes());
}
inline Bits bits_of(const tutti::ConstTensorView& tensor) {
  Bits bits;
  append(bits, tensor);
  return bits;
}

inline bool same_bits(std::span<const float> left, std::span<const float> right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size_bytes()) == 0);
}

}  // namespace test
