// SPDX-License-Identifier: Apache-2.0
// What agreement.cpp and agreement_sums.cpp, the two halves of Agreement, have in common.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/lanes/agreement.hpp"

namespace tutti::collectives {

/// In a message with sums, which begin on a line of their own, as tensors do.
inline constexpr std::size_t kValuesBegin = 128;

/// Several steps at once give the bits of one after the other, but for 16-bit floating-point types,
/// of which every step rounds.
bool sums_at_once(const FusedLayout& layout);

/// If a message has several handshakes, the sender's own says whom the sender saw coming last.
struct Agreement::Handshake {
  std::uint64_t sequence;
  Signature signature;
  std::uint32_t agrees;          ///< 1 if the ranks of the node agree among themselves
  std::uint32_t stop_requested;  ///< 1 if one of them was asked to stop
  std::uint64_t partial_bytes;
  std::int32_t last_rank;        ///< to announce the call, among those that its sender knows of
  std::uint32_t last_time;       ///< of the call before it, on the nodes that it stands for
  std::uint64_t bytes_here = 0;  ///< of a sum, in this message; where sums are made on the way
  std::uint32_t by_halves = 0;   ///< 1 if messages have halves of the sums
};

struct Agreement::Buffers {
  struct Message {
    int node;  ///< the other one
    Transport::Request request;
    /// Where all of a handshake goes, if this is its first message, which says what follows.
    std::span<std::byte> whole{};
  };
  std::vector<std::vector<std::byte>> incoming;  ///< one per node; this node's own is what it sends
  std::vector<std::byte> passed_on;              ///< several handshakes in one message
  std::vector<std::byte> gathered;               ///< the same, received; only grows
  std::vector<std::byte> partials;               ///< all nodes', in plan order
  std::vector<RankStatement> statements;         ///< of this node, while they are sent
  /// With sums on the way, a message each: its own sum, what has arrived, the rest. A handshake,
  /// and the sum from kValuesBegin on. By halves, what has arrived is in the last two in turn.
  std::unique_ptr<std::byte[]> own;
  std::unique_ptr<std::byte[]> arrived;
  std::unique_ptr<std::byte[]> rest;
  std::unique_ptr<std::byte[]> halved;  ///< by halves: what this node sums, then the sum of all
  std::size_t halved_bytes = 0;         ///< only grows
  std::vector<Message> sends;           ///< not yet complete
  std::vector<Message> receives;        ///< not yet complete
  std::vector<Message> first_ones;      ///< of handshakes, just complete
};

}  // namespace tutti::collectives
