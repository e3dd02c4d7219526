// SPDX-License-Identifier: Apache-2.0
// Is a call small, and where does its data travel? Decided here, once, before it is announced.
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

/// The way on which the data of a call travels. All ranks of a node decide alike but for
/// `announced`, which takes all of them.
enum class Route : std::uint8_t {
  tiny,       ///< in the first cache line of each rank's announcement: see TinyCall
  small,      ///< in the announcements, and between nodes in the handshakes, wherever it lies
  announced,  ///< there, too, because the learner says so
  halved,     ///< halves of the sums in the handshakes, because the tuning or the learner says so
  alone,      ///< nowhere: there is one rank
  by_path     ///< after the announcements, by the Path that the learner chooses
};

const char* name_of(Route route);
/// "small: it fits into the announcements"
std::string to_string(Route route);

/// True if the data travels in the announcements, and between nodes in the handshakes.
[[nodiscard]] constexpr bool is_carried(Route route) {
  return route != Route::alone && route != Route::by_path;
}

/// The class of a call between nodes: what all ranks of all nodes know of it.
[[nodiscard]] CallClass class_between_nodes(const Tuning& tuning, const Operation& operation,
                                            const FusedLayout& layout);

/// Chooses the route of each call that is not tiny.
class Router {
 public:
  Router(const Topology& topology, const Tuning& tuning, Learner& learner)
      : topology_(topology), tuning_(tuning), learner_(learner) {}

  /// `class_here`: the class that a call in one node has if all ranks have their data where this
  /// one has. Errors: out_of_memory.
  [[nodiscard]] Route choose(const Operation& operation, const FusedLayout& layout,
                             FunctionRef<CallClass()> class_here) const;

 private:
  const Topology& topology_;
  const Tuning& tuning_;
  Learner& learner_;
};

}  // namespace tutti::collectives
