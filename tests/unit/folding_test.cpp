// SPDX-License-Identifier: Apache-2.0
// The schedule of sums on the way, carried out for all nodes by hand.
#include "collectives/lanes/folding.hpp"

#include <algorithm>
#include <bit>
#include <doctest/doctest.h>
#include <map>
#include <utility>
#include <vector>

#include "unit/threads.hpp"

using tutti::collectives::Folding;
using tutti::collectives::FoldingRound;
using tutti::collectives::NodeRange;

namespace {

/// A sum over a range of nodes; empty before there is one.
struct Sum {
  int begin = 0;
  int end = 0;
  float value = 0;
};

struct Node {
  Folding folding;
  Sum own;
  Sum rest;
  Sum total;
  int sent = 0;
};

/// Adds two sums, whose ranges must be neighbours; the left operand is that of the lower nodes.
Sum added(const Sum& one, const Sum& other, bool& fits) {
  const Sum& left = one.begin < other.begin ? one : other;
  const Sum& right = one.begin < other.begin ? other : one;
  fits = fits && left.end == right.begin && left.end > left.begin && right.end > right.begin;
  return {left.begin, right.end, left.value + right.value};
}

bool is_range(const Sum& sum, NodeRange range) {
  return sum.begin == range.begin && sum.end == range.end;
}

/// Makes one round of all nodes: each gets the sum that its partner had before the round. False if
/// a node does not get an expected sum, gets one twice, or gets one that it does not expect.
bool do_round(std::vector<Node>& nodes, int index) {
  std::map<std::pair<int, int>, Sum> messages;  // from, to
  bool fits = true;
  const auto send = [&](int from, int to, const Sum& sum) {
    fits = fits && sum.end > sum.begin && messages.emplace(std::pair{from, to}, sum).second;
    ++nodes[static_cast<std::size_t>(from)].sent;
  };
  const auto count = static_cast<int>(nodes.size());
  for (int node = 0; node < count; ++node) {
    const Node& sender = nodes[static_cast<std::size_t>(node)];
    const FoldingRound round = sender.folding.round(index);
    if (round.partner >= 0) send(node, round.partner, sender.own);
    for (const int to : round.own_to) send(node, to, sender.own);
    for (const int to : round.rest_to) send(node, to, sender.rest);
  }
  for (int node = 0; node < count; ++node) {
    Node& receiver = nodes[static_cast<std::size_t>(node)];
    const FoldingRound round = receiver.folding.round(index);
    const auto receive = [&](int from) {
      const auto found = messages.find({from, node});
      fits = fits && found != messages.end();
      const Sum sum = found != messages.end() ? found->second : Sum{};
      if (found != messages.end()) messages.erase(found);
      return sum;
    };
    if (round.partner >= 0) {
      const Sum other = receive(round.partner);
      fits = fits && is_range(receiver.own, receiver.folding.own_before(index)) &&
             is_range(other, receiver.folding.partners_in(index));
      receiver.own = added(receiver.own, other, fits);
    }
    if (round.rest_from >= 0) {
      receiver.rest = receive(round.rest_from);
      fits = fits && is_range(receiver.rest, receiver.folding.rest());
    }
    if (round.adds_rest) receiver.own = added(receiver.own, receiver.rest, fits);
    if (round.total_from >= 0) receiver.total = receive(round.total_from);
  }
  return fits && messages.empty();
}

/// Makes all rounds; true if every node ends with the canonical sum.
bool folds(int count) {
  const std::vector<float> inputs = test::random_values(static_cast<std::size_t>(count), 5);
  std::vector<Node> nodes;
  for (int node = 0; node < count; ++node) {
    nodes.push_back(
        {Folding(count, node), {node, node + 1, inputs[static_cast<std::size_t>(node)]}, {}, {}});
  }
  const int rounds = std::bit_width(static_cast<unsigned>(count - 1));
  const float sum = test::tree_sum(inputs, 0, inputs.size());
  const int most = std::has_single_bit(static_cast<unsigned>(count)) ? rounds : 2 * rounds;
  for (int index = 0; index < rounds; ++index) {
    if (!do_round(nodes, index)) return false;
  }
  return std::all_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    const Sum& last = node.total.end > 0 ? node.total : node.own;
    return node.folding.num_rounds() == rounds && node.sent <= most && last.begin == 0 &&
           last.end == count && test::same_bits({&last.value, 1}, {&sum, 1});
  });
}

}  // namespace

TEST_CASE("sums on the way have the bits of the tree, in log2 N rounds, and one in a message") {
  for (int count = 2; count <= 300; ++count) {
    CAPTURE(count);
    CHECK(folds(count));
  }
  for (const int count : {1000, 1023, 1024, 1025, 2047}) {
    CAPTURE(count);
    CHECK(folds(count));
  }
}
