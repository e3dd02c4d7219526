// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/threads.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <unistd.h>

#include "tutti/error.hpp"

#include "collectives/wait/transport.hpp"
#include "runtime/job/kernel_reader.hpp"
#include "runtime/job/processors.hpp"
#include "runtime/job/settings.hpp"
#include "runtime/job/tuning_file.hpp"

namespace tutti {

namespace {

constexpr int kNoticeTag = -1;
constexpr int kTagsPerGroup = 128;

/// Holds the messages of all ranks until they are received.
class Mailboxes {
 public:
  struct Message {
    int from;
    int tag;
    std::vector<std::byte> bytes;
  };

  Mailboxes(int num_ranks, MessageFilter filter)
      : boxes_(static_cast<std::size_t>(num_ranks)), filter_(std::move(filter)) {}

  void post(int to_rank, Message message);
  /// Takes the oldest message with this sender and tag.
  std::optional<Message> take(int rank, int from_rank, int tag);
  /// Takes the oldest message with this tag from any sender.
  std::optional<Message> take_any(int rank, int tag);

 private:
  struct Box {
    std::mutex mutex;
    std::deque<Message> messages;
  };
  template <class Match>
  std::optional<Message> take_first(int rank, Match match);

  std::deque<Box> boxes_;
  MessageFilter filter_;
};

/// A Transport between threads of one process. As with MPI, memory in which a message is awaited
/// must not be sent: send() throws.
class MailboxTransport final : public collectives::Transport {
 public:
  /// `members`: the members of a group by their ranks in the job; empty for the whole job.
  MailboxTransport(std::shared_ptr<Mailboxes> mailboxes, int rank, std::vector<int> members = {},
                   int number = 0)
      : mailboxes_(std::move(mailboxes)),
        rank_(rank),
        members_(std::move(members)),
        first_tag_(number * kTagsPerGroup) {}

  [[nodiscard]] std::unique_ptr<Transport> for_group(const std::vector<int>& members, int number,
                                                     int /*num_nodes*/) const override {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(in_job(member));
    return std::make_unique<MailboxTransport>(mailboxes_, rank_, std::move(ranks), number);
  }
  Request send(int to_rank, int tag, std::span<const std::byte> bytes) override;
  Request receive(int from_rank, int tag, std::span<std::byte> bytes) override;
  bool done(Request request) override;
  void progress() override {}
  void notify(int to_rank, const collectives::Notice& notice) noexcept override;
  std::optional<collectives::Notice> poll_notice() override;

 private:
  struct Pending {
    int from;
    int tag;
    std::span<std::byte> bytes;
  };
  /// Completes receives in the order in which they were posted.
  void match();
  [[nodiscard]] int in_job(int rank) const { return members_.empty() ? rank : members_[rank]; }

