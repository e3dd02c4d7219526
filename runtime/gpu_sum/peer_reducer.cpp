// SPDX-License-Identifier: Apache-2.0
// Each rank has memory on its GPU, of two halves, which the others' GPUs read:
//
//   rank 0   values --copy--> half 0 --event--+      +--> kernel: tree(half 0 of all ranks) -> sum
//   rank 1   values --copy--> half 0 --event--+ meet +--> kernel: tree(half 0 of all ranks) -> sum
//                                             host     stream waits for all events
//
// A chunk is as much as fits into a half; the next one takes the other half. `meet` is a barrier of
// the hosts, after which all ranks have recorded their events; then each stream waits for the
// events of all others, and the hosts wait for no GPU between the chunks.
//
// A sum that fits into both halves together, a window then, is not made by a kernel of its own: the
// kernel that uses it, an update by an optimizer, reads the windows of all ranks.
//
//   rank 0   values --sum of them--> window --event--+ meet +--> kernel: update by tree(windows)
//
// No kernel waits. Processes that share a GPU take turns on it: a kernel that polls for another
// process's work may keep that from running, for as long as a turn or, where turns end with a
// kernel only, for ever. An event is waited for by the stream before the kernel begins, which is
// right on one GPU and on several. Nor is a guard against a peer that is gone needed in the kernel
// (a bound, a word to abort by): the host waits for the end of the stream, with the engine's ear
// for failures and its deadline. It does so in each push: a stream that waits for a GPU that hangs
// cannot be ended, as NCCL's can, and freeing memory at a store's end would wait with it, beyond
// any deadline.
//
// Bits: those of a node's sum on the cpu, for any chunk: see tree_sum_body.hpp.
// Cost, of n bytes on P ranks: each GPU writes and reads its own n bytes once more, reads n (P-1)
// bytes of others and writes n; of the host, 4 + P calls of CUDA and a barrier a chunk. NCCL moves
// 2 n (P-1)/P bytes instead, which is less from 3 ranks on, but takes more for its start. By
// windows each GPU reads n (P-1) bytes of others and nothing is copied or written besides: P + 1
// calls of CUDA and a barrier. A norm reads the windows once more: those of the gradients, where
// they are clipped or scaled, and those of an optimizer that takes them.
//
// Invariants: a rank writes into a half again only behind its kernel of the chunk between, in its
// stream, and so behind the others' events of that chunk, which lie behind their kernels that have
// read the half. It writes into its window, and into a half after a call with windows, when all
// ranks have agreed on the call, and so have seen the end of the kernels that read the memory for
// the call before. A stream waits only for what has been recorded before, so two stores whose calls
// two ranks order differently do not wait for each other.
#include "runtime/gpu_sum/peer_reducer.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/gpu_sum/allgather.hpp"
#include "runtime/job/agree.hpp"

namespace tutti::gpus {

namespace {

constexpr std::size_t kHalves = 2;
/// A chunk costs the hosts about 15 us, in which an H200 sums 8 MiB of two ranks.
constexpr std::size_t kHalfBytes = std::size_t{8} << 20;
constexpr std::size_t kBytes = kHalves * kHalfBytes;
constexpr std::size_t kMostRanks = TensorRow::kMostInputs;

/// Events of a rank, of which the first are those of its halves.
enum : std::size_t { kWindowWritten = kHalves, kNumEvents };

/// The names of a rank's memory and events, as it tells them to the others.
struct Names {
  PeerName memory;
  std::array<PeerName, kNumEvents> events;
};

/// A rank's memory and events, as this process sees them.
struct Peer {
  std::byte* memory = nullptr;
  std::array<Event, kNumEvents> events{};
};

/// A rank's memory and events that the others have open, and theirs. Memory and events of this rank
/// stay until the process ends, or for the next group of the same ranks: no rank learns when the
/// last kernel of the others has read them.
class PeerMemory {
 public:
  PeerMemory(Gpus& gpus, int device, int rank, int size)
      : accelerator_(gpus.accelerator()),
        access_(required_access(accelerator_)),
        device_(device),
        rank_(static_cast<std::size_t>(rank)),
        peers_(static_cast<std::size_t>(size)) {
    own().memory = accelerator_.allocate(device_, kBytes);
    if (own().memory == nullptr) {
      throw Error(ErrorCode::out_of_memory, "no memory for " + std::to_string(kBytes) +
                                                " bytes on " + to_string(gpu(device_)) +
                                                ", which the other ranks' GPUs read sums from");
    }
    for (Event& event : own().events) event = access_.create_event(device_);
  }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// The names of this rank's memory and events. Local, after the constructor.
  [[nodiscard]] Names names() {
    Names names{access_.name_of_memory(device_, own().memory), {}};
    for (std::size_t i = 0; i < kNumEvents; ++i) {
      names.events[i] = access_.name_of_event(device_, own().events[i]);
    }
    return names;
  }

