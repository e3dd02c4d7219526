// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/exchange.hpp"
#include "collectives/leak.hpp"

namespace tutti::collectives {

namespace {

// Two slots of so much: while one is emptied, the other is filled.
constexpr std::size_t kSlotBytes = std::size_t{64} << 10;
// Below, a copy in and a copy out take less time than a call of the kernel.
constexpr std::size_t kLeastRead = std::size_t{16} << 10;
// A failure is heard of after so much.
constexpr std::size_t kMostRead = std::size_t{1} << 20;
constexpr int kChunkBits = 32;
// Between nodes.
constexpr std::size_t kWithHeader = 8192;
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
constexpr std::size_t kPiecesInFlight = 4;

// Travels in the line of its description.
constexpr std::size_t kInLine = 32;

enum class Place : std::uint64_t { line, arena, process, slots };

}  // namespace

/// What both sides of a message must have alike.
struct Messages::Facts {
  std::uint64_t count = 0;
  std::uint64_t dtype = 0;
  friend bool operator==(const Facts&, const Facts&) = default;
  static Facts of(const Message& message) {
    return {message.count, static_cast<std::uint64_t>(message.dtype)};
  }
};

/// Messages from one rank of the node to another, in the sender's arena. The sender writes the
/// first two lines of 64 bytes, the receiver the third. A message's number is written last.
struct alignas(kLineBytes) Messages::Channel {
  std::atomic<std::uint64_t> posted{0};  ///< number of the message that is described here
  Facts sent;
  Place place = Place::line;
  std::byte data[kInLine];
  std::uint64_t offset = 0;              ///< of the arena: of the message, or of the slots
  std::uint64_t address = 0;             ///< in the sender's process
  std::atomic<std::uint64_t> filled{0};  ///< number << kChunkBits | chunks that were put into slots

