// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulated/wires.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/lanes/exchange.hpp"

namespace tutti::simulated {

namespace {

constexpr int kTagsPerGroup = 128;

}  // namespace

/// The transport of one rank, for the job or for a group of some ranks.
class SimulatedTransport final : public collectives::Transport {
 public:
  SimulatedTransport(Wires& wires, int rank, std::vector<int> members = {}, int number = 0)
      : wires_(wires),
        rank_(rank),
        members_(std::move(members)),
        first_tag_(number * kTagsPerGroup) {}

  ~SimulatedTransport() override { wires_.forget(rank_, first_tag_); }
  SimulatedTransport(const SimulatedTransport&) = delete;
  SimulatedTransport& operator=(const SimulatedTransport&) = delete;

  [[nodiscard]] std::unique_ptr<Transport> for_group(const std::vector<int>& members, int number,
                                                     int /*num_nodes*/) const override {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(in_job(member));
    return std::make_unique<SimulatedTransport>(wires_, rank_, std::move(ranks), number);
  }
  Request send(int to_rank, int tag, std::span<const std::byte> bytes) override {
    return wires_.send(rank_, in_job(to_rank), first_tag_ + tag, bytes);
  }
  Request receive(int from_rank, int tag, std::span<std::byte> bytes) override {
    return wires_.receive(rank_, in_job(from_rank), first_tag_ + tag, bytes);
  }
  bool done(Request request) override { return wires_.done(rank_, request); }
  void progress() override {}
  void notify(int to_rank, const collectives::Notice& notice) noexcept override {
    wires_.notify(rank_, in_job(to_rank), first_tag_, notice);
  }
  std::optional<collectives::Notice> poll_notice() override {
    return wires_.poll_notice(rank_, first_tag_);
  }

 private:
  [[nodiscard]] int in_job(int rank) const {
    return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)];
  }

  Wires& wires_;
  int rank_;  ///< rank in the job
  std::vector<int> members_;
  int first_tag_;
};

Wires::Wires(Simulation& simulation)
    : simulation_(simulation),
      latency_(in_picoseconds(simulation.network().latency)),
      overhead_(in_picoseconds(simulation.network().overhead)),
      receive_overhead_(in_picoseconds(simulation.network().receive_overhead)),
      gap_(in_picoseconds(simulation.network().gap)),
      ends_(static_cast<std::size_t>(simulation.size())),
      outgoing_(simulation.node_sizes().size(), {0, simulation.network().burst_bytes}),
      incoming_(outgoing_),
      cut_(ends_.size()),
      messages_of_node_(outgoing_.size()),
      messages_to_node_(outgoing_.size()),
      bytes_of_node_(outgoing_.size()),
      bytes_to_node_(outgoing_.size()),
      notices_of_node_(outgoing_.size()) {}

std::unique_ptr<collectives::Transport> Wires::transport_of(int rank) {
  return std::make_unique<SimulatedTransport>(*this, rank);
}

void Wires::cut(const std::vector<int>& ranks) {
  for (const int rank : ranks) cut_[static_cast<std::size_t>(rank)] = true;
}

Traffic Wires::traffic() const {
  const auto most = [](const std::vector<std::uint64_t>& counts) {
    return *std::max_element(counts.begin(), counts.end());
  };
  const auto sum = [](const std::vector<std::uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  };
  const auto with_headers = [this](std::uint64_t bytes, std::uint64_t messages) {
    return bytes + static_cast<std::uint64_t>(simulation_.network().header_bytes *
                                              static_cast<double>(messages));
  };
  std::uint64_t of_link = 0;
  for (std::size_t node = 0; node < outgoing_.size(); ++node) {
    of_link = std::max({of_link, with_headers(bytes_of_node_[node], messages_of_node_[node]),
                        with_headers(bytes_to_node_[node], messages_to_node_[node])});
  }
  return {.messages = sum(messages_of_node_),
          .bytes = sum(bytes_of_node_),
          .most_of_node = most(messages_of_node_),
          .most_bytes_of_node = most(bytes_of_node_),
          .most_bytes_of_link = of_link,
          .notices = sum(notices_of_node_),
          .most_notices_of_node = most(notices_of_node_)};
}

void Wires::reset_traffic() {
  for (auto* counts : {&messages_of_node_, &messages_to_node_, &bytes_of_node_, &bytes_to_node_,
                       &notices_of_node_}) {
    std::fill(counts->begin(), counts->end(), 0);
  }
}

