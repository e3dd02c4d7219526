// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/record.hpp"

#include <algorithm>

#include "collectives/job/plain_text.hpp"

namespace tutti::collectives {

namespace {

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

const char* phase_to_string(std::uint32_t phase) noexcept {
  switch (static_cast<Phase>(phase)) {
    case Phase::announced:
      return "waiting for the other ranks";
    case Phase::moving:
      return "data is moving";
    case Phase::updating:
      return "in the updater";
    case Phase::done:
      return "done";
    case Phase::refused:
      return "ended in an error on all ranks";
  }
  return "unknown";
}

}  // namespace

RecordBook::RecordBook() : first_ticks_(ticks()), first_ns_(now_ns()) {}

std::size_t RecordBook::describe(std::uint64_t sequence, std::span<char> text) const noexcept {
  const CallRecord& record = calls_[sequence % kCalls];
  if (sequence == 0 || record.sequence.load(std::memory_order_acquire) != sequence) return 0;
  const std::uint32_t verb_and_keys = record.verb_and_keys.load(kRelaxed);
  const std::uint32_t keys = verb_and_keys >> 8;
  const std::uint64_t ticks_now = ticks();
  const double ns_per_tick =
      static_cast<double>(now_ns() - first_ns_) /
      static_cast<double>(std::max<std::uint64_t>(ticks_now - first_ticks_, 1));
  const std::uint64_t begun = record.begun.load(kRelaxed);
  const double age_ns =
      ticks_now > begun ? static_cast<double>(ticks_now - begun) * ns_per_tick : 0.0;

  PlainText out(text);
  out.add("call ").add(sequence).add(", ").add(to_string(static_cast<Verb>(verb_and_keys & 0xff)));
  if (keys > 0) {
    std::uint64_t words[3];
    for (int i = 0; i < 3; ++i) words[i] = record.key[i].load(kRelaxed);
    const auto* bytes = reinterpret_cast<const char*>(words);
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0]));
    out.add(" of key ");
    if (length == 0) {
      out.add(static_cast<std::int64_t>(words[1]));
    } else {
      out.add(bytes + 1, std::min<std::size_t>(length - 1, 23));
    }
    if (keys > 1) out.add(" and ").add(std::uint64_t{keys - 1}).add(" more");
  }
  out.add(", ").add(record.bytes.load(kRelaxed)).add(" bytes: ");
  out.add(phase_to_string(record.phase.load(kRelaxed))).add(", begun ");
  out.add_seconds(age_ns).add(" ago");
  std::atomic_thread_fence(std::memory_order_acquire);
  return record.sequence.load(kRelaxed) == sequence ? out.size() : 0;
}

}  // namespace tutti::collectives
