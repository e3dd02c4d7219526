// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/messages.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "collectives/lanes/exchange.hpp"

namespace tutti::collectives {

namespace {

// Size of each of two slots: while one is emptied, the other is filled.
constexpr std::size_t kSlotBytes = std::size_t{64} << 10;
// Below this size, copying through slots takes less time than a call of the kernel.
constexpr std::size_t kLeastRead = std::size_t{16} << 10;
// Failures are noticed between reads of this size.
constexpr std::size_t kMostRead = std::size_t{1} << 20;
constexpr int kChunkBits = 32;
// Sizes for messages between nodes.
constexpr std::size_t kWithHeader = 8192;
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
constexpr std::size_t kPiecesInFlight = 4;

// Size up to which data travels in the line of the message's description.
constexpr std::size_t kInLine = 32;
// Size up to which data is copied, even from an arena, because that takes less time than waiting
// until it is read.
constexpr std::size_t kMostCopied = std::size_t{4} << 10;

}  // namespace

enum class Messages::Way : std::uint32_t { line, arena, process, slots };

/// The properties in which both sides of a message must agree.
struct Messages::Facts {
  std::uint64_t count = 0;
  std::uint32_t dtype = 0;
  std::uint32_t unused = 0;
  friend bool operator==(const Facts&, const Facts&) = default;
  static Facts of(const Message& message) {
    return {message.count, static_cast<std::uint32_t>(message.dtype)};
  }
};

/// The messages from one rank of the node to another, in the sender's arena. The sender writes the
/// first two lines of 64 bytes, the receiver the third. The number of a message is written last.
struct alignas(kLineBytes) Messages::Channel {
  std::atomic<std::uint64_t> posted{0};  ///< number of the message described here
  std::uint64_t count = 0;
  std::uint32_t dtype = 0;
  Way way = Way::line;
  std::uint64_t answers = 0;  ///< number of the last message received from that rank
  std::byte data[kInLine];
  std::uint64_t offset = 0;              ///< in the arena, of the message or of the slots
  std::uint64_t address = 0;             ///< of the message, in the sender's process
  std::atomic<std::uint64_t> filled{0};  ///< number << kChunkBits | chunks written into slots

  alignas(kLineBytes) std::atomic<std::uint64_t> taken{0};  ///< number of the last message received
  std::atomic<std::uint64_t> emptied{0};  ///< number << kChunkBits | chunks read from slots
  Facts wanted;                           ///< what the receiver expects in the last message
  MeetingWords meeting;

  [[nodiscard]] Facts sent() const { return {count, dtype}; }
  void describe(const Message& message, std::uint64_t answered) {
    count = message.count;
    dtype = static_cast<std::uint32_t>(message.dtype);
    answers = answered;
  }
};

struct Messages::Header {
  std::uint64_t number;
  Facts sent;
};

struct Messages::Verdict {
  std::uint64_t number;
  Facts wanted;
};

/// Buffers that do not move while messages refer to them, even after a failure.
struct Messages::Buffers {
  explicit Buffers(std::size_t local_ranks) : channels(local_ranks) {}

