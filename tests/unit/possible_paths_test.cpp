// SPDX-License-Identifier: Apache-2.0
// The paths that a call may take.
#include <algorithm>
#include <bit>
#include <doctest/doctest.h>

#include "collectives/choice/path.hpp"
#include "collectives/wait/node_memory.hpp"

using namespace tutti;
using namespace tutti::collectives;

namespace {

CallClass allreduce_of(std::size_t bytes = std::size_t{1} << 20) {
  return {.kind = Kind::allreduce,
          .inputs = Location::ordinary,
          .apart = true,
          .size = static_cast<std::uint8_t>(std::bit_width(bytes) - 1)};
}

bool may(const CallClass& call, Inputs inputs, Results results, bool can_fetch = true,
         int ranks = 2) {
  const auto paths = possible_paths(call, ranks, can_fetch);
  return std::find(paths.begin(), paths.end(), Path{.inputs = inputs, .results = results}) !=
         paths.end();
}

}  // namespace

TEST_CASE("a rank does not sum for itself from inputs that their owner overwrites") {
  CallClass call = allreduce_of();
  CHECK(may(call, Inputs::fetched, Results::own));
  call.apart = false;
  CHECK_FALSE(may(call, Inputs::fetched, Results::own));
  CHECK(may(call, Inputs::staged, Results::own));  // staged inputs are copies
  CHECK(may(call, Inputs::fetched, Results::spread));
  CHECK(may(call, Inputs::fetched, Results::fetched));
  call.inputs = Location::mixed;
  CHECK_FALSE(may(call, Inputs::staged, Results::own));
  call.inputs = Location::shared;
  CHECK_FALSE(may(call, Inputs::staged, Results::own));
}

TEST_CASE("results are fetched from outputs only where every rank has its own, whole") {
  CallClass call = allreduce_of();
  call.consumed = true;
  CHECK_FALSE(may(call, Inputs::fetched, Results::fetched));
  call.consumed = false;
  call.kind = Kind::reduce_scatter;
  CHECK_FALSE(may(call, Inputs::fetched, Results::fetched));
}

TEST_CASE("a rank updates for all only where all of them can be written") {
  CallClass call = allreduce_of();
  call.consumed = true;
  const auto may_update = [&](Inputs inputs) { return may(call, inputs, Results::updated); };
  CHECK_FALSE(may_update(Inputs::staged));
  call.shares_updates = true;
  CHECK(may_update(Inputs::staged));
  CHECK(may_update(Inputs::fetched));
  CHECK_FALSE(may_update(Inputs::announced));
  call.inputs = Location::shared;
  CHECK(may_update(Inputs::staged));  // inputs are read in place
  CHECK_FALSE(may_update(Inputs::fetched));
}

TEST_CASE("calls whose updates can be shared are a class of their own") {
  CallClass call = allreduce_of();
  call.consumed = true;
  CallClass shared = call;
  shared.shares_updates = true;
  CHECK(call.number() != shared.number());
  CHECK_FALSE(call.is_like(shared));
}

TEST_CASE("without leave of the kernel nothing is fetched") {
  for (const Results results :
       {Results::spread, Results::own, Results::fetched, Results::updated}) {
    CHECK_FALSE(may(allreduce_of(), Inputs::fetched, results, /*can_fetch=*/false));
  }
}

TEST_CASE("slots are swapped by two ranks, each of which sums for itself") {
  for (const Results results :
       {Results::spread, Results::own, Results::fetched, Results::updated}) {
    CallClass call = allreduce_of();
    call.consumed = call.shares_updates = results == Results::updated;
    for (const bool can_fetch : {false, true}) {
      CHECK(may(call, Inputs::swapped, results, can_fetch) == (results == Results::own));
      CHECK_FALSE(may(call, Inputs::swapped, results, can_fetch, 3));
    }
    call.inputs = Location::shared;
    CHECK_FALSE(may(call, Inputs::swapped, results));
  }
  for (const Kind kind : {Kind::broadcast, Kind::reduce, Kind::reduce_scatter, Kind::allgather,
                          Kind::gather, Kind::scatter, Kind::alltoall}) {
    CallClass call = allreduce_of();
    call.kind = kind;
    const bool both_ways =
        kind == Kind::reduce_scatter || kind == Kind::allgather || kind == Kind::alltoall;
    CHECK(may(call, Inputs::swapped, Results::own) == both_ways);
  }
  CallClass largest = allreduce_of();
  largest.size = 36;
  CHECK(may(largest, Inputs::swapped, Results::own));
  ++largest.size;  // too many steps
  CHECK_FALSE(may(largest, Inputs::swapped, Results::own));
  CallClass mixed = allreduce_of();
  mixed.inputs = Location::mixed;
  CHECK(may(mixed, Inputs::swapped, Results::own));
  mixed.apart = false;
  CHECK_FALSE(may(mixed, Inputs::swapped, Results::own));
}

TEST_CASE("only what fits is announced") {
  CHECK(may(allreduce_of(4096), Inputs::announced, Results::own));
  CHECK_FALSE(may(allreduce_of(kInlineInNode), Inputs::announced, Results::own));
}
