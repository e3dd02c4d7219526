// SPDX-License-Identifier: Apache-2.0
// Recursive halving, then doubling: few messages, for many nodes.
//
//   8 nodes; the pieces that a node still sums:        and back; the pieces whose sums it has:
//
//   node 0   01234567 --(1)--> 0123 --(2)--> 01 --(4)--> 0 --(4)--> 01 --(2)--> 0123 --(1)--> all
//   node 1   01234567 --(0)--> 4567 --(3)--> 45 --(5)--> 4 --(5)--> 45 --(3)--> 4567 --(0)--> all
//
// The nearest nodes exchange first, so that what is added is always a subtree of the canonical tree
// T(N), if N is a power of two. Any other N is cut into blocks of powers of two, the largest first
// (13 = 8 + 4 + 1), and each block does the halving for itself. Then the owners in the first block
// add the sums of their pieces from the other blocks, T = B1 + (B2 + B3), and send the results
// back.
//
// Cost, for n bytes on N nodes, where P is the largest power of two up to N: 2 log2 P messages to
// one node at a time, and 2 n (P-1)/P bytes sent and received; for N > P up to 2 n more, and 2 P
// messages in the smallest block. Data of more than 60 KiB takes several messages. It is the
// fastest above about 16 nodes. The half that a node keeps is added directly from the input, and
// halves are delivered while others arrive.
// Source  Rabenseifner, ICCS 2004, with a different treatment of nodes beyond a power of two.
#include <algorithm>
#include <bit>

#include "collectives/lanes/exchange.hpp"
#include "collectives/lanes/halving.hpp"

namespace tutti::collectives {

namespace {

/// A power of two of consecutive nodes, which is a subtree of the canonical tree.
struct Block {
  int first;
  int size;
};

std::vector<Block> blocks_of(int nodes) {
  std::vector<Block> blocks;
  for (int first = 0; first < nodes;) {
    const int size = static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes - first)));
    blocks.push_back({first, size});
    first += size;
  }
  return blocks;
}

class HalvingExchange final : public ExchangeAlgorithm {
 public:
  explicit HalvingExchange(const Lane& lane)
      : ExchangeAlgorithm(lane), blocks_(blocks_of(lane.num_nodes())) {
    const auto mine = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      return lane.node() < block.first + block.size;
    });
    block_ = static_cast<std::size_t>(mine - blocks_.begin());
    index_ = lane.node() - mine->first;
    rounds_ = std::countr_zero(static_cast<unsigned>(mine->size));
  }

  void start(Call& call, ChunkInFlight& flight) const override;
  void act(Call& call, ChunkInFlight& flight) const override;
  void deliver(Call& call, ChunkInFlight& flight) const override;

 private:
  [[nodiscard]] static bool delivers_early(const Call& call);

  [[nodiscard]] int num_pieces() const { return blocks_.front().size; }
  [[nodiscard]] Range range_of(const ChunkInFlight& flight, Pieces pieces) const {
    return collectives::range_of(flight.share, num_pieces(), pieces);
  }

  /// Returns the pieces that the node `index` of a block sums after `rounds` rounds of halving.
  [[nodiscard]] Pieces kept_by(int index, int rounds) const {
    return kept_after(rounds, index, num_pieces());
  }
  [[nodiscard]] int partner(int round) const { return lane_.node() ^ (1 << round); }
  [[nodiscard]] int partner_index(int round) const { return index_ ^ (1 << round); }
  [[nodiscard]] Pieces owned() const { return kept_by(index_, rounds_); }
  /// Returns the node of a block that owns a piece in the end.
  [[nodiscard]] int owner_of(int piece, std::size_t block) const;

  [[nodiscard]] std::byte* sum_at(ChunkInFlight& flight, Range range) const {
    return flight.outgoing.data() + (range.begin - flight.share.begin);
  }
  /// Returns the offset in flight.incoming of the half that arrives in a round. After the last
  /// round's half follow the other blocks' sums of this node's pieces.
  [[nodiscard]] std::size_t incoming_offset(const ChunkInFlight& flight, int round) const;
  void add(Call& call, Range range, const std::byte* left, const std::byte* right,
           std::byte* sum) const {
    combine_two(call.workers(), call.layout(), call.operation().reduce, range, {left, right, sum});
  }

  void send_half(ChunkInFlight& flight, int round) const;
  void add_half(Call& call, ChunkInFlight& flight, int round) const;
  void send_to_owners(ChunkInFlight& flight) const;
  void add_other_blocks(Call& call, ChunkInFlight& flight) const;
  void send_known(ChunkInFlight& flight, int round) const;
  void receive_pieces(std::vector<LaneMessage>& stage, int node, int tag,
                      std::span<std::byte> bytes) const;
  void send_pieces(ChunkInFlight& flight, int node, int tag,
                   std::span<const std::byte> bytes) const;
  void post_halving(ChunkInFlight& flight) const;
  void post_between_blocks(ChunkInFlight& flight) const;
  void post_doubling(ChunkInFlight& flight) const;

  std::vector<Block> blocks_;
  std::size_t block_ = 0;  ///< index of this node's block
  int index_ = 0;          ///< this node's index in its block
  int rounds_ = 0;         ///< log2 of the block's size
};

