// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/disagreement.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "collectives/lanes/exchange.hpp"
#include "collectives/lanes/node_mail.hpp"

namespace tutti::collectives {

namespace {

/// Copies as much of a text as fits.
template <std::size_t kSize>
void write_text(char (&to)[kSize], const std::string& text) {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

}  // namespace

bool Disagreement::find(std::uint32_t refused, const std::string& text) {
  ControlBlock& mine = call_.memory().control();
  ControlBlock& first = call_.memory().first();
  write_text(mine.text, text);
  mine.text_code = refused;
  call_.steps().signal();
  if (call_.topology().local_rank == 0) {
    call_.steps().wait_for_ranks(0, call_.memory().size());
    const MismatchReport report =
        find_mismatch(call_.topology(), call_.sequence(), of_all(of_this_node()));
    write_text(first.report_text, report.text);
    first.report_code =
        report.only_checks_differ ? kOnlyChecksDiffer : static_cast<std::uint32_t>(report.code);
    call_.steps().signal();
  } else {
    call_.steps().wait_for(0, 2);
  }
  call_.mark(Phase::refused);
  return first.report_code == kOnlyChecksDiffer;
}

void Disagreement::throw_report() const {
  const ControlBlock& first = call_.memory().first();
  throw Error(static_cast<ErrorCode>(first.report_code), first.report_text, ErrorScope::agreed,
              /*reporter=*/call_.topology().rank == 0);
}

std::vector<RankStatement> Disagreement::of_this_node() const {
  const Topology& topology = call_.topology();
  std::vector<RankStatement> statements(topology.local_size());
  for (int i = 0; i < topology.local_size(); ++i) {
    const ControlBlock& peer = call_.memory().peers[i].control();
    statements[i].rank = topology.local_ranks()[i];
    statements[i].refused = peer.text_code;
    statements[i].signature = call_.line(i).signature;
    std::memcpy(statements[i].text, peer.text, kTextBytes);
  }
  return statements;
}

/// Returns the statements of all nodes in the order of ranks. Each node begins to send with the
/// next one.
std::vector<RankStatement> Disagreement::of_all(const std::vector<RankStatement>& own) const {
  const Topology& topology = call_.topology();
  const int nodes = topology.num_nodes();
  if (nodes == 1) return own;
  const auto of_nodes = std::make_shared<std::vector<std::vector<RankStatement>>>(nodes);
  (*of_nodes)[topology.node] = own;
  NodeMail mail(topology, call_.waiter(), *transport_, of_nodes);
  for (int step = 1; step < nodes; ++step) {
    const int node = (topology.node + step) % nodes;
    auto& theirs = (*of_nodes)[node];
    theirs.resize(topology.nodes[node].size());
    mail.receive(node, kStatementTag, std::as_writable_bytes(std::span(theirs)));
    mail.send(node, kStatementTag, std::as_bytes(std::span((*of_nodes)[topology.node])));
  }
  mail.wait();
  std::vector<RankStatement> all(topology.size);
  for (int node = 0; node < nodes; ++node) {
    const NodeRanks ranks = topology.nodes[node];
    for (std::size_t i = 0; i < ranks.size(); ++i) all[ranks[i]] = (*of_nodes)[node][i];
  }
  return all;
}

}  // namespace tutti::collectives
