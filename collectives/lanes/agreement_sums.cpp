// SPDX-License-Identifier: Apache-2.0
// The part of Agreement that makes sums on the way.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "collectives/lanes/agreement.hpp"
#include "collectives/lanes/agreement_state.hpp"
#include "collectives/lanes/exchange.hpp"
#include "collectives/lanes/halving.hpp"

namespace tutti::collectives {

bool sums_at_once(const FusedLayout& layout) {
  bool all = true;
  layout.for_each_segment(
      [&](const FusedLayout::Part& part) { all = all && size_of(layout.wire(part.segment)) != 2; });
  return all;
}

// --- whole sums ---------------------------------------------------------------------------------

bool Agreement::fold(Call& call, bool with_payload) {
  static_assert(sizeof(Handshake) <= kValuesBegin);
  const std::size_t bytes =
      with_payload && call.announcement().node_agrees() ? call.layout().total() : 0;
  Handshake own = handshake_of(call, bytes);
  const std::byte* const arrived = buffers_->arrived.get();
  const std::byte* const rest = buffers_->rest.get();
  std::byte* sum = buffers_->own.get() + kValuesBegin;
  if (bytes > 0) call.data().reduce_payloads_to_buffer(0, topology_.local_size(), sum);
  for (int index = 0; index < folding_.num_rounds(); ++index) {
    const FoldingRound round = folding_.round(index);
    write_folded(own, buffers_->own.get());
    if (!round.rest_to.empty()) write_folded(own, buffers_->rest.get());
    exchange_folded(round);
    if (round.partner >= 0 || round.total_from >= 0) merge(own, arrived);
    if (round.rest_from >= 0) merge(own, rest);
    if (own.partial_bytes == 0) continue;
    const bool is_last = index + 1 == folding_.num_rounds();
    if (round.partner >= 0) {
      add(call, arrived, folding_.partners_in(index), is_last);
    }
    if (round.adds_rest) {
      add(call, rest, folding_.rest(), folding_.round(index + 1).own_to.empty());
    }
    if (round.total_from >= 0) sum = buffers_->arrived.get() + kValuesBegin;
  }
  stop_requested_ = own.stop_requested != 0;
  last_time_ = own.last_time;
  if (own.agrees == 0) return false;
  if (bytes > 0 && call.operation().reduce == ReduceOp::avg && !has_single_sources(call.layout())) {
    divide_by_ranks(call.layout(), {0, bytes}, plan_, sum);
  }
  result_ = sum;
  return true;
}

void Agreement::write_folded(const Handshake& own, std::byte* message) const {
  Handshake header = own;
  header.last_rank = last_rank_;
  header.bytes_here = own.partial_bytes;
  std::memcpy(message, &header, sizeof header);
}

/// Two messages of one round never come from one node.
void Agreement::exchange_folded(const FoldingRound& round) {
  const std::span<std::byte> arrived(buffers_->arrived.get(), most_bytes_);
  const std::span<std::byte> rest(buffers_->rest.get(), most_bytes_);
  const auto as_it_is = [](const std::span<std::byte> message) {
    return std::span<const std::byte>(message.first(folded_length(message)));
  };
  const auto own = as_it_is({buffers_->own.get(), most_bytes_});
  const int arrives_from = std::max(round.partner, round.total_from);
  if (arrives_from >= 0) receive_handshake(arrives_from, arrived);
  if (round.rest_from >= 0) receive_handshake(round.rest_from, rest);
  if (round.partner >= 0) send_handshake(round.partner, own);
  for (const int node : round.own_to) send_handshake(node, own);
  for (const int node : round.rest_to) send_handshake(node, as_it_is(rest));
  if (!wait_for_handshakes()) return;
  learn_last_rank((last_node_ == arrives_from ? arrived : rest).data());
}

/// Nodes that do not agree have no sum. A handshake stands for all nodes that its sender knows of.
void Agreement::merge(Handshake& own, const std::byte* message) {
  Handshake other;
  std::memcpy(&other, message, sizeof other);
  own.stop_requested |= other.stop_requested;
  own.last_time = longest_of(own.last_time, other.last_time);
  const bool alike = other.agrees != 0 && other.sequence == own.sequence &&
                     other.signature == own.signature && other.partial_bytes == own.partial_bytes &&
                     other.by_halves == own.by_halves;
  if (own.agrees != 0 && alike) return;
  own.agrees = 0;
  own.partial_bytes = 0;
}

/// What can be summed into the outputs of a rank that is alone in its node. An average is divided
/// afterwards, and every step of 16-bit floating-point types rounds.
bool Agreement::leaves_last_sum(const Call& call) const {
  if (topology_.local_size() > 1 || call.operation().reduce == ReduceOp::avg) return false;
  return !has_single_sources(call.layout()) && sums_at_once(call.layout());
}

/// Adds the sum of other nodes to this node's own; the last addition may be left to the caller.
/// Where each element has one source, the segments of these nodes are copied.
void Agreement::add(Call& call, const std::byte* message, NodeRange nodes, bool is_last) {
  const FusedLayout& layout = call.layout();
  std::byte* const own = buffers_->own.get() + kValuesBegin;
  const std::byte* const other = message + kValuesBegin;
  if (has_single_sources(layout)) {
    layout.for_each_segment([&](const FusedLayout::Part& part) {
      const int node = topology_.node_of(call.segment(part).source);
      if (node < nodes.begin || node >= nodes.end) return;
      std::memcpy(own + part.position, other + part.position,
                  part.count * size_of(layout.wire(part.segment)));
    });
    return;
  }
  const bool other_is_left = nodes.begin < topology_.node;
  const std::byte* const left = other_is_left ? other : own;
  const std::byte* const right = other_is_left ? own : other;
  if (is_last && leaves_last_sum(call)) {
    operands_ = {left, right};
    return;
  }
  combine_two(call.workers(), layout, call.operation().reduce, {0, layout.total()},
              {left, right, own});
}

std::size_t Agreement::folded_length(std::span<const std::byte> bytes) {
  Handshake handshake;
  std::memcpy(&handshake, bytes.data(), sizeof handshake);
  return kValuesBegin + handshake.bytes_here;
}

// --- by halves -----------------------------------------------------------------------------------

/// One sum on its way.
struct Agreement::Halves {
  Call& call;
  const Topology& topology;
  Handshake own{};
  std::byte* sum = nullptr;           ///< wire elements of the whole call, of which some are there
  const std::byte* theirs = nullptr;  ///< what the round before has brought

