// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/exchange.hpp"

#include <cstdint>

#include "tutti/error.hpp"

namespace tutti::checkpoint {

std::string text_of(Communicator& ranks, int root, const std::function<std::string()>& make) {
  std::string text;
  ranks.agree([&] {
    if (ranks.rank() == root) text = make();
  });
  auto size = static_cast<std::int64_t>(text.size());
  ranks.broadcast(view(&size, {1}), root);
  ranks.agree([&] { text.resize(static_cast<std::size_t>(size)); });
  ranks.broadcast(view(reinterpret_cast<std::uint8_t*>(text.data()), {size}), root);
  return text;
}

std::vector<int> ranks_where(Communicator& ranks, bool mine) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(ranks.size()));
  const std::int32_t own = mine ? 1 : 0;
  ranks.allgather(view(&own, {1}), view(all.data(), {ranks.size()}));
  std::vector<int> where;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != 0) where.push_back(rank);
  }
  return where;
}

void in_place(const std::string& place, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.scope() != ErrorScope::caller) throw;
    throw Error(error.code(), place + ": " + error.what());
  }
}

}  // namespace tutti::checkpoint
