// SPDX-License-Identifier: Apache-2.0
// An exchange of facts between all ranks, when they prepare to sum.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// Gives every rank's item, by rank. `what` describes the call to ranks that wait for it.
/// Collective.
template <class Item>
std::vector<Item> allgather(Group& group, const Item& own, const char* what) {
  static_assert(std::is_trivially_copyable_v<Item> && !std::is_same_v<Item, bool>);
  const int ranks = group.topology().size;
  std::vector<Item> all(static_cast<std::size_t>(ranks));
  const auto segments = collectives::allgather_segments(
      ranks, reinterpret_cast<const std::byte*>(&own), reinterpret_cast<std::byte*>(all.data()),
      sizeof own, DType::uint8);
  const auto describe = [&] { return std::string(what); };
  group.engine().run({.kind = collectives::Kind::allgather,
                      .segments = segments,
                      .describe = describe,
                      .verb = collectives::Verb::sum_of_gpus});
  return all;
}

}  // namespace tutti::gpus
