// SPDX-License-Identifier: Apache-2.0
// Route: decides, once and before a call is announced, whether it is small and where its data
// travels.
#pragma once

#include <cstdint>

#include "collectives/choice/learner.hpp"
#include "collectives/choice/path.hpp"
#include "collectives/choice/tuning.hpp"
#include "collectives/job/function_ref.hpp"
#include "collectives/job/fused_layout.hpp"
#include "collectives/job/operation.hpp"
#include "collectives/job/topology.hpp"

namespace tutti::collectives {

/// The way on which the data of a call travels. All ranks of a node decide alike, except for
/// `announced`, which holds only if all of them choose it.
enum class Route : std::uint8_t {
  tiny,       ///< in the first cache line of each rank's announcement, see TinyCall
  small,      ///< in the announcements, and between nodes in the handshakes, from any memory
  announced,  ///< the same, chosen by the learner
  halved,     ///< halves of the sums in the handshakes, chosen by the tuning or the learner
  alone,      ///< nowhere, because there is only one rank
  by_path     ///< after the announcements, by the Path that the learner chooses
};

const char* name_of(Route route);
/// Describes a route with its reason, such as "small: it fits into the announcements".
std::string to_string(Route route);

/// True if the data travels in the announcements, and between nodes in the handshakes.
[[nodiscard]] constexpr bool is_carried(Route route) {
  return route != Route::alone && route != Route::by_path;
}

/// Returns the class of a call between nodes, made of what all ranks of all nodes know.
[[nodiscard]] CallClass class_between_nodes(const Tuning& tuning, const Operation& operation,
                                            const FusedLayout& layout);

/// Chooses the route of each call that is not tiny.
class Router {
 public:
  Router(const Topology& topology, const Tuning& tuning, Learner& learner)
      : topology_(topology), tuning_(tuning), learner_(learner) {}

  /// `class_here` returns the class that a call in one node has if all ranks have their data in the
  /// same memory as this one. Errors: out_of_memory.
  [[nodiscard]] Route choose(const Operation& operation, const FusedLayout& layout,
                             FunctionRef<CallClass()> class_here) const;

 private:
  const Topology& topology_;
  const Tuning& tuning_;
  Learner& learner_;
};

}  // namespace tutti::collectives