  /// Opens the memory and events of all other ranks. Local, with the names that all ranks have
  /// told.
  void open(const std::vector<Names>& all) {
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      Peer& peer = peers_[rank];
      if (rank == rank_) continue;
      peer.memory = access_.open_memory(device_, all[rank].memory);
      for (std::size_t i = 0; i < kNumEvents; ++i) {
        peer.events[i] = access_.open_event(device_, all[rank].events[i]);
      }
    }
    for (const Peer& peer : peers_) windows_.push_back(peer.memory);
  }

  /// Writes the number that other ranks read in try_view(), and returns when it is there. Local.
  void write_nonce(Gpus& gpus, const Names& own_names) {
    const std::uint64_t nonce = nonce_of(own_names);
    std::uint64_t there = 0;
    copy_nonce(gpus, own().memory, gpu(device_), &nonce, cpu());
    copy_nonce(gpus, &there, cpu(), own().memory, gpu(device_));
  }

  /// Reads the others' memory by a kernel, when all have written it. That CUDA has opened memory
  /// does not prove that the machine lets one GPU at another's memory. Local. Errors:
  /// communication.
  void try_view(Gpus& gpus, const collectives::Topology& topology, const std::vector<Names>& all) {
    std::byte* const seen = own().memory + kHalfBytes;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      const std::byte* const theirs = peers_[rank].memory;
      gpus.kernels(device_).tree_sum(gpus.stream(device_), {&theirs, 1}, seen, DType::int64, 1);
      std::uint64_t found = 0;
      copy_nonce(gpus, &found, cpu(), seen, gpu(device_));
      if (found == nonce_of(all[rank])) continue;
      throw Error(ErrorCode::communication,
                  to_string(gpu(device_)) + " reads other bytes in the memory of " +
                      name_of(topology, static_cast<int>(rank)) +
                      "'s GPU than were written there, although CUDA has opened it; PCIe access "
                      "control (ACS) or an IOMMU between the GPUs does that: switch it off for "
                      "them, or take TUTTI_GPU_PATH=nccl or host");
    }
  }

  /// Closes the other ranks' memory and events; they close this one's by themselves. Local, when no
  /// kernel of this rank reads it any more.
  void close() noexcept {
    for (Peer& peer : peers_) {
      if (&peer == &own()) continue;
      for (Event& event : peer.events) {
        if (Event const opened = std::exchange(event, nullptr)) access_.close_event(opened);
      }
      if (std::byte* const opened = std::exchange(peer.memory, nullptr)) {
        access_.close_memory(opened);
      }
    }
  }
  /// Frees this rank's memory, which no other rank has open. Local.
  void release() noexcept { accelerator_.release(device_, std::exchange(own().memory, {})); }

  [[nodiscard]] Peer& own() { return peers_[rank_]; }
  /// The memory and events of all ranks, this one included.
  [[nodiscard]] std::span<const Peer> peers() const { return peers_; }
  [[nodiscard]] std::span<std::byte* const> windows() const { return windows_; }

 private:
  static PeerAccess& required_access(Accelerator& accelerator) {
    if (PeerAccess* const access = accelerator.peer_access()) return *access;
    throw Error(ErrorCode::invalid_argument,
                "TUTTI_GPU_PATH=peers: " + accelerator.describe() +
                    " has no memory that several processes can use; take auto, nccl or host");
  }

  /// A number that differs from rank to rank, since the name of memory does.
  static std::uint64_t nonce_of(const Names& names) {
    const auto& bytes = names.memory.bytes;
    return Digest()
        .add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
        .value();
  }
  static void copy_nonce(Gpus& gpus, void* to, Device to_device, const void* from,
                         Device from_device) {
    gpus.copy(static_cast<std::byte*>(to), to_device, static_cast<const std::byte*>(from),
              from_device, sizeof(std::uint64_t));
  }

