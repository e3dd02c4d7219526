// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/layout.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace tutti::mpi {

namespace {

using collectives::Nodes;

/// The beginning of a node's part of the table as it is sent; a RankOnHost for each of its ranks
/// follows.
struct NodeCard {
  char host[sizeof RankInfo::host];
};
struct RankOnHost {
  std::int64_t process;
  std::int32_t rank;
  std::int32_t unused = 0;
};

/// The table has one of these for each rank, then the words of Nodes if they follow no rule, then
/// the zero-terminated names of hosts.
struct Named {
  std::int64_t process;
  std::uint64_t host;  ///< offset of the host's name in the table
};

class NameTable final : public collectives::RankNames {
 public:
  explicit NameTable(std::shared_ptr<const std::byte> table) : table_(std::move(table)) {}
  [[nodiscard]] std::string host_of(int rank) const override {
    return reinterpret_cast<const char*>(table_.get() + named(rank).host);
  }
  [[nodiscard]] std::optional<long> process_of(int rank) const override {
    return static_cast<long>(named(rank).process);
  }

 private:
  [[nodiscard]] Named named(int rank) const {
    Named found;
    std::memcpy(&found, table_.get() + static_cast<std::size_t>(rank) * sizeof found, sizeof found);
    return found;
  }
  std::shared_ptr<const std::byte> table_;
};

class HostNames final : public collectives::RankNames {
 public:
  explicit HostNames(std::vector<RankInfo> infos) : infos_(std::move(infos)) {}
  [[nodiscard]] std::string host_of(int rank) const override {
    const auto found = std::ranges::find(infos_, rank, &RankInfo::rank);
    return found == infos_.end() ? "unknown" : found->host;
  }
  [[nodiscard]] std::optional<long> process_of(int rank) const override {
    const auto found = std::ranges::find(infos_, rank, &RankInfo::rank);
    if (found == infos_.end()) return std::nullopt;
    return static_cast<long>(found->process);
  }

 private:
  std::vector<RankInfo> infos_;
};

bool follow(const std::vector<int>& ranks, int stride) {
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] != ranks[i - 1] + stride) return false;
  }
  return true;
}

/// Returns the rule that all nodes follow, or nothing. Collective.
std::optional<Nodes> find_rule(EarlyCollectives& ranks, const std::vector<int>& own) {
  const auto count = static_cast<int>(own.size());
  const int nodes = ranks.size() / count;
  const bool consecutive = own.front() % count == 0 && follow(own, 1);
  const bool in_turn = own.front() < nodes && follow(own, nodes);
  const auto value = static_cast<std::uint64_t>(count);
  std::array<std::uint64_t, 4> least{value, ~value, consecutive ? 1u : 0u, in_turn ? 1u : 0u};
  ranks.minima("compare the sizes of their nodes", least);
  const bool equal = least[0] == ~least[1];
  if (equal && least[2] == 1) return Nodes::consecutive(nodes, count);
  if (equal && least[3] == 1) return Nodes::in_turn(nodes, count);
  return std::nullopt;
}

std::vector<std::byte> card_of_node(const HostRanks& host, const std::vector<std::size_t>& node) {
  NodeCard card{};
  std::memcpy(card.host, host.self().host, sizeof card.host);
  std::vector<std::byte> bytes(sizeof card + node.size() * sizeof(RankOnHost));
  std::memcpy(bytes.data(), &card, sizeof card);
  std::byte* to = bytes.data() + sizeof card;
  for (const std::size_t place : node) {
    const RankOnHost one{host.infos[place].process, host.infos[place].rank};
    std::memcpy(to, &one, sizeof one);
    to += sizeof one;
  }
  return bytes;
}

/// Returns the table made of the cards of all nodes.
std::vector<std::byte> table_of(const std::vector<std::vector<std::byte>>& cards, int size,
                                bool has_rule) {
  std::vector<Named> named(static_cast<std::size_t>(size));
  std::vector<std::vector<int>> nodes;
  std::string hosts;
  for (const auto& card : cards) {
    std::vector<int>& ranks = nodes.emplace_back();
    const std::uint64_t begin = hosts.size();
    hosts += reinterpret_cast<const char*>(card.data());
    hosts += '\0';
    for (std::size_t at = sizeof(NodeCard); at < card.size(); at += sizeof(RankOnHost)) {
      RankOnHost place;
      std::memcpy(&place, card.data() + at, sizeof place);
      named[static_cast<std::size_t>(place.rank)] = {place.process, begin};
      ranks.push_back(place.rank);
    }
  }
  std::vector<std::int32_t> words;
  if (!has_rule) words = Nodes::table_of(std::move(nodes));
  const std::size_t hosts_begin = std::span(named).size_bytes() + std::span(words).size_bytes();
  for (Named& one : named) one.host += hosts_begin;
  std::vector<std::byte> table;
  const auto append = [&](std::span<const std::byte> bytes) {
    table.insert(table.end(), bytes.begin(), bytes.end());
  };
  append(std::as_bytes(std::span(named)));
  append(std::as_bytes(std::span(words)));
  append(std::as_bytes(std::span(hosts)));
  return table;
}

/// Returns this node's table, which lies in the arena of its first rank. Collective.
std::shared_ptr<const std::byte> share_table(EarlyCollectives& ranks, const HostRanks& host,
                                             const std::vector<std::size_t>& node, bool has_rule,
                                             GroupParts& parts) {
  const bool is_first = host.own == node.front();
  const Comm firsts = ranks.split("find the first ranks of all nodes", is_first);
  std::vector<std::vector<std::byte>> cards;
  if (is_first) {
    cards = ranks.allgather_parts("tell each node where all ranks are", firsts,
                                  card_of_node(host, node));
  }
  std::uint64_t offset = 0;
  ranks.agree("keep a table of all ranks", [&] {
    if (!is_first) return;
    const std::vector<std::byte> table = table_of(cards, ranks.size(), has_rule);
    std::byte* const memory = parts.arena->allocate(table.size());
    std::memcpy(memory, table.data(), table.size());
    offset = static_cast<std::uint64_t>(memory - parts.arena->data());
  });
  free_part(firsts);
  const auto offsets = ranks.allgather("tell their node where its table is", host.comm, offset);
  const std::byte* const table = parts.node.front().arena + offsets[node.front()];
  if (is_first) return {parts.arena, table};
  return {parts.mappings, table};
}

}  // namespace

std::shared_ptr<const collectives::RankNames> names_on_host(const HostRanks& host) {
  return std::make_shared<const HostNames>(host.infos);
}

void lay_out(EarlyCollectives& ranks, const HostRanks& host, const std::vector<std::size_t>& node,
             GroupParts& parts) {
  std::vector<int> own;
  for (const std::size_t place : node) own.push_back(host.infos[place].rank);
  std::optional<Nodes> nodes = find_rule(ranks, own);
  const auto table = share_table(ranks, host, node, nodes.has_value(), parts);
  if (!nodes) {
    const auto* const words = reinterpret_cast<const std::int32_t*>(
        table.get() + static_cast<std::size_t>(ranks.size()) * sizeof(Named));
    nodes = Nodes::from_table({table, words});
  }
  parts.topology.set_nodes(*std::move(nodes));
  parts.topology.names = std::make_shared<const NameTable>(table);
  share_cores(parts.topology, host);
}

}  // namespace tutti::mpi