  [[nodiscard]] int pieces() const { return topology.num_nodes(); }
  [[nodiscard]] int rounds() const { return std::countr_zero(static_cast<unsigned>(pieces())); }
  [[nodiscard]] int partner(int round) const { return topology.node ^ (1 << round); }
  /// What a node still sums after so many rounds. On the way back it knows it again.
  [[nodiscard]] Range kept(int rounds_done, int node) const {
    return range_of({0, call.layout().total()}, pieces(), kept_after(rounds_done, node, pieces()));
  }
  [[nodiscard]] Range kept(int rounds_done) const { return kept(rounds_done, topology.node); }
  [[nodiscard]] bool agrees() const { return own.agrees != 0; }
};

bool Agreement::halve(Call& call) {
  Halves halves{call, topology_};
  const std::size_t bytes = call.announcement().node_agrees() ? call.layout().total() : 0;
  halves.own = handshake_of(call, bytes);
  halves.own.by_halves = 1;
  if (buffers_->halved_bytes < bytes) {
    buffers_->halved = std::make_unique_for_overwrite<std::byte[]>(bytes);
    buffers_->halved_bytes = bytes;
  }
  halves.sum = buffers_->halved.get();
  for (int round = 0; round < halves.rounds(); ++round) halve_once(halves, round);
  stop_requested_ = halves.own.stop_requested != 0;
  last_time_ = halves.own.last_time;
  if (!halves.agrees()) return false;
  const Range mine = halves.kept(halves.rounds());
  sum_kept(halves, halves.rounds(), mine, halves.sum + mine.begin);
  if (call.operation().reduce == ReduceOp::avg) {
    divide_by_ranks(call.layout(), mine, plan_, halves.sum + mine.begin);
  }
  double_known(halves);
  result_ = halves.sum;
  return true;
}

/// What is kept is summed while the other half is on its way.
void Agreement::halve_once(Halves& halves, int round) {
  std::byte* const room = (round % 2 == 0 ? buffers_->arrived : buffers_->rest).get();
  receive_handshake(halves.partner(round), {room, most_bytes_});
  send_half(halves, round);
  const Range kept = halves.kept(round + 1);
  if (halves.agrees()) sum_kept(halves, round, kept, halves.sum + kept.begin);
  if (wait_for_handshakes()) learn_last_rank(room);
  merge(halves.own, room);
  halves.theirs = room + kValuesBegin;
}

/// In messages that set out as soon as they are summed.
void Agreement::send_half(Halves& halves, int round) {
  const int partner = halves.partner(round);
  const Range half = halves.agrees() ? halves.kept(round + 1, partner) : Range{};
  std::byte* const message = buffers_->own.get();
  Handshake header = halves.own;
  header.last_rank = last_rank_;
  header.bytes_here = half.size();
  std::memcpy(message, &header, sizeof header);
  const std::size_t length = kValuesBegin + half.size();
  for (std::size_t sent = 0; sent < length; sent += kMostAtOnce) {
    const std::size_t end = std::min(sent + kMostAtOnce, length);
    const std::size_t first = std::max(sent, kValuesBegin);  // of the sums
    sum_kept(halves, round, {half.begin + first - kValuesBegin, half.begin + end - kValuesBegin},
             message + first);
    send(partner, kHandshakeTag, {message + sent, end - sent});
  }
}

/// What this node sums of a range, after so many rounds. Before the first one that is what its
/// ranks have: what can be added from where it lies stays there, unless it is to be sent.
void Agreement::sum_kept(Halves& halves, int rounds_done, Range range, std::byte* to) {
  Call& call = halves.call;
  const bool is_sent = to != halves.sum + range.begin;
  if (rounds_done == 0) return call.data().sum_payloads(range, to, /*carried_too=*/is_sent);
  const Range kept = halves.kept(rounds_done);
  const bool is_lower = (topology_.node >> (rounds_done - 1) & 1) == 0;
  call.turn_to(Activity::reduce);
  call.layout().for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::byte* const input = rounds_done == 1 ? call.data().input_as_carried(part) : nullptr;
    const std::byte* operands[] = {input != nullptr ? input : halves.sum + part.position,
                                   halves.theirs + (part.position - kept.begin)};
    if (!is_lower) std::swap(operands[0], operands[1]);
    std::byte* const sum = to + (part.position - range.begin);
    const DType wire = call.layout().wire(part.segment);
    call.workers().reduce({combining(call.operation().reduce), wire, wire}, operands,
                          std::span(&sum, 1), part.count, WritePolicy::cached);
  });
  call.turn_to(Activity::wait_for_nodes);
}

