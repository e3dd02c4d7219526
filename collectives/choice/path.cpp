// SPDX-License-Identifier: Apache-2.0
#include "collectives/choice/path.hpp"

#include <bit>

#include "collectives/job/names.hpp"
#include "collectives/job/operation.hpp"
#include "collectives/text/numbers.hpp"
#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

const char* name_of(Inputs inputs) {
  constexpr const char* kNames[] = {"announced", "staged", "swapped", "fetched"};
  return name_in<Inputs::fetched>(kNames, inputs);
}

const char* name_of(Results results) {
  constexpr const char* kNames[] = {"spread", "own", "fetched", "updated"};
  return name_in<Results::updated>(kNames, results);
}

namespace {

const char* name_of(WritePolicy writes) {
  return writes == WritePolicy::cached ? "cached" : "streamed";
}

std::string between_nodes(const Path& path) {
  if (path == kWithHandshakes) return "with the handshakes";
  return path == kHalved ? "by halves, with the handshakes"
                         : "pieces=" + std::to_string(path.pieces);
}

// Slots that are swapped are small, and the number of steps of a call is limited.
constexpr std::uint8_t kMostSwappedSize = 37;

/// True if two ranks usually read as much of each other as they write for each other.
bool goes_both_ways(Kind kind) {
  return kind == Kind::allreduce || kind == Kind::reduce_scatter || kind == Kind::allgather ||
         kind == Kind::alltoall;
}

bool may_take(const CallClass& call, int ranks, bool can_fetch, const Path& path) {
  if (path.inputs == Inputs::announced) {
    return path.results == Results::own && call.size < std::bit_width(kInlineInNode) - 1;
  }
  const bool all_shared = call.inputs == Location::shared;
  if (path.inputs == Inputs::fetched && (!can_fetch || all_shared)) return false;
  if (path.inputs == Inputs::swapped) {
    const bool is_pair =
        ranks == 2 && !all_shared && goes_both_ways(call.kind) && call.size < kMostSwappedSize;
    return is_pair && path.results == Results::own &&
           (call.apart || !reads_where_they_are(path, call));
  }
  switch (path.results) {
    case Results::spread:
      return true;
    case Results::own:
      return call.apart || !reads_where_they_are(path, call);
    case Results::fetched:
      return can_fetch && (all_shared || path.inputs == Inputs::fetched) &&
             call.kind == Kind::allreduce && !call.consumed && !call.in_place;
    case Results::updated:
      return call.shares_updates;
  }
  return false;
}

}  // namespace

std::string to_string(const Path& path) {
  return std::string("inputs=") + name_of(path.inputs) + " results=" + name_of(path.results) +
         " slots=" + name_of(path.slots) + " outputs=" + name_of(path.outputs);
}

std::string to_string(const LearntPath& learnt) {
  const CallClass& call = learnt.call;
  const char* memory = call.inputs == Location::shared     ? "the store's memory"
                       : call.inputs == Location::ordinary ? "ordinary memory"
                                                           : "memory of both kinds";
  const char* goal = call.shares_updates ? " for shared updates"
                     : call.consumed     ? " for an optimizer"
                     : call.in_place     ? " in place"
                                         : "";
  const std::string margin =
      ": " + fixed(learnt.margin, 2) + " times the speed of the static choice";
  const std::string of = call.between_nodes ? " between nodes, up to "
                                            : std::string(" of ") + memory + goal + ", from ";
  return std::string("learnt: ") + to_string(of_kind(call.kind)) + of +
         std::to_string(std::size_t{1} << call.size) +
         " bytes: " + (call.between_nodes ? between_nodes(learnt.path) : to_string(learnt.path)) +
         margin;
}

std::vector<Path> possible_paths(const CallClass& call, int ranks, bool can_fetch) {
  std::vector<Path> paths;
  for (const Inputs inputs :
       {Inputs::announced, Inputs::swapped, Inputs::fetched, Inputs::staged}) {
    for (const Results results :
         {Results::fetched, Results::own, Results::updated, Results::spread}) {
      const Path path{.inputs = inputs, .results = results};
      if (may_take(call, ranks, can_fetch, path)) paths.push_back(path);
    }
  }
  return paths;
}

bool reads_where_they_are(const Path& path, const CallClass& call) {
  if (path.inputs == Inputs::announced) return false;
  return call.inputs != Location::ordinary || path.inputs == Inputs::fetched;
}

bool uses_slots(const Path& path, const CallClass& call) {
  if (path.inputs == Inputs::announced) return false;
  const bool stages = call.inputs != Location::shared && is_staged(path.inputs);
  return stages || (path.results == Results::spread && !call.in_place);
}

}  // namespace tutti::collectives