Wires::Request Wires::End::request(std::span<std::byte> bytes) {
  if (free.empty()) {
    free.push_back(static_cast<Request>(requests.size()));
    requests.emplace_back();
  }
  const Request fresh = free.back();
  free.pop_back();
  requests[static_cast<std::size_t>(fresh)] = {.bytes = bytes};
  return fresh;
}

/// True if the contents of messages matter: those of handshakes describe a call; others are data.
bool Wires::needs_contents(int tag) const {
  const int kind = tag % kTagsPerGroup;
  return simulation_.has_data() ||
         (kind != collectives::kPartialTag && kind != collectives::kResultTag &&
          kind != collectives::kPieceTag);
}

Wires::Request Wires::send(int from, int to, int tag, std::span<const std::byte> bytes) {
  simulation_.spend(overhead_, Spent::overhead);
  End& end = ends_[static_cast<std::size_t>(from)];
  const auto message = std::make_shared<Message>();
  message->from = from;
  message->to = to;
  message->tag = tag;
  message->size = bytes.size();
  message->sent = end.request({});
  if (needs_contents(tag)) message->bytes.assign(bytes.begin(), bytes.end());
  if (same_node(from, to)) {
    complete(from, message->sent);
    // written by the sender, read by the receiver
    simulation_.pace(from).work(2 * bytes.size());
    const Time there = simulation_.now() + in_picoseconds(simulation_.network().signal);
    message->hop =
        simulation_.add_hop({simulation_.last_hop(), Spent::signal, to, simulation_.now(), there});
    simulation_.at_time(there, [this, message] { come(message); });
    return message->sent;
  }
  const auto node = static_cast<std::size_t>(simulation_.node_of(from));
  ++messages_of_node_[node];
  bytes_of_node_[node] += bytes.size();
  ++messages_to_node_[static_cast<std::size_t>(simulation_.node_of(to))];
  bytes_to_node_[static_cast<std::size_t>(simulation_.node_of(to))] += bytes.size();
  message->hop = simulation_.last_hop();
  if (bytes.size() <= simulation_.network().eager_bytes) {
    move(message);
  } else {
    message->asked = true;
    const Time there = simulation_.now() + latency_;
    message->hop =
        simulation_.add_hop({message->hop, Spent::question, to, simulation_.now(), there});
    simulation_.at_time(there, [this, message] { come(message); });
  }
  return message->sent;
}

/// Passes bytes through a port. The burst that a port allows grows at its rate while it rests, up
/// to the limit.
Wires::Passage Wires::pass(Port& port, std::size_t bytes, Time last) {
  const Network& network = simulation_.network();
  const double on_wire = static_cast<double>(bytes) + network.header_bytes;
  const auto grown = [&](Time since, Time until) {
    return network.port_rate * static_cast<double>(until - since) / static_cast<double>(kSecond);
  };
  const Time begin = std::max(port.free_at, simulation_.now());
  const double at_once = std::min(network.burst_bytes, port.burst + grown(port.free_at, begin));
  const double rest = std::max(on_wire - at_once, 0.0);
  const Time end = std::max(begin + gap_ + in_picoseconds(rest / network.port_rate), last);
  port.free_at = end;
  port.burst = std::clamp(at_once + grown(begin, end) - on_wire, 0.0, network.burst_bytes);
  return {begin, end};
}

/// Sends a message through the port of the sender's host. Its first byte reaches the other port one
/// latency after it left, so both ports work on the message at the same time.
void Wires::move(const MessagePointer& message) {
  const Time now = simulation_.now();
  const Passage passage = pass(
      outgoing_[static_cast<std::size_t>(simulation_.node_of(message->from))], message->size, now);
  message->hop = simulation_.add_hop({message->hop, Spent::port, message->to, now, passage.begin});
  const std::int64_t gone =
      simulation_.add_hop({message->hop, Spent::wire, message->to, passage.begin, passage.end});
  simulation_.at_time(passage.end,
                      [this, message, gone] { complete(message->from, message->sent, gone); });
  const Time last = passage.end + latency_;
  if (simulation_.network().incoming_limited) {
    const Time first = passage.begin + latency_;
    message->hop =
        simulation_.add_hop({message->hop, Spent::latency, message->to, passage.begin, first});
    simulation_.at_time(first, [this, message, last] { enter(message, last); });
  } else {
    message->hop = simulation_.add_hop({gone, Spent::latency, message->to, passage.end, last});
    simulation_.at_time(last, [this, message] { come(message); });
  }
}

