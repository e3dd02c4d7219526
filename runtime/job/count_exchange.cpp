// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/count_exchange.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/base/digest.hpp"

namespace tutti {

using collectives::Engine;
using collectives::Kind;
using collectives::Verb;

namespace {

/// Limit of the bytes of counts and elements of all ranks together. Beyond it, copying the data
/// four times and reading what is meant for other ranks costs more than a second call. With two
/// ranks (AMD EPYC, 2026-11), the single call takes 2.6 us instead of 1.2 us for an input of 8 KiB,
/// and 0.9 us instead of 1.1 us for 2 KiB.
constexpr std::size_t kMostBytes = std::size_t{4} << 10;

constexpr std::size_t kWord = sizeof(std::uint64_t);

}  // namespace

/// Sets the room for elements: at least as much as for counts, and as much as the last call would
/// have needed, if that fits; if possible a power of two, so that similar sizes have the same room.
void CountExchange::make_room(std::size_t ranks) {
  const std::size_t counts = 2 * ranks * kWord;
  const std::size_t most = kMostBytes / ranks / kWord * kWord;
  const std::size_t wish = counts + std::max(most_bytes_, counts);
  const std::size_t least = 2 * counts <= most ? 2 * counts : counts;
  const std::size_t all = wish <= most ? std::min(std::bit_ceil(wish), most) : least;
  room_ = all - counts;
  stride_ = all / kWord;
  ranks_ = ranks;
}

void CountExchange::meet(Engine& engine, const ConstTensorView& input, Counts given, Counts wanted,
                         collectives::FunctionRef<std::string()> what) {
  make_room(given.size());
  width_ = size_of(input.dtype());
  own_.resize(stride_);
  all_.resize(stride_ * ranks_);
  std::copy(given.begin(), given.end(), own_.begin());
  std::copy(wanted.begin(), wanted.end(), own_.begin() + static_cast<std::ptrdiff_t>(ranks_));
  const auto rank = static_cast<std::size_t>(engine.topology().rank);
  take_data(rank, input.bytes());
  collectives::BlockSegments segments(
      static_cast<int>(rank), reinterpret_cast<const std::byte*>(own_.data()),
      reinterpret_cast<std::byte*>(all_.data()), DType::int64, ranks_);
  for (std::size_t from = 0; from < ranks_; ++from) {
    segments.add(static_cast<int>(from), collectives::kEveryRank, stride_);
  }
  const Digest digest = Digest().add(static_cast<std::uint64_t>(input.dtype()));
  engine.run({.kind = Kind::allgather,
              .digest = digest.value(),
              .segments = segments.all(),
              .describe = what,
              .verb = Verb::alltoall});
  most_bytes_ = 0;
  for (std::size_t from = 0; from < ranks_; ++from) {
    most_bytes_ = std::max(most_bytes_, bytes(from, 0, ranks_) - bytes(from, from, from + 1));
  }
}

/// Copies the blocks for other ranks into the message, if there is room.
void CountExchange::take_data(std::size_t rank, const std::byte* input) {
  const auto bytes = [&](std::size_t first, std::size_t end) {
    std::size_t count = 0;
    for (std::size_t to = first; to < end; ++to) count += own_[to];
    return count * width_;
  };
  const std::size_t before = bytes(0, rank);
  const std::size_t behind = bytes(rank + 1, ranks_);
  if (before + behind > room_) return;
  auto* const room = reinterpret_cast<std::byte*>(own_.data() + 2 * ranks_);
  if (before > 0) std::memcpy(room, input, before);
  if (behind > 0) std::memcpy(room + before, input + before + bytes(rank, rank + 1), behind);
}

/// Returns the bytes that `from` sends to the ranks first .. end - 1. The counts of a rank add up
/// to its input, so this does not overflow.
std::size_t CountExchange::bytes(std::size_t from, std::size_t first, std::size_t end) const {
  std::size_t count = 0;
  for (std::size_t to = first; to < end; ++to) count += given(from, to);
  return count * width_;
}

void CountExchange::copy_data(std::size_t rank, const std::byte* input, std::byte* output) const {
  for (std::size_t from = 0; from < ranks_; ++from) {
    const std::size_t now = bytes(from, rank, rank + 1);
    if (now == 0) continue;
    std::size_t before = bytes(from, 0, rank);
    const std::byte* data = input;
    if (from != rank) {
      data = reinterpret_cast<const std::byte*>(all_.data() + stride_ * from + 2 * ranks_);
      if (from < rank) before -= bytes(from, from, from + 1);
    }
    std::memcpy(output, data + before, now);
    output += now;
  }
}

}  // namespace tutti
