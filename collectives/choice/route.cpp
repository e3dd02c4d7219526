// SPDX-License-Identifier: Apache-2.0
#include "collectives/choice/route.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "collectives/job/names.hpp"
#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

namespace {

/// True if announcements or handshakes may carry the data. Compressed data is excluded, so that its
/// rounding does not depend on what else is in the call. So are operations with separate lanes,
/// because a handshake would be summed over the node.
bool may_be_carried(const Tuning& tuning, const Operation& operation, std::size_t bytes) {
  return operation.packing == nullptr && !operation.lanes_apart &&
         bytes <= std::max(kInlineBytes, tuning.most_halved_bytes());
}

}  // namespace

const char* name_of(Route route) {
  constexpr const char* kNames[] = {"tiny", "small", "announced", "halved", "alone", "by path"};
  return name_in<Route::by_path>(kNames, route);
}

std::string to_string(Route route) {
  constexpr const char* kReasons[] = {
      "it fits into the first line of the announcements",
      "it fits into the announcements",
      "the learner sends it along with the announcements",
      "the nodes swap halves of the sums along with their handshakes",
      "there is one rank",
      "it moves after the announcements"};
  return std::string(name_of(route)) + ": " + name_in<Route::by_path>(kReasons, route);
}

CallClass class_between_nodes(const Tuning& tuning, const Operation& operation,
                              const FusedLayout& layout) {
  const std::size_t bytes = layout.total();
  const bool may_be = may_be_carried(tuning, operation, bytes) && !has_single_sources(layout);
  return {.kind = operation.kind,
          .between_nodes = true,
          .may_be_inline = may_be && tuning.tries_inline(bytes),
          .may_be_halved = may_be && tuning.may_be_halved(bytes),
          .size = static_cast<std::uint8_t>(std::bit_width(bytes - 1))};
}

/// Between nodes only the size decides, and above a certain size the learner. The limit is lower
/// for data with a single source, because all nodes would send it to all others.
Route Router::choose(const Operation& operation, const FusedLayout& layout,
                     FunctionRef<CallClass()> class_here) const {
  const std::size_t bytes = layout.total();
  const bool may_be = may_be_carried(tuning_, operation, bytes);
  if (topology_.num_nodes() > 1) {
    const CallClass call = class_between_nodes(tuning_, operation, layout);
    if (call.may_be_carried()) {
      const Path& path = learner_.plan(call);
      if (path == kHalved) return Route::halved;
      return path.inputs == Inputs::announced ? Route::announced : Route::by_path;
    }
    const bool is_small = bytes <= kInlineInNode || !has_single_sources(layout);
    return may_be && is_small && bytes <= tuning_.inline_shared_bytes ? Route::small
                                                                      : Route::by_path;
  }
  if (may_be && bytes <= tuning_.inline_shared_bytes) return Route::small;
  if (topology_.size == 1) return Route::alone;
  if (!may_be || bytes > kInlineInNode) return Route::by_path;
  return learner_.plan(class_here()).inputs == Inputs::announced ? Route::announced
                                                                 : Route::by_path;
}

}  // namespace tutti::collectives
