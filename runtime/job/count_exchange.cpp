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

/// Counts and elements of all ranks together. To read more of what is meant for other ranks costs
/// more than a second call.
constexpr std::size_t kMostBytes = std::size_t{4} << 10;

constexpr std::size_t kWord = sizeof(std::uint64_t);

}  // namespace

/// At least as much for elements as for counts, if both fit.
void CountExchange::make_room(std::size_t ranks) {
  const std::size_t counts = 2 * ranks * kWord;
  const std::size_t wish = std::bit_ceil(std::max(most_bytes_, counts));
  const std::size_t least = std::bit_ceil(counts);
  const auto fits = [&](std::size_t room) { return ranks * (counts + room) <= kMostBytes; };
  room_ = fits(wish) ? wish : fits(least) ? least : 0;
  stride_ = (counts + room_) / kWord;
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
  if (input.size_bytes() > 0 && input.size_bytes() <= room_) {
    std::memcpy(own_.data() + 2 * ranks_, input.bytes(), input.size_bytes());
  }
  const auto segments = collectives::allgather_segments(
      static_cast<int>(ranks_), reinterpret_cast<const std::byte*>(own_.data()),
      reinterpret_cast<std::byte*>(all_.data()), stride_, DType::int64);
  const Digest digest = Digest().add(static_cast<std::uint64_t>(input.dtype()));
  engine.run({.kind = Kind::allgather,
              .digest = digest.value(),
              .segments = segments,
              .describe = what,
              .verb = Verb::alltoall});
  most_bytes_ = 0;
  for (std::size_t from = 0; from < ranks_; ++from) {
    most_bytes_ = std::max(most_bytes_, first_for(from, ranks_) * width_);
  }
}

/// How many elements `from` gives to the ranks below `to`. The counts of a rank add up to its
/// input, so this does not wrap around.
std::size_t CountExchange::first_for(std::size_t from, std::size_t to) const {
  std::size_t first = 0;
  for (std::size_t i = 0; i < to; ++i) first += given(from, i);
  return first;
}

void CountExchange::copy_data(std::size_t rank, std::byte* output) const {
  for (std::size_t from = 0; from < ranks_; ++from) {
    const std::size_t bytes = given(from, rank) * width_;
    if (bytes == 0) continue;
    const auto* const data =
        reinterpret_cast<const std::byte*>(all_.data() + stride_ * from + 2 * ranks_);
    std::memcpy(output, data + first_for(from, rank) * width_, bytes);
    output += bytes;
  }
}

}  // namespace tutti
