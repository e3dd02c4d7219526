// SPDX-License-Identifier: Apache-2.0
// The route of a call's data follows from its size and kind, the layout, and the learnt choices.
#include "collectives/choice/route.hpp"

#include <array>
#include <bit>
#include <doctest/doctest.h>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::collectives;

namespace {

constexpr CacheSizes kCachesOfRoutes{.level1 = 32 << 10, .last_level = 32 << 20};

/// The route of a call of so many bytes on the first rank of these nodes.
class Calls {
 public:
  explicit Calls(const std::vector<int>& nodes, const std::string& algorithms = "")
      : topology_(Topology::consecutive(0, nodes)),
        tuning_(Tuning::choose(topology_, settings_with(algorithms), kCachesOfRoutes)),
        learner_(tuning_, topology_.local_size(), /*can_fetch=*/false) {}

  struct Given {
    Kind kind = Kind::allreduce;
    int source = kEveryRank;
    Location inputs = Location::shared;
    bool lanes_apart = false;
  };
  Route operator()(std::size_t bytes) { return (*this)(bytes, {}); }
  Route operator()(std::size_t bytes, Given given) {
    const std::array segments{
        Segment{.count = bytes, .dtype = DType::uint8, .source = given.source}};
    const auto describe = [] { return std::string("a call"); };
    const Operation operation{.kind = given.kind,
                              .segments = segments,
                              .describe = describe,
                              .lanes_apart = given.lanes_apart};
    FusedLayout layout;
    layout.assign(segments, /*wide=*/false);
    const auto class_here = [&] {
      return CallClass{.kind = given.kind,
                       .inputs = given.inputs,
                       .size = static_cast<std::uint8_t>(std::bit_width(bytes) - 1)};
    };
    return Router(topology_, tuning_, learner_).choose(operation, layout, class_here);
  }

 private:
  static Settings settings_with(const std::string& algorithms) {
    Settings settings;
    settings.tuning = "static";
    settings.algorithms = algorithms;
    return settings;
  }

  Topology topology_;
  Tuning tuning_;
  Learner learner_;
};

}  // namespace

TEST_CASE("in a node small data is announced, and other data where the path says so") {
  Calls route({2});
  CHECK(route(0) == Route::small);
  CHECK(route(1024) == Route::small);
  CHECK(route(2048) == Route::by_path);
  const auto ordinary = [&](std::size_t bytes) {
    return route(bytes, {.inputs = Location::ordinary});
  };
  CHECK(ordinary(1088) == Route::announced);
  CHECK(ordinary(8192) == Route::announced);
  CHECK(ordinary(8256) == Route::by_path);
}

TEST_CASE("a rank alone has nobody to announce its data to") {
  Calls route({1});
  CHECK(route(1024) == Route::small);
  CHECK(route(1088) == Route::alone);
  CHECK(route(std::size_t{64} << 20) == Route::alone);
}

TEST_CASE("between nodes data goes with the handshakes up to a size; a copy of one source, less") {
  Calls route({1, 1});
  CHECK(route(0) == Route::small);
  CHECK(route(65536) == Route::small);
  CHECK(route(65600) == Route::by_path);
  CHECK(route(8192, {.kind = Kind::broadcast, .source = 0}) == Route::small);
  CHECK(route(8256, {.kind = Kind::broadcast, .source = 0}) == Route::by_path);
  CHECK(Calls({1, 1}, "paths=in-turn")(16384) == Route::announced);
}

TEST_CASE("among many nodes sums go by halves with the handshakes") {
  Calls route(std::vector<int>(32, 1));
  CHECK(route(1024) == Route::small);
  CHECK(route(std::size_t{256} << 10) == Route::halved);
  CHECK(route(std::size_t{256} << 10, {.kind = Kind::broadcast, .source = 0}) == Route::by_path);
}

TEST_CASE("what is packed, or has lanes apart, is not announced") {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    Calls route(nodes);
    CHECK(route(64, {.lanes_apart = true}) == Route::by_path);
  }
}

TEST_CASE("a route names its reason") {
  CHECK(to_string(Route::tiny) == "tiny: it fits into the first line of the announcements");
  CHECK(to_string(Route::by_path) == "by path: it moves after the announcements");
  CHECK(is_carried(Route::halved));
  CHECK_FALSE(is_carried(Route::alone));
}