/// The way back. All nodes agree by now: what they send is as long as it should be, and a rank that
/// is alone in its node delivers what has come while the rest comes.
void Agreement::double_known(Halves& halves) {
  const auto in_messages = [&](Range range, FunctionRef<void(std::span<std::byte>)> move) {
    for (std::size_t begin = range.begin; begin < range.end; begin += kMostAtOnce) {
      move({halves.sum + begin, std::min(kMostAtOnce, range.end - begin)});
    }
  };
  const int rounds = halves.rounds();
  for (int round = rounds - 1; round >= 0; --round) {
    const int partner = halves.partner(round);
    in_messages(halves.kept(round + 1, partner),
                [&](std::span<std::byte> bytes) { receive(partner, kResultTag, bytes); });
  }
  const Call& call = halves.call;
  has_delivered_ = call.is_alone_in_lane() && call.operation().consumer == nullptr;
  const auto deliver = [&](Range range) {
    if (has_delivered_) call.data().deliver_own(range, halves.sum + range.begin, /*slot=*/0);
    call.turn_to(Activity::wait_for_nodes);
  };
  Range fresh = halves.kept(rounds);
  for (int round = rounds - 1; round >= 0; --round) {
    const int partner = halves.partner(round);
    in_messages(halves.kept(round + 1),
                [&](std::span<std::byte> bytes) { send(partner, kResultTag, bytes); });
    deliver(fresh);
    wait_for_messages(partner);
    fresh = halves.kept(round + 1, partner);
  }
  deliver(fresh);
  wait_for_messages();
}

}  // namespace tutti::collectives
