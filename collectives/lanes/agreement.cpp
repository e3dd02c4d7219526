// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/agreement.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "collectives/job/leak.hpp"
#include "collectives/lanes/agreement_state.hpp"
#include "collectives/lanes/halving.hpp"

namespace tutti::collectives {

namespace {

/// The most that the first round of a sum by halves brings. The upper half has the odd line.
std::size_t largest_half(const Topology& topology, const Tuning& tuning) {
  const int nodes = topology.num_nodes();
  return range_of({0, tuning.most_halved_bytes()}, nodes, kept_after(1, 1, nodes)).size();
}

/// Messages that are there so soon were on their way before this node greeted: it came last itself.
constexpr auto kTogether = std::chrono::microseconds(30);

}  // namespace

Agreement::Agreement(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
                     Transport& transport, const Tuning& tuning)
    : topology_(topology),
      plan_(plan),
      waiter_(waiter),
      transport_(transport),
      handshakes_(tuning.handshakes),
      folds_(handshakes_ == Handshakes::doubling && plan.is_tree_of_nodes()),
      folding_(topology.num_nodes(), topology.node),
      buffers_(std::make_unique<Buffers>()) {
  const std::size_t inline_bytes = std::max(tuning.inline_shared_bytes, tuning.inline_tried_bytes);
  if (folds_) {
    most_bytes_ = kValuesBegin + std::max(inline_bytes, largest_half(topology, tuning));
    for (auto* message : {&buffers_->own, &buffers_->arrived, &buffers_->rest}) {
      *message = std::make_unique_for_overwrite<std::byte[]>(most_bytes_);
    }
    return;
  }
  for (int node = 0; node < topology.num_nodes(); ++node) {
    most_bytes_ = std::max(most_bytes_, sizeof(Handshake) + plan.count_of(node) * inline_bytes);
  }
  buffers_->incoming.resize(topology.nodes.size());
}

/// After a failure messages may still be under way: their buffers are left to them.
Agreement::~Agreement() {
  if (!buffers_->receives.empty() || !buffers_->sends.empty()) {
    leak_until_exit(std::shared_ptr<const Buffers>(std::move(buffers_)));
  }
}

bool Agreement::reach(Call& call, Payload payload) {
  last_rank_ = call.announcement().last_rank();
  operands_.clear();
  has_delivered_ = false;
  if (payload == Payload::halves) return halve(call);
  const bool with_payload = payload == Payload::whole;
  if (folds_) return fold(call, with_payload);
  if (handshakes_ == Handshakes::direct) {
    for_each_other([&](int node) { receive_handshake(node, room_for(node)); });
    compose_handshake(call, with_payload);
    for_each_other([&](int node) { send_handshake(node, buffers_->incoming[topology_.node]); });
    if (wait_for_handshakes()) learn_last_rank();
  } else {
    compose_handshake(call, with_payload);
    pass_on_handshakes();
  }
  look_at_all();
  if (!handshakes_agree(call)) return false;
  if (with_payload) combine(call);
  return true;
}

Agreement::Handshake Agreement::handshake_of(const Call& call, std::size_t bytes) const {
  return {call.sequence(),
          call.signature(),
          call.announcement().node_agrees() ? 1u : 0u,
          call.announcement().stop_requested() ? 1u : 0u,
          bytes,
          call.announcement().last_rank(),
          call.announcement().longest_time()};
}

// --- all handshakes, to be looked at together ----------------------------------------------------

void Agreement::compose_handshake(Call& call, bool with_payload) {
  const bool payload = with_payload && call.announcement().node_agrees();
  const std::size_t bytes = payload ? call.layout().total() : 0;
  const std::size_t first = plan_.first_of(topology_.node);
  const std::size_t partials = plan_.count_of(topology_.node);
  const Handshake handshake = handshake_of(call, bytes);
  auto& own = buffers_->incoming[topology_.node];
  own.resize(sizeof handshake + partials * bytes);
  std::memcpy(own.data(), &handshake, sizeof handshake);
  std::byte* to = own.data() + sizeof handshake;
  for (std::size_t i = 0; i < partials && payload; ++i) {
    const Partial partial = plan_.partial(first + i);
    call.data().reduce_payloads_to_buffer(partial.first, partial.count, to + i * bytes);
  }
}

std::size_t Agreement::handshake_length(int node, std::span<const std::byte> bytes) const {
  Handshake handshake;
  std::memcpy(&handshake, bytes.data(), sizeof handshake);
  return sizeof handshake + plan_.count_of(node) * handshake.partial_bytes;
}

void Agreement::pass_on_handshakes() {
  const int nodes = topology_.num_nodes();
  auto& gathered = buffers_->gathered;
  for (int distance = 1; distance < nodes; distance *= 2) {
    const int count = std::min(distance, nodes - distance);
    const int from = (topology_.node + nodes - distance) % nodes;
    const int to = (topology_.node + distance) % nodes;
    const std::size_t room = static_cast<std::size_t>(count) * most_bytes_;
    if (gathered.size() < room) gathered.resize(room);
    receive(from, kHandshakeTag, std::span(gathered).first(room));
    buffers_->passed_on.clear();
    tell_last_rank();
    for (int i = 0; i < count; ++i) {
      const auto& known = buffers_->incoming[(topology_.node + nodes - i) % nodes];
      buffers_->passed_on.insert(buffers_->passed_on.end(), known.begin(), known.end());
    }
    send(to, kHandshakeTag, buffers_->passed_on);
    const bool waited = wait_for_handshakes();
    std::span<const std::byte> rest(gathered);
    for (int i = 0; i < count; ++i) {
      const int node = (from + nodes - i) % nodes;
      const std::size_t length = handshake_length(node, rest);
      buffers_->incoming[node].assign(rest.begin(), rest.begin() + length);
      rest = rest.subspan(length);
    }
    if (waited) learn_last_rank();
  }
}

/// True if another node came later than this one; last_node_ is the last of them. A node that
/// speaks in a later round has put together what it sends from what it has received in those
/// before.
bool Agreement::wait_for_handshakes() {
  const auto begin = waiter_.now();
  last_node_ = -1;
  wait_for_messages();
  return last_node_ >= 0 && waiter_.now() - begin > kTogether;
}

void Agreement::learn_last_rank() { learn_last_rank(buffers_->incoming[last_node_].data()); }

void Agreement::learn_last_rank(const std::byte* message) {
  Handshake handshake;
  std::memcpy(&handshake, message, sizeof handshake);
  last_rank_ = handshake.last_rank;
}

void Agreement::tell_last_rank() {
  Handshake handshake;
  std::byte* own = buffers_->incoming[topology_.node].data();
  std::memcpy(&handshake, own, sizeof handshake);
  handshake.last_rank = last_rank_;
  std::memcpy(own, &handshake, sizeof handshake);
}

bool Agreement::handshakes_agree(const Call& call) const {
  return std::all_of(buffers_->incoming.begin(), buffers_->incoming.end(), [&](const auto& bytes) {
    Handshake handshake;
    std::memcpy(&handshake, bytes.data(), sizeof handshake);
    return handshake.agrees != 0 && handshake.sequence == call.sequence() &&
           handshake.signature == call.signature();
  });
}

void Agreement::look_at_all() {
  stop_requested_ = false;
  for (std::size_t node = 0; node < buffers_->incoming.size(); ++node) {
    Handshake handshake;
    std::memcpy(&handshake, buffers_->incoming[node].data(), sizeof handshake);
    stop_requested_ = stop_requested_ || handshake.stop_requested != 0;
    last_time_ = node == 0 ? handshake.last_time : longest_of(last_time_, handshake.last_time);
  }
}

void Agreement::combine(Call& call) {
  const Range all{0, call.layout().total()};
  if (has_single_sources(call.layout())) return pick_copies(call);
  if (plan_.is_tree_of_nodes() && sums_at_once(call.layout())) return sum_all(call);
  buffers_->partials.resize(plan_.num_partials() * all.size());
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    std::memcpy(buffers_->partials.data() + all.size() * plan_.first_of(node),
                buffers_->incoming[node].data() + sizeof(Handshake),
                all.size() * plan_.count_of(node));
  }
  combine_partials(call.workers(), call.layout(), call.operation().reduce, all, plan_,
                   buffers_->partials.data());
  result_ = buffers_->partials.data();
}