/// Round 0 splits by the highest bit of a piece's number and by the lowest bit of a node's index.
int HalvingExchange::owner_of(int piece, std::size_t block) const {
  const Block& asked = blocks_[block];
  int index = 0;
  int half = num_pieces() / 2;
  for (int bit = 1; bit < asked.size; bit *= 2, half /= 2) {
    if ((piece & half) != 0) index += bit;
  }
  return asked.first + index;
}

std::size_t HalvingExchange::incoming_offset(const ChunkInFlight& flight, int round) const {
  std::size_t offset = 0;
  for (int before = 0; before < round; ++before) {
    offset += range_of(flight, kept_by(index_, before + 1)).size();
  }
  return offset;
}

// --- stages: each round of halving, one between the blocks, each round of doubling ---------------

void HalvingExchange::start(Call& call, ChunkInFlight& flight) const {
  flight.outgoing.resize(std::max(flight.outgoing.size(), flight.share.size()));
  const std::size_t own = range_of(flight, owned()).size();
  const std::size_t room = incoming_offset(flight, rounds_) + own * (blocks_.size() - 1);
  flight.incoming.resize(std::max(flight.incoming.size(), room));
  post_halving(flight);
  post_between_blocks(flight);
  post_doubling(flight);
  if (rounds_ == 0) {
    sum_partial(call, flight, lane_.own_first(), flight.share, flight.outgoing.data());
    return send_to_owners(flight);
  }
  // The half that is kept is added directly from the input, where possible.
  const Range sent = range_of(flight, kept_by(partner_index(0), 1));
  const Range kept = range_of(flight, kept_by(index_, 1));
  sum_partial(call, flight, lane_.own_first(), sent, sum_at(flight, sent));
  send_half(flight, 0);
  sum_own_partials(call, flight, kept, sum_at(flight, kept));
}

void HalvingExchange::act(Call& call, ChunkInFlight& flight) const {
  const auto stage = static_cast<int>(flight.stage);
  if (stage < rounds_) {
    add_half(call, flight, stage);
    stage + 1 < rounds_ ? send_half(flight, stage + 1) : send_to_owners(flight);
    return;
  }
  if (stage == rounds_) add_other_blocks(call, flight);
  const int doublings = stage - rounds_;
  if (doublings < rounds_) send_known(flight, rounds_ - 1 - doublings);
  if (!delivers_early(call)) return;
  const int index = doublings == 0 ? index_ : partner_index(rounds_ - doublings);
  const Range known = range_of(flight, kept_by(index, rounds_ - std::max(doublings - 1, 0)));
  call.data().deliver_own(known, flight.result_at(known.begin));
}

/// True if sums are delivered while the next half is on its way. A consumer needs its elements in
/// order.
bool HalvingExchange::delivers_early(const Call& call) {
  return call.is_alone_in_lane() && call.operation().consumer == nullptr;
}

void HalvingExchange::deliver(Call& call, ChunkInFlight& flight) const {
  if (!delivers_early(call)) ExchangeAlgorithm::deliver(call, flight);
}

void HalvingExchange::post_halving(ChunkInFlight& flight) const {
  for (int round = 0; round < rounds_; ++round) {
    auto& stage = flight.add_stage();
    const Range half = range_of(flight, kept_by(index_, round + 1));
    if (half.size() == 0) continue;
    std::byte* to = flight.incoming.data() + incoming_offset(flight, round);
    receive_pieces(stage, partner(round), kPartialTag, {to, half.size()});
  }
}

/// Posts the receives between the blocks: nodes of the first block get the other blocks' sums of
/// their pieces, and the other nodes get the results of theirs.
void HalvingExchange::post_between_blocks(ChunkInFlight& flight) const {
  auto& stage = flight.add_stage();
  const Pieces mine = owned();
  std::byte* to = flight.incoming.data() + incoming_offset(flight, rounds_);
  for (std::size_t block = 1; block < blocks_.size() && block_ == 0; ++block) {
    const std::size_t bytes = range_of(flight, mine).size();
    if (bytes > 0) {
      stage.push_back(receive(owner_of(mine.begin, block), kPartialTag, {to, bytes}));
    }
    to += bytes;
  }
  for (int piece = mine.begin; piece < mine.end && block_ > 0; ++piece) {
    const Range range = range_of(flight, {piece, piece + 1});
    if (range.size() == 0) continue;
    stage.push_back(
        receive(owner_of(piece, 0), kResultTag, {flight.result_at(range.begin), range.size()}));
  }
}

