// SPDX-License-Identifier: Apache-2.0
#include "collectives/agreement.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "collectives/leak.hpp"

namespace tutti::collectives {

namespace {

/// Messages that are there so soon were on their way before this node greeted: it came last itself.
constexpr auto kTogether = std::chrono::microseconds(30);

}  // namespace

/// If a message has several handshakes, the sender's own says whom the sender saw coming last.
struct Agreement::Handshake {
  std::uint64_t sequence;
  Signature signature;
  std::uint32_t agrees;          ///< 1 if the ranks of the node agree among themselves
  std::uint32_t stop_requested;  ///< 1 if one of them was asked to stop
  std::uint64_t partial_bytes;
  std::int64_t last_rank;  ///< to announce the call, among those that its sender knows of
};

struct Agreement::Buffers {
  std::vector<std::vector<std::byte>> incoming;  ///< one per node; this node's own is what it sends
  std::vector<std::byte> passed_on;              ///< several handshakes in one message
  std::vector<std::byte> arrived;                ///< the same, received
  std::vector<std::byte> partials;               ///< all nodes', in plan order
  std::vector<Transport::Request> sends;
  std::vector<Transport::Request> receives;  ///< one per node
};

Agreement::Agreement(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
                     Transport& transport, Handshakes handshakes)
    : topology_(topology),
      plan_(plan),
      waiter_(waiter),
      transport_(transport),
      handshakes_(handshakes),
      buffers_(std::make_unique<Buffers>()) {
  for (int node = 0; node < topology.num_nodes(); ++node) {
    partials_of_.push_back(plan.of_node(node));
    most_bytes_ =
        std::max(most_bytes_, sizeof(Handshake) + partials_of_.back().size() * kInlineBytes);
  }
  buffers_->incoming.resize(topology.num_nodes());
  buffers_->receives.assign(topology.num_nodes(), Transport::kDone);
}

/// After a failure messages may still be under way: their buffers are left to them.
Agreement::~Agreement() {
  const auto pending = [](int request) { return request != Transport::kDone; };
  if (std::any_of(buffers_->receives.begin(), buffers_->receives.end(), pending) ||
      !buffers_->sends.empty()) {
    leak_until_exit(std::shared_ptr<const Buffers>(std::move(buffers_)));
  }
}

bool Agreement::reach(Call& call, bool with_payload) {
  if (handshakes_ == Handshakes::direct) {
    receive_from_all(kHandshakeTag, most_bytes_);
    compose_handshake(call, with_payload);
    send_to_all(kHandshakeTag, buffers_->incoming[topology_.node]);
    if (wait_for_handshakes()) learn_last_rank();
  } else {
    compose_handshake(call, with_payload);
    pass_on_handshakes();
  }
  if (!handshakes_agree(call)) return false;
  if (with_payload) combine(call);
  return true;
}

void Agreement::compose_handshake(Call& call, bool with_payload) {
  const bool payload = with_payload && call.node_agrees();
  const std::size_t bytes = payload ? call.layout().total() : 0;
  const auto& partials = partials_of_[topology_.node];
  const Handshake handshake{call.sequence(),
                            call.signature(),
                            call.node_agrees() ? 1u : 0u,
                            call.stop_requested() ? 1u : 0u,
                            bytes,
                            call.last_rank()};
  last_rank_ = call.last_rank();
  auto& own = buffers_->incoming[topology_.node];
  own.resize(sizeof handshake + partials.size() * bytes);
  std::memcpy(own.data(), &handshake, sizeof handshake);
  std::byte* to = own.data() + sizeof handshake;
  for (std::size_t i = 0; i < partials.size() && payload; ++i) {
    const Partial& partial = plan_.partials[partials[i]];
    call.reduce_payloads_to_buffer(partial.first, partial.count, to + i * bytes);
  }
}

std::size_t Agreement::handshake_length(int node, std::span<const std::byte> bytes) const {
  Handshake handshake;
  std::memcpy(&handshake, bytes.data(), sizeof handshake);
  return sizeof handshake + partials_of_[node].size() * handshake.partial_bytes;
}

void Agreement::pass_on_handshakes() {
  const int nodes = topology_.num_nodes();
  auto& arrived = buffers_->arrived;
  for (int distance = 1; distance < nodes; distance *= 2) {
    const int count = std::min(distance, nodes - distance);
    const int from = (topology_.node + nodes - distance) % nodes;
    const int to = (topology_.node + distance) % nodes;
    arrived.resize(static_cast<std::size_t>(count) * most_bytes_);
    buffers_->receives[from] =
        transport_.receive(topology_.nodes[from].front(), kHandshakeTag, arrived);
    buffers_->passed_on.clear();
    tell_last_rank();
    for (int i = 0; i < count; ++i) {
      const auto& known = buffers_->incoming[(topology_.node + nodes - i) % nodes];
      buffers_->passed_on.insert(buffers_->passed_on.end(), known.begin(), known.end());
    }
    buffers_->sends.push_back(
        transport_.send(topology_.nodes[to].front(), kHandshakeTag, buffers_->passed_on));
    const bool waited = wait_for_handshakes();
    std::span<const std::byte> rest(arrived);
    for (int i = 0; i < count; ++i) {
      const int node = (from + nodes - i) % nodes;
      const std::size_t length = handshake_length(node, rest);
      buffers_->incoming[node].assign(rest.begin(), rest.begin() + length);
      rest = rest.subspan(length);
    }
    if (waited) learn_last_rank();
  }
}

/// True if another node came later than this one; last_node_ is the last of them.
bool Agreement::wait_for_handshakes() {
  const auto begin = std::chrono::steady_clock::now();
  last_node_ = -1;
  wait_for_messages();
  return last_node_ >= 0 && std::chrono::steady_clock::now() - begin > kTogether;
}

void Agreement::learn_last_rank() {
  Handshake handshake;
  std::memcpy(&handshake, buffers_->incoming[last_node_].data(), sizeof handshake);
  last_rank_ = static_cast<int>(handshake.last_rank);
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

bool Agreement::stop_requested() const {
  return std::any_of(buffers_->incoming.begin(), buffers_->incoming.end(), [](const auto& bytes) {
    Handshake handshake;
    std::memcpy(&handshake, bytes.data(), sizeof handshake);
    return handshake.stop_requested != 0;
  });
}

void Agreement::combine(const Call& call) {
  const Range all{0, call.layout().total()};
  if (has_single_sources(call.layout())) return pick_copies(call);
  buffers_->partials.resize(plan_.partials.size() * all.size());
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    const auto& partials = partials_of_[node];
    std::memcpy(buffers_->partials.data() + all.size() * partials.front(),
                buffers_->incoming[node].data() + sizeof(Handshake), all.size() * partials.size());
  }
  combine_partials(call.layout(), call.operation().reduce, all, plan_, buffers_->partials.data());
  result_ = buffers_->partials.data();
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
  std::size_t most = 0;
  for (const auto& ranks : topology_.nodes) most = std::max(most, ranks.size());
  receive_from_all(kStatementTag, most * sizeof(RankStatement));
  send_to_all(kStatementTag, std::as_bytes(std::span(of_this_node)));
  wait_for_messages();
  std::vector<RankStatement> all(topology_.size);
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    const auto& ranks = topology_.nodes[node];
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

void Agreement::receive_from_all(int tag, std::size_t room) {
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    if (node == topology_.node) continue;
    buffers_->incoming[node].resize(room);
    buffers_->receives[node] =
        transport_.receive(topology_.nodes[node].front(), tag, buffers_->incoming[node]);
  }
}

void Agreement::send_to_all(int tag, std::span<const std::byte> message) {
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    if (node == topology_.node) continue;
    buffers_->sends.push_back(transport_.send(topology_.nodes[node].front(), tag, message));
  }
}

void Agreement::wait_for_messages() {
  const auto ready = [&] {
    bool all = true;
    for (int node = 0; node < topology_.num_nodes(); ++node) {
      auto& request = buffers_->receives[node];
      if (request != Transport::kDone && transport_.done(request)) request = Transport::kDone;
      if (request == Transport::kDone) continue;
      all = false;
      last_node_ = node;
    }
    std::erase_if(buffers_->sends, [&](int request) { return transport_.done(request); });
    return all && buffers_->sends.empty();
  };
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int node = 0; node < topology_.num_nodes(); ++node) {
      if (buffers_->receives[node] != Transport::kDone) {
        ranks.push_back(topology_.nodes[node].front());
      }
    }
    return ranks;
  };
  waiter_.until_messages(ready, missing);
}

}  // namespace tutti::collectives
