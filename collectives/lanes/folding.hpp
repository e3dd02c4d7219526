// SPDX-License-Identifier: Apache-2.0
// The schedule by which nodes add up what each has while they pass it on, in ceil(log2 N) rounds.
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
// A block hands its sum to the next larger one while that still swaps: each of its nodes along a
// binomial tree to those nodes of the larger block that have its place in their part of it.
//
// The operands are always subtrees of the canonical tree, the left one of lower nodes, so that no
// bit depends on who adds them. Every message has one sum.
// Cost: log2 N messages per node if N is a power of two, otherwise 2 log2 N at the most.
// Source  Recursive doubling as in Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, with a
// treatment of our own for what is left of a power of two: there, it takes one round more.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::collectives {

/// What one node does in one round. It has two values: its own sum, and what comes after its block.
struct FoldingRound {
  int partner = -1;          ///< swaps own sums with it
  std::vector<int> own_to;   ///< also get its own sum
  std::vector<int> rest_to;  ///< get the sum of the blocks after its own
  int rest_from = -1;        ///< from whom it gets that
  int total_from = -1;       ///< from whom it gets the sum of all
  bool adds_rest = false;    ///< afterwards, to its own sum
};

/// The nodes begin .. end - 1, of which a sum is.
struct NodeRange {
  int begin;
  int end;
};

class Folding {
 public:
  Folding(int nodes, int node);

  [[nodiscard]] int num_rounds() const;
  /// What this node does in a round.
  [[nodiscard]] FoldingRound round(int index) const;
  /// The nodes that this one's own sum is of before a round, without the rest.
  [[nodiscard]] NodeRange own_before(int index) const;
  /// Those of the partner's sum in a round.
  [[nodiscard]] NodeRange partners_in(int index) const;
  /// Those of the blocks after its own.
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
  int place_ = 0;          ///< in its block
};

}  // namespace tutti::collectives