  std::shared_ptr<Mailboxes> mailboxes_;
  int rank_;  ///< rank in the job
  std::vector<int> members_;
  int first_tag_;
  Request next_request_ = 0;
  std::map<Request, Pending> pending_;
};

void Mailboxes::post(int to_rank, Message message) {
  if (filter_ && !filter_(message.from, to_rank, message.tag)) return;
  Box& box = boxes_[static_cast<std::size_t>(to_rank)];
  const std::lock_guard lock(box.mutex);
  box.messages.push_back(std::move(message));
}

template <class Match>
std::optional<Mailboxes::Message> Mailboxes::take_first(int rank, Match match) {
  Box& box = boxes_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(box.mutex);
  const auto found = std::find_if(box.messages.begin(), box.messages.end(), match);
  if (found == box.messages.end()) return std::nullopt;
  Message message = std::move(*found);
  box.messages.erase(found);
  return message;
}

std::optional<Mailboxes::Message> Mailboxes::take(int rank, int from_rank, int tag) {
  return take_first(rank, [&](const Message& message) {
    return message.from == from_rank && message.tag == tag;
  });
}

std::optional<Mailboxes::Message> Mailboxes::take_any(int rank, int tag) {
  return take_first(rank, [&](const Message& message) { return message.tag == tag; });
}

collectives::Transport::Request MailboxTransport::send(int to_rank, int tag,
                                                       std::span<const std::byte> bytes) {
  for (const auto& [request, awaited] : pending_) {
    const std::byte* const begin = awaited.bytes.data();
    if (bytes.data() >= begin + awaited.bytes.size() || begin >= bytes.data() + bytes.size()) {
      continue;
    }
    throw Error(ErrorCode::communication, "a message is sent from memory that one is awaited in");
  }
  mailboxes_->post(in_job(to_rank), {rank_, first_tag_ + tag, {bytes.begin(), bytes.end()}});
  return next_request_++;
}

collectives::Transport::Request MailboxTransport::receive(int from_rank, int tag,
                                                          std::span<std::byte> bytes) {
  pending_[next_request_] = {in_job(from_rank), first_tag_ + tag, bytes};
  return next_request_++;
}

bool MailboxTransport::done(Request request) {
  match();
  return pending_.find(request) == pending_.end();
}

void MailboxTransport::match() {
  std::vector<std::pair<int, int>> empty;  // senders and tags without a message at present
  for (auto it = pending_.begin(); it != pending_.end();) {
    const Pending& wanted = it->second;
    const std::pair source(wanted.from, wanted.tag);
    const bool known_empty = std::find(empty.begin(), empty.end(), source) != empty.end();
    auto message = known_empty ? std::nullopt : mailboxes_->take(rank_, wanted.from, wanted.tag);
    if (!message) {
      empty.push_back(source);
      ++it;
      continue;
    }
    if (message->bytes.size() > wanted.bytes.size()) {
      throw Error(ErrorCode::communication, "a message is longer than its receive buffer");
    }
    std::copy(message->bytes.begin(), message->bytes.end(), wanted.bytes.begin());
    it = pending_.erase(it);
  }
}

void MailboxTransport::notify(int to_rank, const collectives::Notice& notice) noexcept {
  const auto bytes = std::as_bytes(std::span(&notice, 1)).first(notice.size());
  mailboxes_->post(in_job(to_rank), {rank_, first_tag_ + kNoticeTag, {bytes.begin(), bytes.end()}});
}

std::optional<collectives::Notice> MailboxTransport::poll_notice() {
  const auto message = mailboxes_->take_any(rank_, first_tag_ + kNoticeTag);
  if (!message) return std::nullopt;
  collectives::Notice notice;
  std::memcpy(&notice, message->bytes.data(), message->bytes.size());
  return notice;
}

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

/// Sets the sharing of cores among `processes` processes like this one, each with `ranks` ranks.
void share_cores(collectives::Topology& topology, int ranks, int processes) {
  const ProcessorSet hardware_threads = usable_hardware_threads();
  const double quota = processor_quota();
  topology.ranks_per_core = ranks_per_core(hardware_threads, quota / processes, ranks);
  topology.cores_per_rank = cores_per_rank(cores_of(hardware_threads), quota, ranks * processes);
}

/// Returns why this process cannot read its own memory through the kernel, or an empty text if it
/// can: containers may forbid the call, and emulators of other processors may lack it.
std::string why_unreadable() {
  const std::uint64_t nonce = 0x7475747469;
  const auto address = reinterpret_cast<std::uintptr_t>(&nonce);
  return read_probe(getpid(), {.address = address, .nonce = nonce});
}

std::unique_ptr<collectives::PeerReader> reader_of_threads(const collectives::Topology& topology) {
  const std::vector<pid_t> processes(topology.local_ranks().size(), getpid());
  return std::make_unique<KernelReader>(topology, processes);
}

}  // namespace

std::vector<std::shared_ptr<Group>> make_thread_groups(const std::vector<int>& node_sizes,
                                                       const Settings& settings,
                                                       MessageFilter filter,
                                                       std::size_t arena_bytes) {
  require_valid(settings);
  const int size = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
  const auto mailboxes = std::make_shared<Mailboxes>(size, std::move(filter));
  const auto names = std::make_shared<const collectives::OneHost>(host_name());
  const std::string unreadable = why_unreadable();
  std::vector<GroupParts> parts(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    GroupParts& own = parts[rank];
    own.topology = collectives::Topology::consecutive(rank, node_sizes);
    own.topology.names = names;
    share_cores(own.topology, size, launched_ranks());
    own.settings = settings;
    own.arena = std::make_shared<Arena>(Backing::process, arena_bytes);
    own.tuning = choose_tuning(own.topology, settings);
    own.known = read_known_paths(settings.tuning, own.topology.local_size());
    own.scratch = Scratch::first_of(own.arena);
    if (own.topology.num_nodes() > 1) {
      own.transport = std::make_unique<MailboxTransport>(mailboxes, rank);
    }
  }
  for (GroupParts& own : parts) {
    for (const int peer : own.topology.local_ranks()) {
      own.node.push_back(collectives::Peer::first_of(parts[peer].arena->data()));
      if (peer != own.topology.rank) own.peers.push_back(parts[peer].arena);
    }
    if (own.topology.local_size() == 1) continue;
    own.why_unreadable = unreadable;
    if (unreadable.empty()) own.reader = reader_of_threads(own.topology);
  }
  std::vector<std::shared_ptr<Group>> groups;
  for (GroupParts& own : parts) groups.push_back(std::make_shared<Group>(std::move(own)));
  return groups;
}

std::shared_ptr<Group> make_self_group(const Settings& settings) {
  return make_thread_groups({1}, settings, {}, Arena::default_reserve(settings.arena_bytes, 1))
      .front();
}

}  // namespace tutti
