// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/handshake_sums.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "collectives/lanes/exchange.hpp"
#include "collectives/lanes/halving.hpp"

namespace tutti::collectives {

namespace {

constexpr std::size_t kValuesBegin = Handshake::kValuesBegin;

/// Returns the size of the largest message. Of a sum by halves, the first round has the most, and
/// the upper half has the odd line.
std::size_t most_of_message(const Topology& topology, const Tuning& tuning) {
  const int nodes = topology.num_nodes();
  const Range half = range_of({0, tuning.most_halved_bytes()}, nodes, kept_after(1, 1, nodes));
  return kValuesBegin +
         std::max({tuning.inline_shared_bytes, tuning.inline_tried_bytes, half.size()});
}

/// Merges another node's handshake into `own`. If they do not agree, there are no sums.
void merge(Handshake& own, std::span<const std::byte> message) {
  const Handshake other = Handshake::read(message);
  own.stop_requested |= other.stop_requested;
  own.last_time = longest_of(own.last_time, other.last_time);
  const bool alike = other.agrees != 0 && other.sequence == own.sequence &&
                     other.signature == own.signature && other.partial_bytes == own.partial_bytes &&
                     other.by_halves == own.by_halves;
  if (own.agrees != 0 && alike) return;
  own.agrees = 0;
  own.partial_bytes = 0;
}

void take(const Handshake& merged, Agreed& agreed) {
  agreed.stop_requested = merged.stop_requested != 0;
  agreed.last_time = merged.last_time;
  agreed.all_alike = merged.agrees != 0;
}

}  // namespace

bool sums_at_once(const FusedLayout& layout) {
  bool all = true;
  layout.for_each_segment(
      [&](const FusedLayout::Part& part) { all = all && size_of(layout.wire(part.segment)) != 2; });
  return all;
}

bool leaves_last_sum(const Call& call) {
  if (call.memory().size() > 1 || call.operation().reduce == ReduceOp::avg) return false;
  return !has_single_sources(call.layout()) && sums_at_once(call.layout());
}

/// One message each: this node's own sum, the sum that has arrived, and the rest. By halves,
/// arriving messages use the last two in turn.
struct HandshakeSums::Buffers {
  explicit Buffers(std::size_t most_bytes) {
    for (auto* message : {&own, &arrived, &rest}) {
      *message = std::make_unique_for_overwrite<std::byte[]>(most_bytes);
    }
  }
  std::unique_ptr<std::byte[]> own;
  std::unique_ptr<std::byte[]> arrived;
  std::unique_ptr<std::byte[]> rest;
  /// By halves: the sum that this node makes, and finally the total.
  std::unique_ptr<std::byte[]> halved;
  std::size_t halved_bytes = 0;  ///< only grows
};

HandshakeSums::HandshakeSums(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
                             Transport& transport, const Tuning& tuning)
    : topology_(topology),
      plan_(plan),
      folding_(topology.num_nodes(), topology.node),
      most_bytes_(most_of_message(topology, tuning)),
      buffers_(std::make_shared<Buffers>(most_bytes_)),
      mail_(topology, waiter, transport, buffers_) {}

HandshakeSums::~HandshakeSums() = default;

// --- whole sums ---------------------------------------------------------------------------------

void HandshakeSums::fold(Call& call, bool with_payload, Agreed& agreed) {
  const std::size_t bytes =
      with_payload && call.announcement().node_agrees() ? call.layout().total() : 0;
  Handshake own = Handshake::of(call, bytes);
  const auto whole = [&](const auto& message) { return std::span(message.get(), most_bytes_); };
  const auto write = [&](std::span<std::byte> message) {
    own.last_rank = agreed.last_rank;
    own.bytes_here = own.partial_bytes;
    own.write(message);
  };
  const std::byte* const arrived = buffers_->arrived.get();
  const std::byte* const rest = buffers_->rest.get();
  std::byte* sum = buffers_->own.get() + kValuesBegin;
  if (bytes > 0) call.data().reduce_payloads_to_buffer(0, topology_.local_size(), sum);
  for (int index = 0; index < folding_.num_rounds(); ++index) {
    const FoldingRound round = folding_.round(index);
    write(whole(buffers_->own));
    if (!round.rest_to.empty()) write(whole(buffers_->rest));
    exchange_folded(round, agreed);
    if (round.partner >= 0 || round.total_from >= 0) merge(own, whole(buffers_->arrived));
    if (round.rest_from >= 0) merge(own, whole(buffers_->rest));
    if (own.partial_bytes == 0) continue;
    const bool is_last = index + 1 == folding_.num_rounds();
    if (round.partner >= 0) {
      add(call, arrived, folding_.partners_in(index), is_last ? &agreed : nullptr);
    }
    if (round.adds_rest) {
      const bool is_total = folding_.round(index + 1).own_to.empty();
      add(call, rest, folding_.rest(), is_total ? &agreed : nullptr);
    }
    if (round.total_from >= 0) sum = buffers_->arrived.get() + kValuesBegin;
  }
  take(own, agreed);
  if (!agreed.all_alike) return;
  if (bytes > 0 && call.operation().reduce == ReduceOp::avg && !has_single_sources(call.layout())) {
    divide_by_ranks(call.layout(), {0, bytes}, plan_, sum);
  }
  agreed.sum = sum;
}

/// Exchanges the messages of one round. No two of them come from the same node.
void HandshakeSums::exchange_folded(const FoldingRound& round, Agreed& agreed) {
  const std::span<std::byte> arrived(buffers_->arrived.get(), most_bytes_);
  const std::span<std::byte> rest(buffers_->rest.get(), most_bytes_);
  const auto as_it_is = [](const std::span<std::byte> message) {
    return std::span<const std::byte>(message.first(Handshake::read(message).length()));
  };
  const auto own = as_it_is({buffers_->own.get(), most_bytes_});
  const int arrives_from = std::max(round.partner, round.total_from);
  if (arrives_from >= 0) mail_.receive_handshake(arrives_from, arrived);
  if (round.rest_from >= 0) mail_.receive_handshake(round.rest_from, rest);
  if (round.partner >= 0) mail_.send_handshake(round.partner, own);
  for (const int node : round.own_to) mail_.send_handshake(node, own);
  for (const int node : round.rest_to) mail_.send_handshake(node, as_it_is(rest));
  if (!mail_.wait_for_handshakes()) return;
  agreed.last_rank = Handshake::read(mail_.last_node() == arrives_from ? arrived : rest).last_rank;
}

/// Adds the sum of other nodes to this node's own. The addition is left to the caller if `last` is
/// given and allows it. Where segments have a single source, those of the given nodes are copied
/// instead.
void HandshakeSums::add(Call& call, const std::byte* message, NodeRange nodes, Agreed* last) {
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
  if (last != nullptr && leaves_last_sum(call)) {
    last->operands = {left, right};
    return;
  }
  combine_two(call.workers(), layout, call.operation().reduce, {0, layout.total()},
              {left, right, own});
}

// --- by halves -----------------------------------------------------------------------------------

/// The state of one sum by halves.
struct HandshakeSums::Halves {
  Call& call;
  const Topology& topology;
  Agreed& agreed;
  Handshake own{};
  std::byte* sum = nullptr;           ///< wire elements of the whole call, partly filled
  const std::byte* theirs = nullptr;  ///< the half that arrived in the previous round