  Accelerator& accelerator_;
  PeerAccess& access_;
  int device_;
  std::size_t rank_;
  std::vector<Peer> peers_;          ///< all ranks, this one included
  std::vector<std::byte*> windows_;  ///< each rank's window
};

class PeerReducer final : public Reducer {
 public:
  PeerReducer(Group& group, std::shared_ptr<Gpus> gpus, int device,
              std::shared_ptr<PeerMemory> memory)
      : group_(group),
        gpus_(std::move(gpus)),
        accelerator_(gpus_->accelerator()),
        device_(device),
        ended_({&accelerator_, accelerator_.create_event(device)}),
        memory_(std::move(memory)) {}

  /// Forgets memory that a kernel may still read, so that no other group gets it.
  ~PeerReducer() override {
    if (!has_ended()) gpus_->kept(device_).forget(memory_.get());
  }
  PeerReducer(const PeerReducer&) = delete;
  PeerReducer& operator=(const PeerReducer&) = delete;

  void allreduce(std::span<const Sum> sums) override {
    carry_out([&] {
      for (const Sum& one : sums) sum(one);
      mark_end();
    });
  }

  [[nodiscard]] std::span<std::byte* const> windows() const override { return memory_->windows(); }
  [[nodiscard]] std::size_t window_bytes() const override { return kBytes; }
  void begin_reading() override {
    carry_out([&] {
      record(kWindowWritten);
      meet();
      wait_for_others(kWindowWritten);
      is_reading_ = true;
    });
  }

  /// The host waits until its own GPU has read the others' memory.
  void finish() override {
    carry_out([&] {
      if (!std::exchange(is_reading_, false)) return;
      mark_end();
    });
    await();
  }
  void await() override {
    carry_out([&] {
      group_.engine().await([&] { return accelerator_.done(ended_.get().event); },
                            [&] { return what(); });
    });
  }
  void check() override { group_.check_usable(); }

  [[nodiscard]] std::string describe() const override {
    return "by kernels that read the GPUs of all ranks";
  }

 private:
  /// Runs a step of a call. There is nothing to abort: no kernel waits, and a stream that waits for
  /// a peer's event goes on when that GPU does, or never.
  template <class Body>
  void carry_out(Body body) {
    gpus::carry_out(group_, body, [] {});
  }

  void mark_end() { accelerator_.record(ended_.get().event, device_, gpus_->stream(device_)); }
  [[nodiscard]] bool has_ended() noexcept {
    try {
      return !group_.engine().failed() && accelerator_.done(ended_.get().event);
    } catch (const Error&) {
      return false;
    }
  }

  void record(std::size_t event) {
    accelerator_.record(memory_->own().events[event], device_, gpus_->stream(device_));
  }
  /// Makes the stream wait for the last recording of this event by each other rank.
  void wait_for_others(std::size_t event) {
    for (const Peer& peer : memory_->peers()) {
      if (&peer == &memory_->own()) continue;
      accelerator_.wait(device_, gpus_->stream(device_), peer.events[event]);
    }
  }

  [[nodiscard]] std::string what() const {
    return "sum of " + to_string(gpu(device_)) +
           " over the ranks, whose GPUs read each other's memory";
  }

  void sum(const Sum& whole) {
    const std::size_t width = size_of(whole.dtype);
    const std::size_t most = kHalfBytes / width;
    for (std::size_t first = 0; first < whole.count; first += most) {
      sum_chunk({whole.from + first * width, whole.to + first * width,
                 std::min(most, whole.count - first), whole.dtype});
    }
  }

  void sum_chunk(const Sum& chunk) {
    const Stream stream = gpus_->stream(device_);
    const std::size_t half = chunks_++ % kHalves;
    const std::size_t begin = half * kHalfBytes;
    accelerator_.copy(device_, stream, memory_->own().memory + begin, chunk.from,
                      chunk.count * size_of(chunk.dtype));
    record(half);
    meet();
    wait_for_others(half);
    std::array<const std::byte*, kMostRanks> inputs{};
    const std::span<const Peer> peers = memory_->peers();
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      inputs[rank] = peers[rank].memory + begin;
    }
    gpus_->kernels(device_).tree_sum(stream, std::span(inputs).first(peers.size()), chunk.to,
                                     chunk.dtype, chunk.count);
  }

  /// Returns when all ranks have recorded their events.
  void meet() {
    const auto describe = [&] { return what(); };
    group_.engine().run({.kind = collectives::Kind::barrier,
                         .segments = {},
                         .describe = describe,
                         .verb = collectives::Verb::sum_of_gpus});
  }

  Group& group_;
  std::shared_ptr<Gpus> gpus_;
  Accelerator& accelerator_;
  int device_;
  UniqueHandle<EventTraits> ended_;
  std::shared_ptr<PeerMemory> memory_;
  std::size_t chunks_ = 0;
  bool is_reading_ = false;  ///< kernels may be reading the windows
};