void Wires::enter(const MessagePointer& message, Time last) {
  const Time now = simulation_.now();
  const Passage passage = pass(
      incoming_[static_cast<std::size_t>(simulation_.node_of(message->to))], message->size, last);
  message->hop = simulation_.add_hop({message->hop, Spent::port, message->to, now, passage.begin});
  message->hop =
      simulation_.add_hop({message->hop, Spent::wire, message->to, passage.begin, passage.end});
  simulation_.at_time(passage.end, [this, message] { come(message); });
}

/// The message has arrived, or the question whether it is awaited.
void Wires::come(const MessagePointer& message) {
  if (cut_[static_cast<std::size_t>(message->from)] ||
      cut_[static_cast<std::size_t>(message->to)]) {
    return;
  }
  if (message->received >= 0) return hand_over(message);
  End& end = ends_[static_cast<std::size_t>(message->to)];
  const auto awaited = end.awaited.find({message->from, message->tag});
  if (awaited == end.awaited.end()) {
    end.unexpected[{message->from, message->tag}].push_back(message);
    return;
  }
  message->received = awaited->second.front();
  awaited->second.pop_front();
  if (awaited->second.empty()) end.awaited.erase(awaited);
  match(message);
}

/// A message has met its receive: if it was asked for, it leaves its sender now.
void Wires::match(const MessagePointer& message) {
  if (!std::exchange(message->asked, false)) return hand_over(message);
  const Time there = simulation_.now() + latency_;
  message->hop =
      simulation_.add_hop({message->hop, Spent::question, message->from, simulation_.now(), there});
  simulation_.at_time(there, [this, message] { move(message); });
}

void Wires::hand_over(const MessagePointer& message) {
  End& end = ends_[static_cast<std::size_t>(message->to)];
  const Pending& receive = end.requests[static_cast<std::size_t>(message->received)];
  const std::span<std::byte> room = receive.bytes;
  if (receive.forgotten) return;
  if (message->size > room.size()) {
    throw Error(ErrorCode::communication, "a message is longer than its receive buffer");
  }
  std::copy(message->bytes.begin(), message->bytes.end(), room.begin());
  complete(message->to, message->received, message->hop);
}

void Wires::complete(int rank, Request request, std::int64_t hop) {
  ends_[static_cast<std::size_t>(rank)].requests[static_cast<std::size_t>(request)].done = true;
  simulation_.poke(rank, hop);
}

Wires::Request Wires::receive(int rank, int from, int tag, std::span<std::byte> bytes) {
  End& end = ends_[static_cast<std::size_t>(rank)];
  const Request request = end.request(bytes);
  end.requests[static_cast<std::size_t>(request)].costs = true;
  end.requests[static_cast<std::size_t>(request)].group = tag / kTagsPerGroup * kTagsPerGroup;
  const auto there = end.unexpected.find({from, tag});
  if (there == end.unexpected.end()) {
    end.awaited[{from, tag}].push_back(request);
    return request;
  }
  const MessagePointer message = std::move(there->second.front());
  there->second.pop_front();
  if (there->second.empty()) end.unexpected.erase(there);
  message->received = request;
  if (message->asked) message->hop = simulation_.last_hop();  // the answer waited for this rank
  match(message);
  return request;
}

bool Wires::done(int rank, Request request) {
  End& end = ends_[static_cast<std::size_t>(rank)];
  Pending& pending = end.requests[static_cast<std::size_t>(request)];
  if (!pending.done) {
    simulation_.looked();
    return false;
  }
  const bool costs = pending.costs;
  end.free.push_back(request);
  if (costs) simulation_.spend(receive_overhead_, Spent::overhead);
  return true;
}

void Wires::notify(int from, int to, int group, const collectives::Notice& notice) {
  ++notices_of_node_[static_cast<std::size_t>(simulation_.node_of(from))];
  if (cut_[static_cast<std::size_t>(from)] || cut_[static_cast<std::size_t>(to)]) return;
  simulation_.at_time(simulation_.now() + latency_, [this, to, group, notice] {
    ends_[static_cast<std::size_t>(to)].notices[group].push_back(notice);
    simulation_.poke(to);
  });
}

/// Forgets the receives of a group, for which messages may be missing after a failure.
void Wires::forget(int rank, int group) {
  for (Pending& pending : ends_[static_cast<std::size_t>(rank)].requests) {
    if (pending.group == group) pending.forgotten = true;
  }
}

std::optional<collectives::Notice> Wires::poll_notice(int rank, int group) {
  auto& groups = ends_[static_cast<std::size_t>(rank)].notices;
  const auto found = groups.find(group);
  if (found == groups.end()) return std::nullopt;
  const collectives::Notice notice = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) groups.erase(found);
  return notice;
}

}  // namespace tutti::simulated