  [[nodiscard]] int pieces() const { return topology.num_nodes(); }
  [[nodiscard]] int rounds() const { return std::countr_zero(static_cast<unsigned>(pieces())); }
  [[nodiscard]] int partner(int round) const { return topology.node ^ (1 << round); }
  /// Returns the range that a node still sums after `rounds_done` rounds. On the way back, it is
  /// the range of which the node has the total.
  [[nodiscard]] Range kept(int rounds_done, int node) const {
    return range_of({0, call.layout().total()}, pieces(), kept_after(rounds_done, node, pieces()));
  }
  [[nodiscard]] Range kept(int rounds_done) const { return kept(rounds_done, topology.node); }
  [[nodiscard]] bool agrees() const { return own.agrees != 0; }
};

void HandshakeSums::halve(Call& call, Agreed& agreed) {
  Halves halves{call, topology_, agreed};
  const std::size_t bytes = call.announcement().node_agrees() ? call.layout().total() : 0;
  halves.own = Handshake::of(call, bytes);
  halves.own.by_halves = 1;
  if (buffers_->halved_bytes < bytes) {
    buffers_->halved = std::make_unique_for_overwrite<std::byte[]>(bytes);
    buffers_->halved_bytes = bytes;
  }
  halves.sum = buffers_->halved.get();
  for (int round = 0; round < halves.rounds(); ++round) halve_once(halves, round);
  take(halves.own, agreed);
  if (!agreed.all_alike) return;
  const Range mine = halves.kept(halves.rounds());
  sum_kept(halves, halves.rounds(), mine, halves.sum + mine.begin);
  if (call.operation().reduce == ReduceOp::avg) {
    divide_by_ranks(call.layout(), mine, plan_, halves.sum + mine.begin);
  }
  double_known(halves);
  agreed.sum = halves.sum;
}

/// Exchanges halves in one round. The half that is kept is summed while the other is on its way.
void HandshakeSums::halve_once(Halves& halves, int round) {
  std::byte* const room = (round % 2 == 0 ? buffers_->arrived : buffers_->rest).get();
  mail_.receive_handshake(halves.partner(round), {room, most_bytes_});
  send_half(halves, round);
  const Range kept = halves.kept(round + 1);
  if (halves.agrees()) sum_kept(halves, round, kept, halves.sum + kept.begin);
  const std::span<const std::byte> arrived(room, most_bytes_);
  if (mail_.wait_for_handshakes()) halves.agreed.last_rank = Handshake::read(arrived).last_rank;
  merge(halves.own, arrived);
  halves.theirs = room + kValuesBegin;
}

/// Sends a half, in messages that leave as soon as they are summed.
void HandshakeSums::send_half(Halves& halves, int round) {
  const int partner = halves.partner(round);
  const Range half = halves.agrees() ? halves.kept(round + 1, partner) : Range{};
  std::byte* const message = buffers_->own.get();
  halves.own.last_rank = halves.agreed.last_rank;
  halves.own.bytes_here = half.size();
  halves.own.write({message, most_bytes_});
  const std::size_t length = kValuesBegin + half.size();
  for (std::size_t sent = 0; sent < length; sent += kMostAtOnce) {
    const std::size_t end = std::min(sent + kMostAtOnce, length);
    // First byte of the sums in this message.
    const std::size_t first = std::max(sent, kValuesBegin);
    sum_kept(halves, round, {half.begin + first - kValuesBegin, half.begin + end - kValuesBegin},
             message + first);
    mail_.send(partner, kHandshakeTag, {message + sent, end - sent});
  }
}

/// Sums a range of what this node has after `rounds_done` rounds. Before the first round, that is
/// the data of the node's ranks; parts that can be added directly from the input later are left
/// there, unless they are to be sent.
void HandshakeSums::sum_kept(Halves& halves, int rounds_done, Range range, std::byte* to) {
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

/// Passes the sums back. All nodes have agreed by now, so all messages have the expected size. A
/// rank that is alone in its node delivers the sums that have arrived while others are on their
/// way.
void HandshakeSums::double_known(Halves& halves) {
  const auto in_messages = [&](Range range, FunctionRef<void(std::span<std::byte>)> move) {
    for (std::size_t begin = range.begin; begin < range.end; begin += kMostAtOnce) {
      move({halves.sum + begin, std::min(kMostAtOnce, range.end - begin)});
    }
  };
  const int rounds = halves.rounds();
  for (int round = rounds - 1; round >= 0; --round) {
    const int partner = halves.partner(round);
    in_messages(halves.kept(round + 1, partner),
                [&](std::span<std::byte> bytes) { mail_.receive(partner, kResultTag, bytes); });
  }
  const Call& call = halves.call;
  const bool delivers = call.is_alone_in_lane() && call.operation().consumer == nullptr;
  const auto deliver = [&](Range range) {
    if (delivers) call.data().deliver_own(range, halves.sum + range.begin);
    call.turn_to(Activity::wait_for_nodes);
  };
  Range fresh = halves.kept(rounds);
  for (int round = rounds - 1; round >= 0; --round) {
    const int partner = halves.partner(round);
    in_messages(halves.kept(round + 1),
                [&](std::span<std::byte> bytes) { mail_.send(partner, kResultTag, bytes); });
    deliver(fresh);
    mail_.wait(partner);
    fresh = halves.kept(round + 1, partner);
  }
  deliver(fresh);
  mail_.wait();
  halves.agreed.is_delivered = delivers;
}

}  // namespace tutti::collectives
