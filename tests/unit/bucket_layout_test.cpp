// SPDX-License-Identifier: Apache-2.0
// The layout of a push on a GPU: launches, sums over the ranks and rounds.
#include "runtime/store/device/bucket_layout.hpp"

#include <doctest/doctest.h>
#include <vector>

using tutti::BucketLayout;
using tutti::DType;
using tutti::LayoutTraits;
using tutti::SumUse;
using tutti::gpus::TensorRow;
using Memory = tutti::BucketLayout::Memory;

namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
constexpr std::size_t kLargeCount = kMegabyte / sizeof(float);

TensorRow key(std::size_t count, DType dtype = DType::float32, int num_values = 1) {
  return {.num_inputs = num_values, .count = count, .dtype = dtype};
}

LayoutTraits with_inputs(SumUse use) { return {.takes_inputs = true, .unit = 512, .use = use}; }

std::vector<std::size_t> offsets_of(const BucketLayout& layout) {
  std::vector<std::size_t> offsets;
  for (const auto& sum : layout.sums()) offsets.push_back(sum.offset);
  return offsets;
}

std::vector<std::size_t> rounds_of(const BucketLayout& layout) {
  std::vector<std::size_t> rounds;
  for (const auto& sum : layout.sums()) rounds.push_back(sum.round);
  return rounds;
}

using Indices = std::vector<std::size_t>;

Indices list(std::span<const std::size_t> indices) { return {indices.begin(), indices.end()}; }

}  // namespace

TEST_CASE("without sums all keys are in one launch, and no memory is needed") {
  for (const std::size_t count : {0, 1, 3}) {
    const BucketLayout layout(count);
    CHECK_FALSE(layout.has_sums());
    CHECK(layout.bucket_bytes() == 0);
    CHECK(layout.rank_sums().empty());
    REQUIRE(layout.rounds().size() == 1);
    CHECK(layout.rounds()[0].keys.size() == count);
  }
}

TEST_CASE("small keys of a type lie side by side, and are one sum over the ranks") {
  const std::vector<TensorRow> keys = {key(1), key(65, DType::float16), key(100), key(0),
                                       key(3, DType::float16)};
  const BucketLayout layout(keys, {.unit = 512, .use = SumUse::update});
  // float16 first: 256 bytes for each of its keys; then float32: 256, 512 and 0.
  CHECK(offsets_of(layout) == Indices{512, 0, 768, 1280, 256});
  CHECK(list(layout.launched()) == Indices{1, 4, 0, 2, 3});
  REQUIRE(layout.rank_sums().size() == 2);
  CHECK(layout.rank_sums()[0].dtype == DType::float16);
  CHECK(layout.rank_sums()[0].count == 256);
  CHECK(layout.rank_sums()[1].offset == 512);
  CHECK(layout.rank_sums()[1].count == 256);  // 768 bytes, padded to two units
  CHECK(layout.bucket_bytes() == 1536);
  REQUIRE(layout.rounds().size() == 1);
  CHECK(layout.rounds()[0].num_rank_sums == 2);
  CHECK(layout.rounds()[0].keys == Indices{0, 1, 2, 3, 4});
}

TEST_CASE("keys from 1 MiB on are summed from where they are, if the reducer takes inputs") {
  const std::vector<TensorRow> keys = {key(kLargeCount), key(kLargeCount - 1), key(7)};
  const BucketLayout copied(keys, {.unit = 256, .use = SumUse::update});
  CHECK(copied.launched().size() == 3);
  CHECK(copied.rank_sums().size() == 1);
  const BucketLayout layout(keys, with_inputs(SumUse::update));
  CHECK(layout.sums()[0].is_large);
  CHECK_FALSE(layout.sums()[0].is_launched);
  CHECK(layout.sums()[0].index == 1);
  CHECK(list(layout.launched()) == Indices{1, 2});
  REQUIRE(layout.rank_sums().size() == 2);
  CHECK(layout.rank_sums()[1].is_large);
  CHECK(layout.rank_sums()[1].large_key == 0);
  CHECK(layout.rank_sums()[1].count == kLargeCount);
  CHECK(layout.rank_sums()[1].offset == layout.sums()[0].offset);
}