  alignas(kLineBytes) std::atomic<std::uint64_t> taken{0};  ///< number of the last message taken
  std::atomic<std::uint64_t> emptied{0};                    ///< as `filled`
  Facts wanted;                                             ///< of the last message
};

struct Messages::Header {
  std::uint64_t number;
  Facts sent;
};

struct Messages::Verdict {
  std::uint64_t number;
  Facts wanted;
};

/// They stay where they are while messages refer to them, also after a failure.
struct Messages::Buffers {
  std::vector<std::byte> header = std::vector<std::byte>(sizeof(Header) + kWithHeader);
  Verdict verdict{};
  std::array<std::vector<std::byte>, kPiecesInFlight> pieces;
  std::vector<Transport::Request> requests;  ///< that the next wait is for
};

Messages::Messages(const NodeMemory& memory, const Topology& topology, Waiter& waiter,
                   Workers& workers, const Tuning& tuning, Transport* transport,
                   Call::AllocateShared allocate_shared)
    : memory_(memory),
      topology_(topology),
      waiter_(waiter),
      workers_(workers),
      tuning_(tuning),
      transport_(transport),
      allocate_shared_(std::move(allocate_shared)),
      sent_(static_cast<std::size_t>(topology.size), 0),
      received_(static_cast<std::size_t>(topology.size), 0),
      buffers_(std::make_unique<Buffers>()) {}

/// After a failure messages may still be under way, so their buffers are never freed.
Messages::~Messages() {
  if (!buffers_->requests.empty()) {
    leak_until_exit(std::shared_ptr<const Buffers>(std::move(buffers_)));
  }
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

/// Null as long as the owner has sent nothing to its node.
Messages::Channel* Messages::channel(int owner, int receiver) const {
  const Peer& peer = memory_.peers[static_cast<std::size_t>(owner)];
  const std::uint64_t offset = peer.control().channels.load(std::memory_order_acquire);
  if (offset == 0) return nullptr;
  return reinterpret_cast<Channel*>(peer.arena + offset) + receiver;
}

void Messages::send(int to_rank, const Message& message) {
  const int to = topology_.local_rank_of(to_rank);
  to >= 0 ? send_in_node(to, message) : send_between_nodes(to_rank, message);
}

void Messages::receive(int from_rank, const Message& message) {
  const int from = topology_.local_rank_of(from_rank);
  from >= 0 ? receive_in_node(from, message) : receive_between_nodes(from_rank, message);
}

void Messages::throw_mismatch(int from_rank, int to_rank, const Facts& sent,
                              const Facts& wanted) const {
  const auto text = [](const Facts& facts) {
    return std::to_string(facts.count) + " elements of " +
           to_string(static_cast<DType>(facts.dtype));
  };
  throw Error(ErrorCode::mismatch,
              name_of(topology_, from_rank) + " sent " + text(sent) + ", and " +
                  name_of(topology_, to_rank) + " receives " + text(wanted) +
                  "; both sides of a message have the same count and dtype; nothing was moved",
              ErrorScope::agreed, /*reporter=*/topology_.rank == to_rank);
}

// --- in the node --------------------------------------------------------------------------------

void Messages::send_in_node(int to, const Message& message) {
  Channel& mine = channels_[to];
  const int to_rank = topology_.local_ranks()[static_cast<std::size_t>(to)];
  const std::uint64_t number = ++sent_[static_cast<std::size_t>(to_rank)];
  const std::uint64_t offset = memory_.offset_of(message.bytes);
  const bool can_read = memory_.reader != nullptr && message.size() >= kLeastRead;
  mine.sent = Facts::of(message);
  if (message.size() <= kInLine) {
    mine.place = Place::line;
    if (message.count > 0) std::memcpy(mine.data, message.bytes, message.size());
    return post(mine, number, to_rank);
  }
  mine.offset = offset;
  mine.address = reinterpret_cast<std::uintptr_t>(message.bytes);
  mine.place = memory_.is_mapped(offset) ? Place::arena : can_read ? Place::process : Place::slots;
  if (mine.place == Place::slots) {
    mine.offset = memory_.offset_of(slots_);
    std::memcpy(slots_, message.bytes, std::min(kSlotBytes, message.size()));
    mine.filled.store(number << kChunkBits | 1, std::memory_order_relaxed);
  }
  if (mine.place != Place::slots) return post(mine, number, to_rank);
  mine.posted.store(number, std::memory_order_release);
  waiter_.wake();
  fill_slots(mine, to, message);
  wait_until_taken(mine, number, to_rank);
}

void Messages::post(Channel& mine, std::uint64_t number, int to_rank) {
  mine.posted.store(number, std::memory_order_release);
  waiter_.wake();
  wait_until_taken(mine, number, to_rank);
}

void Messages::wait_until_taken(const Channel& mine, std::uint64_t number, int to_rank) {
  waiter_.until([&] { return mine.taken.load(std::memory_order_acquire) == number; },
                [&] {
                  const bool taken = mine.taken.load(std::memory_order_acquire) == number;
                  return taken ? std::vector<int>() : std::vector<int>{to_rank};
                });
  if (mine.wanted != mine.sent) throw_mismatch(topology_.rank, to_rank, mine.sent, mine.wanted);
}

/// What is left after the first chunk. Ends early if the receiver refuses the message.
void Messages::fill_slots(Channel& mine, int to, const Message& message) {
  const int to_rank = topology_.local_ranks()[static_cast<std::size_t>(to)];
  const std::uint64_t number = mine.posted.load(std::memory_order_relaxed);
  std::uint64_t chunk = 1;
  const auto is_refused = [&] { return mine.taken.load(std::memory_order_acquire) == number; };
  const auto ready = [&] {
    const std::uint64_t before_last = (number << kChunkBits) + chunk - 1;  // had this slot
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
  Channel* theirs = channel(from, memory_.local_rank);
  const auto ready = [&] {
    if (theirs == nullptr) theirs = channel(from, memory_.local_rank);
    return theirs != nullptr && theirs->posted.load(std::memory_order_acquire) == number;
  };
  waiter_.until(ready, [&] { return ready() ? std::vector<int>() : std::vector<int>{from_rank}; });
  const Facts sent = theirs->sent;
  const Facts wanted = Facts::of(message);
  theirs->wanted = wanted;
  if (sent == wanted && message.count > 0) {
    take(*theirs, from, message);
  }
  theirs->taken.store(number, std::memory_order_release);
  waiter_.wake();
  if (sent != wanted) throw_mismatch(from_rank, topology_.rank, sent, wanted);
}

void Messages::take(Channel& theirs, int from, const Message& message) {
  switch (theirs.place) {
    case Place::line:
      std::memcpy(message.bytes, theirs.data, message.size());
      return;
    case Place::arena:
    case Place::process:
      return read_place(theirs, from, message);
    case Place::slots:
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

void Messages::read_place(const Channel& theirs, int from, const Message& message) {
  if (theirs.place == Place::arena) {
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
