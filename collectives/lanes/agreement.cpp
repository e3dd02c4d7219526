// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/agreement.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "collectives/lanes/exchange.hpp"

namespace tutti::collectives {

/// The buffers only grow.
struct Agreement::Buffers {
  std::vector<std::vector<std::byte>> incoming;  ///< by node; a node's own entry is what it sends
  std::vector<std::byte> passed_on;              ///< a message of several handshakes, to be sent
  std::vector<std::byte> gathered;               ///< a message of several handshakes, received
  std::vector<std::byte> partials;               ///< partial sums of all nodes, in plan order
};

Agreement::Agreement(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
                     Transport& transport, const Tuning& tuning)
    : topology_(topology),
      plan_(plan),
      handshakes_(tuning.handshakes),
      buffers_(std::make_shared<Buffers>()),
      mail_(topology, waiter, transport, buffers_) {
  if (handshakes_ == Handshakes::doubling && plan.is_tree_of_nodes()) {
    sums_ = std::make_unique<HandshakeSums>(topology, plan, waiter, transport, tuning);
    return;
  }
  const std::size_t inline_bytes = std::max(tuning.inline_shared_bytes, tuning.inline_tried_bytes);
  for (int node = 0; node < topology.num_nodes(); ++node) {
    most_bytes_ =
        std::max(most_bytes_, Handshake::kValuesBegin + plan.count_of(node) * inline_bytes);
  }
  buffers_->incoming.resize(topology.nodes.size());
}

Agreement::~Agreement() = default;

const Agreed& Agreement::reach(Call& call) {
  agreed_.last_rank = call.announcement().last_rank();
  agreed_.operands.clear();
  agreed_.is_delivered = false;
  const bool with_payload = is_carried(call.route()) && call.layout().total() > 0;
  if (sums_ != nullptr) {
    with_payload&& call.route() == Route::halved ? sums_->halve(call, agreed_)
                                                 : sums_->fold(call, with_payload, agreed_);
    return agreed_;
  }
  handshakes_ == Handshakes::direct ? swap_handshakes(call, with_payload)
                                    : pass_on_handshakes(call, with_payload);
  look_at_all(call);
  if (agreed_.all_alike && with_payload) combine(call);
  return agreed_;
}

void Agreement::compose_handshake(Call& call, bool with_payload) {
  const bool payload = with_payload && call.announcement().node_agrees();
  const std::size_t bytes = payload ? call.layout().total() : 0;
  const std::size_t first = plan_.first_of(topology_.node);
  const std::size_t partials = plan_.count_of(topology_.node);
  Handshake handshake = Handshake::of(call, bytes);
  handshake.bytes_here = partials * bytes;
  auto& own = buffers_->incoming[topology_.node];
  own.resize(handshake.length());
  handshake.write(own);
  std::byte* const to = own.data() + Handshake::kValuesBegin;
  for (std::size_t i = 0; i < partials && payload; ++i) {
    const Partial partial = plan_.partial(first + i);
    call.data().reduce_payloads_to_buffer(partial.first, partial.count, to + i * bytes);
  }
}

/// Exchanges handshakes with all other nodes. Each node begins with the next node, because a node
/// that all others send to at once gets the last message late.
void Agreement::swap_handshakes(Call& call, bool with_payload) {
  const int nodes = topology_.num_nodes();
  const auto for_each_other = [&](auto visit) {
    for (int step = 1; step < nodes; ++step) visit((topology_.node + step) % nodes);
  };
  for_each_other([&](int node) {
    auto& room = buffers_->incoming[node];
    if (room.size() < most_bytes_) room.resize(most_bytes_);
    mail_.receive_handshake(node, room);
  });
  compose_handshake(call, with_payload);
  for_each_other([&](int node) { mail_.send_handshake(node, buffers_->incoming[topology_.node]); });
  if (mail_.wait_for_handshakes()) learn_last_rank();
}

void Agreement::pass_on_handshakes(Call& call, bool with_payload) {
  compose_handshake(call, with_payload);
  const int nodes = topology_.num_nodes();
  auto& gathered = buffers_->gathered;
  for (int distance = 1; distance < nodes; distance *= 2) {
    const int count = std::min(distance, nodes - distance);
    const int from = (topology_.node + nodes - distance) % nodes;
    const int to = (topology_.node + distance) % nodes;
    const std::size_t room = static_cast<std::size_t>(count) * most_bytes_;
    if (gathered.size() < room) gathered.resize(room);
    mail_.receive(from, kHandshakeTag, std::span(gathered).first(room));
    buffers_->passed_on.clear();
    auto& own = buffers_->incoming[topology_.node];
    Handshake handshake = Handshake::read(own);
    handshake.last_rank = agreed_.last_rank;
    handshake.write(own);
    for (int i = 0; i < count; ++i) {
      const auto& known = buffers_->incoming[(topology_.node + nodes - i) % nodes];
      buffers_->passed_on.insert(buffers_->passed_on.end(), known.begin(), known.end());
    }
    mail_.send(to, kHandshakeTag, buffers_->passed_on);
    const bool waited = mail_.wait_for_handshakes();
    std::span<const std::byte> rest(gathered);
    for (int i = 0; i < count; ++i) {
      const int node = (from + nodes - i) % nodes;
      const std::size_t length = Handshake::read(rest).length();
      buffers_->incoming[node].assign(rest.begin(), rest.begin() + length);
      rest = rest.subspan(length);
    }
    if (waited) learn_last_rank();
  }
}

void Agreement::learn_last_rank() {
  agreed_.last_rank = Handshake::read(buffers_->incoming[mail_.last_node()]).last_rank;
}

void Agreement::look_at_all(const Call& call) {
  agreed_.stop_requested = false;
  agreed_.all_alike = true;
  agreed_.last_time = call.announcement().longest_time();
  for (const auto& message : buffers_->incoming) {
    const Handshake handshake = Handshake::read(message);
    agreed_.stop_requested = agreed_.stop_requested || handshake.stop_requested != 0;
    agreed_.last_time = longest_of(agreed_.last_time, handshake.last_time);
    agreed_.all_alike = agreed_.all_alike && handshake.agrees != 0 &&
                        handshake.sequence == call.sequence() &&
                        handshake.signature == call.signature();
  }
}

void Agreement::combine(Call& call) {
  const Range all{0, call.layout().total()};
  if (has_single_sources(call.layout())) return pick_copies(call);
  if (plan_.is_tree_of_nodes() && sums_at_once(call.layout())) return sum_all(call);
  buffers_->partials.resize(plan_.num_partials() * all.size());
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    std::memcpy(buffers_->partials.data() + all.size() * plan_.first_of(node),
                buffers_->incoming[node].data() + Handshake::kValuesBegin,
                all.size() * plan_.count_of(node));
  }
  combine_partials(call.workers(), call.layout(), call.operation().reduce, all, plan_,
                   buffers_->partials.data());
  agreed_.sum = buffers_->partials.data();
}