TEST_CASE("large keys that are assigned are summed in their replicas, and updated no more") {
  const std::vector<TensorRow> keys = {key(kLargeCount), key(7),
                                       key(kLargeCount, DType::float32, 2)};
  const BucketLayout layout(keys, with_inputs(SumUse::assign));
  CHECK(layout.sums()[0].memory == Memory::replica);
  CHECK_FALSE(layout.sums()[0].is_launched);
  CHECK(layout.sums()[1].memory == Memory::bucket);
  CHECK(layout.sums()[2].memory == Memory::replica);
  CHECK(list(layout.launched()) == Indices{1, 2});  // several values are summed beforehand
  CHECK(layout.bucket_bytes() == 512);
  REQUIRE(layout.rounds().size() == 1);
  CHECK(layout.rounds()[0].num_rank_sums == 3);
  CHECK(layout.rounds()[0].keys == Indices{1});
}

TEST_CASE("an optimizer's large keys share a window in rounds, and the bucket has no more") {
  const std::size_t large = 12 * kMegabyte / sizeof(float);
  const std::vector<TensorRow> keys = {key(7), key(large), key(large), key(large),
                                       key(7), key(large), key(large)};
  const BucketLayout layout(keys, with_inputs(SumUse::update));
  CHECK(rounds_of(layout) == Indices{0, 0, 0, 1, 0, 1, 2});
  CHECK(layout.bucket_bytes() == 512 + 24 * kMegabyte);
  CHECK(layout.sums()[3].offset == layout.sums()[1].offset);
  REQUIRE(layout.rounds().size() == 3);
  CHECK(layout.rounds()[0].num_rank_sums == 3);
  CHECK(layout.rounds()[0].keys == Indices{0, 1, 2, 4});
  CHECK(layout.rounds()[1].num_rank_sums == 2);
  CHECK(layout.rounds()[1].keys == Indices{3, 5});
  CHECK(layout.rounds()[2].keys == Indices{6});
}

TEST_CASE("a key that is larger than the window of rounds has a round of its own") {
  const std::size_t count = 40 * kMegabyte / sizeof(float);
  const std::vector<TensorRow> keys = {key(kLargeCount), key(count), key(kLargeCount)};
  const BucketLayout layout(keys, with_inputs(SumUse::update));
  CHECK(rounds_of(layout) == Indices{0, 1, 2});
  CHECK(layout.bucket_bytes() == 40 * kMegabyte);
}

TEST_CASE("ranks with several values of a large key have the rounds of those with one") {
  const std::size_t large = 12 * kMegabyte / sizeof(float);
  const std::vector<TensorRow> one = {key(large), key(large), key(large)};
  std::vector<TensorRow> several = one;
  several[1].num_inputs = 2;
  const BucketLayout left(one, with_inputs(SumUse::update));
  const BucketLayout right(several, with_inputs(SumUse::update));
  CHECK(rounds_of(left) == rounds_of(right));
  CHECK(right.sums()[1].is_launched);
  CHECK(right.sums()[1].offset == 24 * kMegabyte);  // behind the window, which a round may fill
  for (std::size_t i = 0; i < left.rounds().size(); ++i) {
    CHECK(left.rounds()[i].num_rank_sums == right.rounds()[i].num_rank_sums);
  }
}

TEST_CASE("sums that are needed at once, or by an updater, have one round") {
  const std::size_t large = 20 * kMegabyte / sizeof(float);
  const std::vector<TensorRow> keys = {key(large), key(large), key(large)};
  for (const SumUse use : {SumUse::update_together, SumUse::call_updater}) {
    const BucketLayout layout(keys, with_inputs(use));
    CHECK(layout.rounds().size() == 1);
    CHECK(layout.rounds()[0].keys == Indices{0, 1, 2});
    CHECK(layout.bucket_bytes() == 60 * kMegabyte);
  }
}

TEST_CASE("sums that fit into the peers' windows are made there, but for an updater") {
  const std::vector<TensorRow> keys = {key(100), key(kLargeCount), key(10, DType::int8)};
  LayoutTraits traits{.unit = 512, .use = SumUse::assign};
  const std::size_t bytes = 512 + kMegabyte + 512;  // of int8 256, padded
  traits.peer_window_bytes = bytes - 1;
  CHECK_FALSE(BucketLayout(keys, traits).reads_peer_windows());
  traits.peer_window_bytes = bytes;
  const BucketLayout layout(keys, traits);
  CHECK(layout.reads_peer_windows());
  CHECK(layout.bucket_bytes() == 0);
  for (const auto& sum : layout.sums()) CHECK(sum.memory == Memory::peer_window);
  CHECK(layout.launched().size() == 3);
  CHECK(layout.rounds().size() == 1);
  CHECK(layout.rounds()[0].keys == Indices{0, 1, 2});
  traits.use = SumUse::call_updater;
  CHECK_FALSE(BucketLayout(keys, traits).reads_peer_windows());
}