/// One partial sum of each node, from where they have arrived.
void Agreement::sum_all(Call& call) {
  const FusedLayout& layout = call.layout();
  for (const auto& handshake : buffers_->incoming) {
    operands_.push_back(handshake.data() + sizeof(Handshake));
  }
  if (leaves_last_sum(call)) return;
  buffers_->partials.resize(layout.total());
  std::byte* const sum = buffers_->partials.data();
  std::vector<const std::byte*> values(operands_.size());
  layout.for_each_segment([&](const FusedLayout::Part& part) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = operands_[i] + part.position;
    std::byte* const to = sum + part.position;
    const DType wire = layout.wire(part.segment);
    call.workers().reduce({combining(call.operation().reduce), wire, wire}, values,
                          std::span(&to, 1), part.count, WritePolicy::cached);
  });
  operands_.clear();
  result_ = sum;
  if (call.operation().reduce == ReduceOp::avg) {
    divide_by_ranks(layout, {0, layout.total()}, plan_, sum);
  }
}

/// Every segment from the handshake of its source's node.
void Agreement::pick_copies(const Call& call) {
  buffers_->partials.resize(call.layout().total());
  call.layout().for_each_segment([&](const FusedLayout::Part& part) {
    const auto& handshake = buffers_->incoming[topology_.node_of(call.segment(part).source)];
    const std::size_t bytes = part.count * size_of(call.layout().wire(part.segment));
    std::memcpy(buffers_->partials.data() + part.position,
                handshake.data() + sizeof(Handshake) + part.position, bytes);
  });
  result_ = buffers_->partials.data();
}

