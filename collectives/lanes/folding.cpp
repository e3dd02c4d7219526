// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/folding.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace tutti::collectives {

Folding::Folding(int nodes, int node) : nodes_(nodes), node_(node) {
  for (int first = 0; first < nodes;) {
    const int log_size = std::bit_width(static_cast<unsigned>(nodes - first)) - 1;
    blocks_.push_back({first, log_size});
    if (node >= first) {
      block_ = blocks_.size() - 1;
      place_ = node - first;
    }
    first += blocks_.back().size();
  }
}

int Folding::num_rounds() const { return blocks_.front().log_size + (blocks_.size() > 1 ? 1 : 0); }

FoldingRound Folding::round(int index) const {
  FoldingRound round;
  if (index < mine().log_size) round.partner = mine().first + (place_ ^ (1 << index));
  hand_up(index, round);
  take_from_below(index, round);
  tell_total(index, round);
  round.adds_rest = index + 1 == mine().log_size && block_ + 1 < blocks_.size();
  return round;
}

/// In step t of handing up, 2^t nodes have the sum of each node of the smaller block: that node
/// itself, and those in the parts 0 .. 2^t - 2 of the larger block. Each of them sends it to one
/// more; in the last step the node itself sends it to two.
void Folding::hand_up(int index, FoldingRound& round) const {
  if (block_ == 0) return;
  const Block& above = blocks_[block_ - 1];
  const int steps = above.log_size - mine().log_size;
  const int step = index - mine().log_size;
  if (step < 0 || step >= steps) return;
  const auto in_part = [&](int part) { return above.first + part * mine().size() + place_; };
  round.own_to.push_back(in_part((2 << step) - 2));
  if (step + 1 == steps) round.own_to.push_back(in_part((2 << step) - 1));
}

void Folding::take_from_below(int index, FoldingRound& round) const {
  if (block_ + 1 == blocks_.size()) return;
  const Block& below = blocks_[block_ + 1];
  const int steps = mine().log_size - below.log_size;
  const int step = index - below.log_size;
  if (step < 0 || step >= steps) return;
  const int place = place_ % below.size();
  const int part = place_ / below.size();
  const int have = (1 << step) - 1;  // parts that have the sum before this step
  const auto in_part = [&](int other) { return mine().first + other * below.size() + place; };
  if (part < have) {
    round.rest_to.push_back(in_part(part + have));
  } else if (part < 2 * have) {
    round.rest_from = in_part(part - have);
  } else if (part == 2 * have || (step + 1 == steps && part == 2 * have + 1)) {
    round.rest_from = below.first + place;
  }
}

void Folding::tell_total(int index, FoldingRound& round) const {
  if (blocks_.size() == 1 || index + 1 != num_rounds()) return;
  const int larger = blocks_.front().size();
  if (block_ > 0) {
    round.total_from = node_ - larger;
  } else if (place_ < nodes_ - larger) {
    round.own_to.push_back(larger + place_);
  }
}

NodeRange Folding::own_before(int index) const {
  const int size = 1 << std::min(index, mine().log_size);
  const int begin = mine().first + place_ / size * size;
  return {begin, begin + size};
}

NodeRange Folding::partners_in(int index) const {
  const NodeRange own = own_before(index);
  const int size = own.end - own.begin;
  const bool is_left = ((place_ >> index) & 1) == 0;
  return is_left ? NodeRange{own.end, own.end + size} : NodeRange{own.begin - size, own.begin};
}

NodeRange Folding::rest() const { return {mine().first + mine().size(), nodes_}; }

}  // namespace tutti::collectives
