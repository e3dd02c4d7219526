// SPDX-License-Identifier: Apache-2.0
// RecordBook: records of a rank's last calls, in memory that the other ranks of its node can read.
// A rank that is stuck or stopped cannot be asked.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tutti/key.hpp"

#include "collectives/job/operation.hpp"

namespace tutti::collectives {

/// The progress of a call.
enum class Phase : std::uint32_t {
  announced,  ///< waits for the other ranks' announcements
  moving,     ///< all ranks have announced the call; data is moving
  updating,   ///< the program's updater, or an optimizer that wants whole sums, is running
  done,
  refused,  ///< ended in an error that all ranks threw
};

/// Reads the processor's time stamp counter, which is 10 ns cheaper than the system's clock.
inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// The recorded facts about a call.
struct CallFacts {
  std::uint64_t sequence = 0;
  Verb verb = Verb::of_kind;
  std::uint32_t keys = 0;
  const Key* first_key = nullptr;
  std::uint64_t digest = 0;
  std::uint64_t bytes = 0;
  std::uint64_t begun = 0;  ///< in ticks
};

/// The record of one call: a cache line, written by its rank, read by others at any time. All words
/// are atomic. A reader that finds another sequence number after reading has read parts of two
/// calls.
struct CallRecord {
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint32_t> phase{0};
  std::atomic<std::uint32_t> verb_and_keys{0};  ///< Verb | number of keys << 8
  std::atomic<std::uint64_t> digest{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> begun{0};     ///< in ticks
  std::atomic<std::uint64_t> key[3] = {};  /// the first key, as write_key() encodes it
};
static_assert(sizeof(CallRecord) == 64);

/// The records of a rank's last kCalls calls.
class alignas(128) RecordBook {
 public:
  static constexpr std::size_t kCalls = 128;
  /// Size of a buffer for the longest description of a call.
  static constexpr std::size_t kWords = 200;

  RecordBook();

  /// Records that a call has been announced. Only the rank itself writes. Each word is stored with
  /// release order, so a reader that has seen a new word afterwards also sees that the old sequence
  /// number is gone.
  void begin(const CallFacts& facts) noexcept {
    CallRecord& record = at(facts.sequence);
    record.sequence.store(0, kRelaxed);
    record.phase.store(static_cast<std::uint32_t>(Phase::announced), kRelease);
    record.verb_and_keys.store(static_cast<std::uint32_t>(facts.verb) | facts.keys << 8, kRelease);
    record.digest.store(facts.digest, kRelease);
    record.bytes.store(facts.bytes, kRelease);
    record.begun.store(facts.begun, kRelease);
    write_key(record, facts.first_key);
    record.sequence.store(facts.sequence, std::memory_order_release);
    newest_.store(facts.sequence, std::memory_order_release);
  }
  void mark(std::uint64_t sequence, Phase phase) noexcept {
    at(sequence).phase.store(static_cast<std::uint32_t>(phase), kRelease);
  }

  /// True if the rank has announced this call, and neither completed it nor begun its update.
  [[nodiscard]] bool is_in(std::uint64_t sequence) const noexcept {
    const CallRecord& record = calls_[sequence % kCalls];
    if (newest() != sequence || record.sequence.load(kRelaxed) != sequence) return false;
    const auto phase = static_cast<Phase>(record.phase.load(kRelaxed));
    return phase == Phase::announced || phase == Phase::moving;
  }
  /// True if is_in() holds for the rank's last call.
  [[nodiscard]] bool is_in_a_call() const noexcept {
    const std::uint64_t last = newest();
    return last != 0 && is_in(last);
  }
  /// Returns the sequence number of the last call; 0 before the first.
  [[nodiscard]] std::uint64_t newest() const noexcept {
    return newest_.load(std::memory_order_acquire);
  }
  /// Writes a description such as "call 812, push of key 3 and 4 more, 1048576 bytes: waiting for
  /// other ranks, begun 12.4 s ago". Returns its length, or 0 if the call is no longer recorded.
  /// Safe in a signal handler.
  std::size_t describe(std::uint64_t sequence, std::span<char> text) const noexcept;

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  static constexpr auto kRelease = std::memory_order_release;

  [[nodiscard]] CallRecord& at(std::uint64_t sequence) noexcept {
    return calls_[sequence % kCalls];
  }
  /// Encodes a key in three words: an integer key behind a zero word, a text key as its length and
  /// its first 23 bytes.
  static void write_key(CallRecord& record, const Key* key) noexcept {
    std::array<std::uint64_t, 3> words{};
    if (key != nullptr && !key->is_string()) {
      words[1] = static_cast<std::uint64_t>(key->number());
    } else if (key != nullptr) {
      auto* bytes = reinterpret_cast<char*>(words.data());
      const std::size_t length = key->text().size() < 23 ? key->text().size() : 23;
      bytes[0] = static_cast<char>(1 + length);
      std::memcpy(bytes + 1, key->text().data(), length);
    }
    for (std::size_t i = 0; i < words.size(); ++i) record.key[i].store(words[i], kRelease);
  }

  std::uint64_t first_ticks_;
  std::uint64_t first_ns_;
  std::atomic<std::uint64_t> newest_{0};
  CallRecord calls_[kCalls];
};

}  // namespace tutti::collectives
