// SPDX-License-Identifier: Apache-2.0
// The variants on a CPU that plays a GPU, a warp after the other: their results are those of the
// library's kernels, bit by bit.
#include <doctest/doctest.h>

#include "tests/gpu/host_rig.hpp"
#include "tests/gpu/variants/bulk.hpp"
#include "tests/gpu/variants/check.hpp"
#include "tests/gpu/variants/variant_on.hpp"
#include "tests/support/effort.hpp"

namespace test::variants {

namespace {

constexpr std::uint32_t kHostWarps = 5;  // of a grid that takes tile after tile

/// The Engine of walk_tiles() for a whole warp. A copy comes when it is waited for, and what a
/// place held before is gone.
template <class Body>
class HostEngine {
 public:
  explicit HostEngine(const Body& body)
      : body_(body), memory_(std::size_t{kStages} * Body::kStageBytes) {}

  void fetch(std::uint32_t tile, std::uint32_t place) {
    REQUIRE_FALSE(places_[place].is_used);
    places_[place].is_used = true;
    std::fill_n(at(place), Body::kStageBytes, std::byte{0xA5});
    body_.each_copy(tile, [&](std::uint32_t offset, const std::byte* from, std::uint32_t bytes) {
      REQUIRE(offset + bytes <= Body::kStageBytes);
      REQUIRE((offset | bytes | reinterpret_cast<std::uintptr_t>(from)) % kBulkGrain == 0);
      places_[place].coming.push_back({at(place) + offset, from, bytes});
    });
  }
  void await(std::uint32_t place, std::uint32_t parity) {
    REQUIRE(places_[place].is_used);
    REQUIRE(places_[place].phase++ % 2 == parity);
    for (const Copy& copy : places_[place].coming) std::memcpy(copy.to, copy.from, copy.bytes);
    num_copies += places_[place].coming.size();
    places_[place].coming.clear();
  }
  void compute(std::uint32_t tile, std::uint32_t place) {
    for (std::uint32_t lane = 0; lane < kernels::kLanes; ++lane)
      body_.compute(tile, lane, at(place));
  }
  void leave(std::uint32_t place) { places_[place].is_used = false; }

  std::size_t num_copies = 0;

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::uint32_t bytes;
  };
  struct Place {
    bool is_used = false;
    std::uint32_t phase = 0;
    std::vector<Copy> coming;
  };

  std::byte* at(std::uint32_t place) {
    return memory_.data() + std::size_t{place} * Body::kStageBytes;
  }

  const Body& body_;
  std::vector<std::byte> memory_;
  Place places_[kStages];
};

/// What a variant's machine has been asked for, besides.
struct HostVariantWork : HostWork {
  std::size_t num_bulk_copies = 0;
};

template <class TheShape>
class HostVariantMachine : public HostMachine {
 public:
  using Shape = TheShape;

  explicit HostVariantMachine(HostVariantWork* work) : HostMachine(work), work_(work) {}

  [[nodiscard]] static std::string obstacle() { return {}; }

  template <class Body>
  void run(Stream stream, std::uint32_t num_tiles, const Body& body) {
    if constexpr (Shape::kIsBulk) {
      ++work_->num_launches;
      work_->waiting.emplace_back([=, work = work_] {
        const BulkBody<Body> bulk(body);
        for (std::uint32_t warp = 0; warp < kHostWarps; ++warp) {
          HostEngine engine(bulk);
          walk_tiles(warp, kHostWarps, num_tiles, engine);
          work->num_bulk_copies += engine.num_copies;
        }
      });
    } else if constexpr (Shape::kIsPersistent) {
      ++work_->num_launches;
      work_->waiting.emplace_back([=] {
        for (std::uint32_t warp = 0; warp < kHostWarps; ++warp) {
          for (std::uint32_t tile = warp; tile < num_tiles; tile += kHostWarps) {
            for (std::uint32_t lane = 0; lane < kernels::kLanes; ++lane) body(tile, lane);
          }
        }
      });
    } else {
      HostMachine::run(stream, num_tiles, body);
    }
  }

 private:
  HostVariantWork* work_;
};

Variants all_variants(HostVariantWork& work) {
  Variants variants;
  add_variants<HostVariantMachine>(variants, &work, LoadShapes());
  add_variants<HostVariantMachine>(variants, &work, LaunchShapes());
  return variants;
}

}  // namespace

TEST_CASE("every variant of the kernels has the bits of the library's own") {
  HostVariantWork work;
  const auto rig = make_host_rig(work);
  const Variants variants = all_variants(work);
  CHECK(variants.size() == 13);
  const std::vector<Case> cases = all_cases();
  for (std::size_t i = 0; const auto& variant : variants) {
    ++i;
    for (std::size_t j = 0; const Case& now : cases) {
      if (test::kFewRounds && (i + ++j) % 3 != 0) continue;  // each case with some variants
      INFO(variant->name());
      CHECK(difference(*rig, *variant, now) == "");
    }
  }
}

TEST_CASE("a variant that would add a norm's addends in another order says so") {
  HostVariantWork work;
  const auto lamb = tutti::optimizer::create("lamb");
  std::size_t num_left_out = 0;
  for (const auto& variant : all_variants(work)) {
    CHECK(variant->obstacle(nullptr).empty());
    const std::string why = variant->obstacle(lamb.get());
    if (why == "adds the addends of norms in another order") ++num_left_out;
  }
  CHECK(num_left_out == 6);
}

TEST_CASE("whole tiles come by bulk copies, one for each tensor that is read") {
  HostVariantWork work;
  const auto rig = make_host_rig(work);
  VariantOn<HostVariantMachine<Bulk>> variant(&work);
  for (const auto& [name, tensors] : {std::pair{"adamw", 4u}, {"sum of 4", 4u}, {"sum of 8", 0u}}) {
    for (const Case& now : all_cases()) {
      if (now.name != name) continue;
      CAPTURE(now.name);
      work.num_bulk_copies = 0;
      CHECK(difference(*rig, variant, now) == "");
      // Tiles of 512 elements: none of 0, 1, 33; 1, 2, 5, 8, 16, 78, 256 of the others; three
      // calls.
      CHECK(work.num_bulk_copies == 3 * tensors * (1 + 2 + 5 + 8 + 16 + 78 + 256));
    }
  }
}

}  // namespace test::variants