  std::vector<std::byte> header = std::vector<std::byte>(sizeof(Header) + kWithHeader);
  Verdict verdict{};
  std::array<std::vector<std::byte>, kPiecesInFlight> pieces;
  std::vector<Transport::Request> requests;  ///< awaited by the next wait
  std::vector<Channel*> channels;            ///< to this rank, by local rank; null if not known yet
};

Messages::Messages(const NodeMemory& memory, const Topology& topology, Waiter& waiter,
                   Workers& workers, const Tuning& tuning, Transport* transport,
                   AllocateShared allocate_shared)
    : memory_(memory),
      topology_(topology),
      waiter_(waiter),
      workers_(workers),
      tuning_(tuning),
      transport_(transport),
      allocate_shared_(std::move(allocate_shared)),
      sent_(static_cast<std::size_t>(topology.size), 0),
      received_(static_cast<std::size_t>(topology.size), 0),
      taken_(static_cast<std::size_t>(topology.size), 0),
      buffers_(std::make_shared<Buffers>(memory.peers.size())),
      meetings_(memory, topology, waiter, std::bind_front(&Messages::meeting_words, this)) {}

/// Leaks the buffers of messages that may still be under way after a failure.
Messages::~Messages() {
  if (!buffers_->requests.empty()) leak_until_exit(std::move(buffers_));
}

void Messages::prepare_to_send(int to_rank) {
  if (topology_.local_rank_of(to_rank) < 0 || channels_ != nullptr) return;
  const auto peers = static_cast<std::size_t>(memory_.size());
  slots_ = allocate_shared_(2 * kSlotBytes);
  std::byte* const place = allocate_shared_(peers * sizeof(Channel));
  for (std::size_t i = 0; i < peers; ++i) new (place + i * sizeof(Channel)) Channel;
  channels_ = reinterpret_cast<Channel*>(place);
  memory_.control().channels.store(memory_.offset_of(place), std::memory_order_release);
}

/// Returns the channel from a rank of the node to this one, or null if that rank has not sent
/// anything in its node yet. It is looked up only once, because the owner writes to the same line
/// in every message.
Messages::Channel* Messages::channel(int owner) const {
  Channel*& known = buffers_->channels[static_cast<std::size_t>(owner)];
  if (known != nullptr) return known;
  const Peer& peer = memory_.peers[static_cast<std::size_t>(owner)];
  const std::uint64_t offset = peer.control().channels.load(std::memory_order_acquire);
  if (offset == 0) return nullptr;
  return known = reinterpret_cast<Channel*>(peer.arena + offset) + memory_.local_rank;
}

MeetingWords* Messages::meeting_words(int owner, int to) const {
  if (owner == memory_.local_rank) return &channels_[to].meeting;
  Channel* const theirs = channel(owner);
  return theirs == nullptr ? nullptr : &theirs->meeting;
}

void Messages::send(int to_rank, const Message& message) {
  const int to = topology_.local_rank_of(to_rank);
  to >= 0 ? send_in_node(to, message) : send_between_nodes(to_rank, message);
}

void Messages::receive(int from_rank, const Message& message) {
  const int from = topology_.local_rank_of(from_rank);
  from >= 0 ? receive_in_node(from, message) : receive_between_nodes(from_rank, message);
}

std::string Messages::to_text(const Facts& facts) {
  return std::to_string(facts.count) + " elements of " + to_string(static_cast<DType>(facts.dtype));
}

void Messages::throw_mismatch(int from_rank, int to_rank, const Facts& sent,
                              const Facts& wanted) const {
  throw Error(ErrorCode::mismatch,
              name_of(topology_, from_rank) + " sent " + to_text(sent) + ", and " +
                  name_of(topology_, to_rank) + " receives " + to_text(wanted) +
                  "; both sides of a message have the same count and dtype; nothing was moved",
              ErrorScope::agreed, /*reporter=*/topology_.rank == to_rank);
}

// --- in the node --------------------------------------------------------------------------------

/// Sends a message in the node. Data that fits is copied and left behind: the next call waits until
/// it is received.
void Messages::send_in_node(int to, const Message& message) {
  Channel& mine = channels_[to];
  const int to_rank = topology_.local_ranks()[static_cast<std::size_t>(to)];
  const std::uint64_t number = ++sent_[static_cast<std::size_t>(to_rank)];
  mine.describe(message, taken_[static_cast<std::size_t>(to_rank)]);
  mine.way = way_of(message);
  mine.offset = memory_.offset_of(mine.way == Way::slots ? slots_ : message.bytes);
  mine.address = reinterpret_cast<std::uintptr_t>(message.bytes);
  if (mine.way == Way::line && message.count > 0) {
    std::memcpy(mine.data, message.bytes, message.size());
  }
  if (mine.way == Way::slots) {
    std::memcpy(slots_, message.bytes, std::min(kSlotBytes, message.size()));
    mine.filled.store(number << kChunkBits | 1, std::memory_order_relaxed);
    const bool uses_slots_again = message.size() > 2 * kSlotBytes;
    // The shift leaves only 32 bits of the number, so that an old value may look like a later one.
    if (uses_slots_again) mine.emptied.store(number << kChunkBits, std::memory_order_relaxed);
  }
  mine.posted.store(number, std::memory_order_release);
  waiter_.wake();
  left_ = {.to = to, .to_rank = to_rank, .number = number};
  if (mine.way == Way::line) return;
  if (mine.way == Way::slots && message.size() <= kSlotBytes) return;
  if (mine.way == Way::slots) fill_slots(mine, to, message);
  complete();
}

Messages::Way Messages::way_of(const Message& message) const {
  const bool is_mapped = memory_.is_mapped(memory_.offset_of(message.bytes));
  if (message.size() <= kInLine) return Way::line;
  if (message.size() <= kMostCopied) return Way::slots;
  if (is_mapped) return Way::arena;
  const bool can_read = memory_.reader != nullptr && message.size() >= kLeastRead;
  return can_read ? Way::process : Way::slots;
}

std::string Messages::describe_left() const {
  return "send of " + to_text(channels_[left_.to].sent()) + " to rank " +
         std::to_string(left_.to_rank);
}

void Messages::complete() {
  const Channel& mine = channels_[left_.to];
  const auto is_taken = [&] { return mine.taken.load(std::memory_order_acquire) == left_.number; };
  waiter_.until(is_taken,
                [&] { return is_taken() ? std::vector<int>() : std::vector<int>{left_.to_rank}; });
  const int to_rank = std::exchange(left_, {}).to_rank;
  if (mine.wanted != mine.sent()) {
    throw_mismatch(topology_.rank, to_rank, mine.sent(), mine.wanted);
  }
}

/// Waits a moment for the answer to a message: if messages go to and fro, each takes one line, and
/// an answer also acknowledges the previous message.
void Messages::await_answer(int from_rank) {
  if (!has_left() || left_.to_rank != from_rank) return;
  const std::uint64_t number = received_[static_cast<std::size_t>(from_rank)] + 1;
  const Channel* const theirs = channel(left_.to);
  if (theirs == nullptr) return;
  const auto is_there = [&] { return theirs->posted.load(std::memory_order_acquire) == number; };
  if (waiter_.soon(is_there) && theirs->answers == left_.number) left_ = {};
}

/// Copies the chunks after the first one. Returns early if the receiver refuses the message.
void Messages::fill_slots(Channel& mine, int to, const Message& message) {
  const int to_rank = topology_.local_ranks()[static_cast<std::size_t>(to)];
  const std::uint64_t number = mine.posted.load(std::memory_order_relaxed);
  std::uint64_t chunk = 1;
  const auto is_refused = [&] { return mine.taken.load(std::memory_order_acquire) == number; };
  const auto ready = [&] {
    // The previous chunk in this slot.
    const std::uint64_t before_last = (number << kChunkBits) + chunk - 1;
    return chunk < 2 || mine.emptied.load(std::memory_order_acquire) >= before_last || is_refused();
  };
  for (std::size_t done = kSlotBytes; done < message.size(); done += kSlotBytes, ++chunk) {
    waiter_.until(ready, [&] { return ready() ? std::vector<int>() : std::vector<int>{to_rank}; });
    if (is_refused()) return;
    std::memcpy(slots_ + (chunk % 2) * kSlotBytes, message.bytes + done,
                std::min(kSlotBytes, message.size() - done));
    mine.filled.store(number << kChunkBits | (chunk + 1), std::memory_order_release);
    waiter_.wake();
  }
}

void Messages::receive_in_node(int from, const Message& message) {
  const int from_rank = topology_.local_ranks()[static_cast<std::size_t>(from)];
  const std::uint64_t number = ++received_[static_cast<std::size_t>(from_rank)];
  Channel* theirs = channel(from);
  const auto ready = [&] {
    if (theirs == nullptr) theirs = channel(from);
    return theirs != nullptr && theirs->posted.load(std::memory_order_acquire) == number;
  };
  waiter_.until(ready, [&] { return ready() ? std::vector<int>() : std::vector<int>{from_rank}; });
  const Facts sent = theirs->sent();
  const Facts wanted = Facts::of(message);
  theirs->wanted = wanted;
  if (sent == wanted) {
    if (message.count > 0) take(*theirs, from, message);
    taken_[static_cast<std::size_t>(from_rank)] = number;
  }
  theirs->taken.store(number, std::memory_order_release);
  waiter_.wake();
  if (sent != wanted) throw_mismatch(from_rank, topology_.rank, sent, wanted);
}

void Messages::take(Channel& theirs, int from, const Message& message) {
  switch (theirs.way) {
    case Way::line:
      std::memcpy(message.bytes, theirs.data, message.size());
      return;
    case Way::arena:
    case Way::process:
      return read_memory(theirs, from, message);
    case Way::slots:
      return empty_slots(theirs, from, message);
  }
}

void Messages::empty_slots(Channel& theirs, int from, const Message& message) {
  const int from_rank = topology_.local_ranks()[static_cast<std::size_t>(from)];
  const std::uint64_t number = theirs.posted.load(std::memory_order_relaxed);
  const std::byte* const slots =
      memory_.peers[static_cast<std::size_t>(from)].arena + theirs.offset;
  std::uint64_t chunk = 0;
  const auto ready = [&] {
    return theirs.filled.load(std::memory_order_acquire) > (number << kChunkBits) + chunk;
  };
  for (std::size_t done = 0; done < message.size(); done += kSlotBytes, ++chunk) {
    waiter_.until(ready,
                  [&] { return ready() ? std::vector<int>() : std::vector<int>{from_rank}; });
    std::memcpy(message.bytes + done, slots + (chunk % 2) * kSlotBytes,
                std::min(kSlotBytes, message.size() - done));
    theirs.emptied.store((number << kChunkBits) + chunk + 1, std::memory_order_release);
    waiter_.wake();
  }
}

void Messages::read_memory(const Channel& theirs, int from, const Message& message) {
  if (theirs.way == Way::arena) {
    return copy(message.bytes, memory_.peers[static_cast<std::size_t>(from)].arena + theirs.offset,
                message);
  }
  for (std::size_t done = 0; done < message.size(); done += kMostRead) {
    waiter_.check_failure();
    const PeerReader::Piece piece{message.bytes + done, theirs.address + done,
                                  std::min(kMostRead, message.size() - done)};
    memory_.reader->read(from, std::span(&piece, 1));
  }
}

void Messages::copy(std::byte* to, const std::byte* from, const Message& message) {
  const WritePolicy stores = tuning_.output_writes(message.size(), 1);
  workers_.reduce({ReduceOp::sum, message.dtype, message.dtype}, std::span(&from, 1),
                  std::span(&to, 1), message.count, stores);
  if (stores == WritePolicy::streaming) streaming_fence();
}

// --- between nodes ------------------------------------------------------------------------------

void Messages::wait_for_messages(int rank) {
  auto& requests = buffers_->requests;
  const auto ready = [&] {
    std::erase_if(requests, [&](Transport::Request request) { return transport_->done(request); });
    return requests.empty();
  };
  waiter_.until_messages(ready,
                         [&] { return ready() ? std::vector<int>() : std::vector<int>{rank}; });
}

void Messages::send_between_nodes(int to_rank, const Message& message) {
  const Header header{++sent_[static_cast<std::size_t>(to_rank)], Facts::of(message)};
  auto& requests = buffers_->requests;
  const std::size_t first = std::min(kWithHeader, message.size());
  std::memcpy(buffers_->header.data(), &header, sizeof header);
  if (first > 0) std::memcpy(buffers_->header.data() + sizeof header, message.bytes, first);
  requests.push_back(transport_->receive(to_rank, kVerdictTag,
                                         std::as_writable_bytes(std::span(&buffers_->verdict, 1))));
  requests.push_back(transport_->send(to_rank, kMessageTag,
                                      std::span(buffers_->header).first(sizeof header + first)));
  wait_for_messages(to_rank);
  const Facts wanted = buffers_->verdict.wanted;
  if (wanted != header.sent) throw_mismatch(topology_.rank, to_rank, header.sent, wanted);
  for (std::size_t done = first; done < message.size();) {
    for (auto& piece : buffers_->pieces) {
      const std::size_t now = std::min(kPieceBytes, message.size() - done);
      if (now == 0) break;
      piece.assign(message.bytes + done, message.bytes + done + now);
      requests.push_back(transport_->send(to_rank, kPieceTag, piece));
      done += now;
    }
    wait_for_messages(to_rank);
  }
}

void Messages::receive_between_nodes(int from_rank, const Message& message) {
  auto& requests = buffers_->requests;
  const std::uint64_t number = ++received_[static_cast<std::size_t>(from_rank)];
  requests.push_back(transport_->receive(from_rank, kMessageTag, buffers_->header));
  wait_for_messages(from_rank);
  Header header;
  std::memcpy(&header, buffers_->header.data(), sizeof header);
  const Facts wanted = Facts::of(message);
  buffers_->verdict = {number, wanted};
  requests.push_back(
      transport_->send(from_rank, kVerdictTag, std::as_bytes(std::span(&buffers_->verdict, 1))));
  if (header.sent != wanted) {
    wait_for_messages(from_rank);
    throw_mismatch(from_rank, topology_.rank, header.sent, wanted);
  }
  waiter_.let_sender_leave();
  const std::size_t first = std::min(kWithHeader, message.size());
  if (first > 0) std::memcpy(message.bytes, buffers_->header.data() + sizeof header, first);
  for (std::size_t done = first; done < message.size();) {
    const std::size_t begin = done;
    for (auto& piece : buffers_->pieces) {
      const std::size_t now = std::min(kPieceBytes, message.size() - done);
      if (now == 0) break;
      piece.resize(now);
      requests.push_back(transport_->receive(from_rank, kPieceTag, piece));
      done += now;
    }
    wait_for_messages(from_rank);
    std::size_t place = begin;
    for (const auto& piece : buffers_->pieces) {
      if (place == done) break;
      std::memcpy(message.bytes + place, piece.data(), piece.size());
      place += piece.size();
    }
  }
  wait_for_messages(from_rank);
}

}  // namespace tutti::collectives