/// The name of this rank's memory. It has the rank, because threads that are ranks share their
/// process's GPUs.
std::string name_of_memory(const collectives::Topology& topology) {
  return "peers of rank " + std::to_string(topology.job_rank());
}

std::vector<int> job_ranks_of(const collectives::Topology& topology) {
  return job_ranks(topology, topology.local_ranks().list());
}

/// Throws unless the job is one node of few ranks; then on all ranks alike.
void require_one_small_node(const collectives::Topology& topology) {
  const std::string why = peer_obstacle(topology);
  if (why.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "TUTTI_GPU_PATH=peers sums between the GPUs of " + why + "; take auto, nccl or host",
              ErrorScope::agreed, topology.rank == 0);
}

}  // namespace

std::string peer_obstacle(const collectives::Topology& topology) {
  if (topology.num_nodes() > 1) {
    return "the ranks of one node, and this job has " + std::to_string(topology.num_nodes());
  }
  if (topology.nodes.front().size() > kMostRanks) {
    return "up to " + std::to_string(kMostRanks) + " ranks, and this job has " +
           std::to_string(topology.size);
  }
  return {};
}

namespace {

/// Makes this rank's memory and opens that of the others. Collective. Errors, on all ranks alike:
/// out_of_memory, communication; no memory stays open then.
std::shared_ptr<PeerMemory> open_peer_memory(Group& group, Gpus& gpus, int device) {
  const auto& topology = group.topology();
  std::shared_ptr<PeerMemory> memory;
  Names own{};
  try {
    tutti::agree(group.engine(), [&] {
      memory = std::make_shared<PeerMemory>(gpus, device, topology.rank, topology.size);
      own = memory->names();
    });
  } catch (const Error& error) {
    if (error.recoverable() && memory != nullptr) memory->release();
    throw;
  }
  const std::vector<Names> all = allgather(group, own, "exchange of the names of GPUs' memory");
  try {
    tutti::agree(group.engine(), [&] {
      memory->open(all);
      memory->write_nonce(gpus, own);
    });
    tutti::agree(group.engine(), [&] { memory->try_view(gpus, topology, all); });
  } catch (const Error& error) {
    // Then all ranks come here, and none frees its memory before all have closed it.
    if (error.recoverable()) {
      memory->close();
      tutti::agree(group.engine(), [] {});
      memory->release();
    }
    throw;
  }
  Digest digest;
  for (const Names& names : all) {
    const auto& bytes = names.memory.bytes;
    digest.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  gpus.kept(device).add({name_of_memory(topology), job_ranks_of(topology), digest.value(), memory});
  return memory;
}

/// Memory that an earlier group of these ranks has opened and uses no more, on all of them; or else
/// new memory. Idle memory is offered when this rank's kernels have read it for the last time, so
/// when all have offered it none is read. Collective.
std::shared_ptr<PeerMemory> peer_memory_for(Group& group, Gpus& gpus, int device) {
  const auto& topology = group.topology();
  const auto idle = gpus.kept(device).find(name_of_memory(topology), job_ranks_of(topology),
                                           [](const auto& made) { return made.use_count() == 1; });
  const std::uint64_t own = idle ? idle->id : 0;
  const auto ids = allgather(group, own, "exchange of what GPUs' memory is open");
  const bool is_kept = std::ranges::all_of(ids, [&](std::uint64_t id) { return id == ids[0]; });
  if (ids[0] != 0 && is_kept) return std::static_pointer_cast<PeerMemory>(idle->made);
  return open_peer_memory(group, gpus, device);
}

}  // namespace

std::unique_ptr<Reducer> make_peer_reducer(Group& group, std::shared_ptr<Gpus> gpus, int device) {
  require_one_small_node(group.topology());
  auto memory = peer_memory_for(group, *gpus, device);
  std::unique_ptr<Reducer> reducer;
  tutti::agree(group.engine(), [&] {
    reducer = std::make_unique<PeerReducer>(group, std::move(gpus), device, std::move(memory));
  });
  return reducer;
}

}  // namespace tutti::gpus