void HalvingExchange::post_doubling(ChunkInFlight& flight) const {
  for (int round = rounds_ - 1; round >= 0; --round) {
    auto& stage = flight.add_stage();
    const Range half = range_of(flight, kept_by(partner_index(round), round + 1));
    if (half.size() == 0) continue;
    receive_pieces(stage, partner(round), kResultTag, {flight.result_at(half.begin), half.size()});
  }
}

/// Receives a half in messages that are short enough for MPI to send at once.
void HalvingExchange::receive_pieces(std::vector<LaneMessage>& stage, int node, int tag,
                                     std::span<std::byte> bytes) const {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kMostAtOnce, bytes.size()))) {
    stage.push_back(receive(node, tag, bytes.first(std::min(kMostAtOnce, bytes.size()))));
  }
}

void HalvingExchange::send_pieces(ChunkInFlight& flight, int node, int tag,
                                  std::span<const std::byte> bytes) const {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kMostAtOnce, bytes.size()))) {
    send(flight, node, tag, bytes.first(std::min(kMostAtOnce, bytes.size())));
  }
}

void HalvingExchange::send_half(ChunkInFlight& flight, int round) const {
  const Range half = range_of(flight, kept_by(partner_index(round), round + 1));
  if (half.size() > 0) {
    send_pieces(flight, partner(round), kPartialTag, {sum_at(flight, half), half.size()});
  }
}

/// Adds the half that has arrived. The lower nodes' sum is the left operand.
void HalvingExchange::add_half(Call& call, ChunkInFlight& flight, int round) const {
  const Range half = range_of(flight, kept_by(index_, round + 1));
  std::byte* own = sum_at(flight, half);
  const std::byte* theirs = flight.incoming.data() + incoming_offset(flight, round);
  const bool is_lower = ((index_ >> round) & 1) == 0;
  if (round > 0) return add(call, half, is_lower ? own : theirs, is_lower ? theirs : own, own);
  call.layout().for_each_part(half, [&](const FusedLayout::Part& part) {
    const std::size_t offset = part.position - half.begin;
    const std::byte* const input = call.data().input_as_carried(part);
    const std::byte* operands[] = {input != nullptr ? input : own + offset, theirs + offset};
    if (!is_lower) std::swap(operands[0], operands[1]);
    std::byte* const to = own + offset;
    const DType wire = call.layout().wire(part.segment);
    call.workers().reduce({combining(call.operation().reduce), wire, wire}, operands,
                          std::span(&to, 1), part.count, WritePolicy::cached);
  });
}

void HalvingExchange::send_to_owners(ChunkInFlight& flight) const {
  if (block_ == 0) return;
  const Pieces mine = owned();
  for (int piece = mine.begin; piece < mine.end; ++piece) {
    const Range range = range_of(flight, {piece, piece + 1});
    if (range.size() == 0) continue;
    send(flight, owner_of(piece, 0), kPartialTag, {sum_at(flight, range), range.size()});
  }
}

/// Adds the other blocks' sums, beginning with the last block: B1 + (B2 + (B3 + ...)).
void HalvingExchange::add_other_blocks(Call& call, ChunkInFlight& flight) const {
  if (block_ > 0) return;
  const Pieces mine = owned();
  const Range range = range_of(flight, mine);
  if (range.size() == 0) return;
  std::byte* others = flight.incoming.data() + incoming_offset(flight, rounds_);
  std::byte* own = sum_at(flight, range);
  for (std::size_t block = blocks_.size() - 1; block > 0; --block) {
    std::byte* right = others + (block - 1) * range.size();
    std::byte* left = block > 1 ? right - range.size() : own;
    add(call, range, left, right, left);
  }
  if (call.operation().reduce == ReduceOp::avg) {
    divide_by_ranks(call.layout(), range, lane_.plan, own);
  }
  std::copy_n(own, range.size(), flight.result_at(range.begin));
  for (std::size_t block = 1; block < blocks_.size(); ++block) {
    send(flight, owner_of(mine.begin, block), kResultTag,
         {flight.result_at(range.begin), range.size()});
  }
}

void HalvingExchange::send_known(ChunkInFlight& flight, int round) const {
  const Range known = range_of(flight, kept_by(index_, round + 1));
  if (known.size() > 0) {
    send_pieces(flight, partner(round), kResultTag, {flight.result_at(known.begin), known.size()});
  }
}

}  // namespace

std::unique_ptr<ExchangeAlgorithm> halving_exchange(const Lane& lane) {
  return std::make_unique<HalvingExchange>(lane);
}

}  // namespace tutti::collectives