std::vector<RankStatement> Agreement::exchange(const std::vector<RankStatement>& of_this_node) {
  const std::size_t most = topology_.largest_node();
  buffers_->incoming.resize(topology_.nodes.size());
  buffers_->statements = of_this_node;
  for_each_other([&](int node) {
    buffers_->incoming[node].resize(most * sizeof(RankStatement));
    receive(node, kStatementTag, buffers_->incoming[node]);
    send(node, kStatementTag, std::as_bytes(std::span(buffers_->statements)));
  });
  wait_for_messages();
  std::vector<RankStatement> all(topology_.size);
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    const NodeRanks ranks = topology_.nodes[node];
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      RankStatement& statement = all[ranks[i]];
      if (node == topology_.node) {
        statement = of_this_node[i];
      } else {
        std::memcpy(&statement, buffers_->incoming[node].data() + i * sizeof statement,
                    sizeof statement);
      }
    }
  }
  return all;
}

/// In another order on each node: one that all nodes send to at once gets the last message late.
void Agreement::for_each_other(FunctionRef<void(int)> visit) const {
  const int nodes = topology_.num_nodes();
  for (int step = 1; step < nodes; ++step) visit((topology_.node + step) % nodes);
}

std::span<std::byte> Agreement::room_for(int node) {
  auto& room = buffers_->incoming[node];
  if (room.size() < most_bytes_) room.resize(most_bytes_);
  return room;
}

void Agreement::send_handshake(int to_node, std::span<const std::byte> whole) {
  for (std::size_t sent = 0; sent < whole.size(); sent += kMostAtOnce) {
    send(to_node, kHandshakeTag, whole.subspan(sent, std::min(kMostAtOnce, whole.size() - sent)));
  }
}

/// `room`: for the longest one. The first message is received now, and what follows when it is
/// known how much that is.
void Agreement::receive_handshake(int from_node, std::span<std::byte> room) {
  receive(from_node, kHandshakeTag, room.first(std::min(kMostAtOnce, room.size())));
  buffers_->receives.back().whole = room;
}

/// The messages that follow the first one of a handshake, which has come.
void Agreement::receive_rest(int from_node, std::span<std::byte> whole) {
  if (whole.size() <= kMostAtOnce) return;
  const std::size_t length = folds_ ? folded_length(whole) : handshake_length(from_node, whole);
  for (std::size_t begin = kMostAtOnce; begin < length; begin += kMostAtOnce) {
    receive(from_node, kHandshakeTag, whole.subspan(begin, std::min(kMostAtOnce, length - begin)));
  }
}

void Agreement::receive(int node, int tag, std::span<std::byte> bytes) {
  buffers_->receives.push_back(
      {node, transport_.receive(topology_.nodes[node].front(), tag, bytes)});
}

void Agreement::send(int to_node, int tag, std::span<const std::byte> message) {
  const int rank = topology_.nodes[to_node].front();
  buffers_->sends.push_back({to_node, transport_.send(rank, tag, message)});
}

void Agreement::wait_for_messages(int from_node) {
  const auto is_awaited = [&](const Buffers::Message& message) {
    return from_node < 0 || message.node == from_node;
  };
  const auto ready = [&] {
    buffers_->first_ones.clear();
    std::erase_if(buffers_->receives, [&](const Buffers::Message& expected) {
      if (transport_.done(expected.request)) {
        if (!expected.whole.empty()) buffers_->first_ones.push_back(expected);
        return true;
      }
      last_node_ = expected.node;
      return false;
    });
    for (const auto& first : buffers_->first_ones) receive_rest(first.node, first.whole);
    std::erase_if(buffers_->sends,
                  [&](const Buffers::Message& sent) { return transport_.done(sent.request); });
    if (std::any_of(buffers_->receives.begin(), buffers_->receives.end(), is_awaited)) return false;
    return from_node >= 0 || buffers_->sends.empty();
  };
  const auto missing = [&] {  // who has sent nothing; else who has not taken what was sent
    std::vector<int> ranks;
    for (const auto& message : buffers_->receives.empty() ? buffers_->sends : buffers_->receives) {
      if (is_awaited(message)) ranks.push_back(topology_.nodes[message.node].front());
    }
    return ranks;
  };
  waiter_.until_messages(ready, missing);
}

}  // namespace tutti::collectives
