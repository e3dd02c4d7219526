// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/verify/sample.hpp"

#include <algorithm>

#include "runtime/base/digest.hpp"

namespace tutti {

namespace {

/// Bytes that each push of a key may digest beyond its share, so that small keys are digested whole
/// sooner.
constexpr std::size_t kLeastBytes = 32;
/// Keys of a list for each part that a push digests: a push digests a part of one key, and of one
/// more for each so many keys of its list.
constexpr std::size_t kKeysPerVisit = 64;

void add(Digest& digest, const Tensor& tensor, std::size_t first, std::size_t bytes) {
  digest.add({reinterpret_cast<const char*>(tensor.bytes()) + first, bytes});
}

std::size_t bytes_of(const Entry& entry) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < num_tensors(entry); ++i) bytes += tensor_of(entry, i).size_bytes();
  return bytes;
}

}  // namespace

std::size_t num_tensors(const Entry& entry) { return 1 + entry.states.size(); }

const Tensor& tensor_of(const Entry& entry, std::size_t index) {
  return index == 0 ? entry.replica : entry.states[index - 1];
}

std::uint32_t Sample::digest(std::span<Entry* const> entries) {
  visits_.clear();
  visits_now_ = 0;
  if (mode_ == Verify::off || entries.empty()) return 0;
  Digest digest;
  if (mode_ == Verify::full) {
    for (const Entry* entry : entries) {
      for (std::size_t i = 0; i < num_tensors(*entry); ++i) {
        add(digest, tensor_of(*entry, i), 0, tensor_of(*entry, i).size_bytes());
      }
    }
    return folded(digest.value());
  }
  visits_now_ = 1 + entries.size() / kKeysPerVisit;
  for (std::size_t i = 0; i < visits_now_; ++i) {
    Entry& entry = *entries[(position_ + i) % entries.size()];
    visits_.push_back(visit(entry, entries.size() / visits_now_, digest));
  }
  return folded(digest.value());
}

/// Digests the entry's next bytes in steps of kSampleBytes, as far as pushes have earned them, and
/// at most all of it once.
Sample::Visit Sample::visit(Entry& entry, std::size_t share_of_list, Digest& digest) const {
  Entry::Verified now = entry.verified;
  const std::size_t all = bytes_of(entry);
  now.earned = std::min(now.earned + kLeastBytes + all * share_of_list / kShare, all);
  std::size_t looked_at = 0;
  while (looked_at < all) {
    if (now.tensor >= num_tensors(entry)) now.tensor = now.first = 0;
    const Tensor& tensor = tensor_of(entry, now.tensor);
    const std::size_t rest = tensor.size_bytes() - std::min(now.first, tensor.size_bytes());
    const std::size_t bytes = std::min(kSampleBytes, rest);
    if (bytes > now.earned) break;
    if (bytes == 0) {
      ++now.tensor;
      now.first = 0;
      continue;
    }
    add(digest, tensor, now.first, bytes);
    now.earned -= bytes;
    now.first += bytes;
    looked_at += bytes;
  }
  return {&entry, now};
}

void Sample::commit() {
  for (const Visit& visit : visits_) visit.entry->verified = visit.after;
  position_ += visits_now_;
}

}  // namespace tutti
