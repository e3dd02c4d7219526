// SPDX-License-Identifier: Apache-2.0
// Folding: the schedule by which nodes sum while they pass on their sums, in ceil(log2 N) rounds.
//
//   N a power of two    round r: node i and node i xor 2^r swap their sums, and add them
//
//   any other N         blocks of a power of two of nodes, the largest first: 13 = 8 + 4 + 1
//
//     block 0   0 1 2 3 4 5 6 7   swaps in rounds 0, 1, 2 and has B0; with B1 + B2 it has the sum
//     block 1   8 9 10 11         swaps in rounds 0, 1 and has B1; hands B1 + B2 to block 0
//     block 2   12                hands B2 to block 1 in rounds 0 and 1
//     round 3                     block 0 tells the others the sum, one each
//
// A block hands its sum up to the next larger block while that one still swaps. Each node of the
// smaller block sends it along a binomial tree to the nodes with its place in the parts of the
// larger block.
//
// The operands are always subtrees of the canonical tree, the left one of lower nodes, so that the
// bits do not depend on which node adds them. Every message has one sum.
// Cost: log2 N messages per node if N is a power of two, otherwise 2 log2 N at the most.
// Source  Recursive doubling as in Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, with our own
// treatment of nodes beyond a power of two, which takes one round less.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::collectives {

/// The actions of one node in one round. It holds two values: its own sum, and `rest`, the sum of
/// the blocks after its own.
struct FoldingRound {
  int partner = -1;          ///< node with which it swaps own sums
  std::vector<int> own_to;   ///< further nodes that get its own sum
  std::vector<int> rest_to;  ///< nodes that get `rest`
  int rest_from = -1;        ///< node that sends it `rest`
  int total_from = -1;       ///< node that sends it the total
  bool adds_rest = false;    ///< at the end of the round, it adds `rest` to its own sum
};

/// A range of nodes, begin .. end - 1, that a sum includes.
struct NodeRange {
  int begin;
  int end;
};

class Folding {
 public:
  Folding(int nodes, int node);

  [[nodiscard]] int num_rounds() const;
  /// Returns the actions of this node in a round.
  [[nodiscard]] FoldingRound round(int index) const;
  /// Returns the nodes that this one's own sum includes before a round, without `rest`.
  [[nodiscard]] NodeRange own_before(int index) const;
  /// Returns the nodes that the partner's sum includes in a round.
  [[nodiscard]] NodeRange partners_in(int index) const;
  /// Returns the nodes of the blocks after its own.
  [[nodiscard]] NodeRange rest() const;

 private:
  struct Block {
    int first;
    int log_size;
    [[nodiscard]] int size() const { return 1 << log_size; }
  };
  [[nodiscard]] const Block& mine() const { return blocks_[block_]; }
  void hand_up(int index, FoldingRound& round) const;
  void take_from_below(int index, FoldingRound& round) const;
  void tell_total(int index, FoldingRound& round) const;

  int nodes_;
  int node_;
  std::vector<Block> blocks_;
  std::size_t block_ = 0;  ///< index of this node's block
  int place_ = 0;          ///< index of this node in its block
};

}  // namespace tutti::collectives