/// Sums one partial sum of each node, in one step, from where they have arrived.
void Agreement::sum_all(Call& call) {
  const FusedLayout& layout = call.layout();
  for (const auto& handshake : buffers_->incoming) {
    agreed_.operands.push_back(handshake.data() + Handshake::kValuesBegin);
  }
  if (leaves_last_sum(call)) return;
  buffers_->partials.resize(layout.total());
  std::byte* const sum = buffers_->partials.data();
  std::vector<const std::byte*> values(agreed_.operands.size());
  layout.for_each_segment([&](const FusedLayout::Part& part) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = agreed_.operands[i] + part.position;
    std::byte* const to = sum + part.position;
    const DType wire = layout.wire(part.segment);
    call.workers().reduce({combining(call.operation().reduce), wire, wire}, values,
                          std::span(&to, 1), part.count, WritePolicy::cached);
  });
  agreed_.operands.clear();
  agreed_.sum = sum;
  if (call.operation().reduce == ReduceOp::avg) {
    divide_by_ranks(layout, {0, layout.total()}, plan_, sum);
  }
}

/// Copies every segment from the handshake of its source's node.
void Agreement::pick_copies(const Call& call) {
  buffers_->partials.resize(call.layout().total());
  call.layout().for_each_segment([&](const FusedLayout::Part& part) {
    const auto& handshake = buffers_->incoming[topology_.node_of(call.segment(part).source)];
    const std::size_t bytes = part.count * size_of(call.layout().wire(part.segment));
    std::memcpy(buffers_->partials.data() + part.position,
                handshake.data() + Handshake::kValuesBegin + part.position, bytes);
  });
  agreed_.sum = buffers_->partials.data();
}

}  // namespace tutti::collectives
