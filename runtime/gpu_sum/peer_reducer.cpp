// SPDX-License-Identifier: Apache-2.0
// Each rank has memory on its GPU, of two halves, which the others' GPUs read:
//
//   rank 0   values --copy--> half 0 --event--+      +--> kernel: tree(half 0 of all ranks) -> sum
//   rank 1   values --copy--> half 0 --event--+ meet +--> kernel: tree(half 0 of all ranks) -> sum
//                                             host     stream waits for all events
//
// A chunk is what fits into a half; the next one takes the other half. `meet` is a barrier of the
// hosts, after which all ranks have recorded their events; then each stream waits for the events of
// all others, and the hosts wait for no GPU between the chunks.
//
// What fits into both halves together, a window then, needs no sum of its own: the kernel that has
// a use for it, an update by an optimizer, reads the windows of all ranks.
//
//   rank 0   values --sum of them--> window --event--+ meet +--> kernel: update by tree(windows)
//
// No kernel waits. Processes that share a GPU take turns on it: one whose kernel polls for what
// another process has yet to do may keep that from running, for as long as a turn or, where turns
// end with a kernel only, for ever. An event is waited for by the stream before the kernel begins,
// which is right on one GPU and on several; and what a kernel that polls would need against a peer
// that is gone (a bound, a word to abort by) there is no need for: the host waits for the end of
// the stream, with the engine's ear for failures and its deadline. It does so in each push: a
// stream that waits for a GPU that hangs cannot be ended, as NCCL's can, and to free memory at a
// store's end would wait with it, beyond any deadline.
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

/// Events of a rank: those of the halves are the first.
enum : std::size_t { kWindowWritten = kHalves, kNumEvents };

/// The names of a rank's memory and events, which it tells the others.
struct Names {
  PeerName memory;
  std::array<PeerName, kNumEvents> events;
};

/// A rank's memory and events, as this process sees them.
struct Peer {
  std::byte* memory = nullptr;
  std::array<Event, kNumEvents> events{};
};

class PeerReducer final : public Reducer {
 public:
  PeerReducer(Group& group, std::shared_ptr<Gpus> gpus, int device)
      : group_(group),
        gpus_(std::move(gpus)),
        accelerator_(gpus_->accelerator()),
        access_(required_access()),
        device_(device),
        ended_({&accelerator_, accelerator_.create_event(device)}),
        peers_(static_cast<std::size_t>(group.topology().size)) {
    own().memory = accelerator_.allocate(device_, kBytes);
    if (own().memory == nullptr) {
      throw Error(ErrorCode::out_of_memory, "no memory for " + std::to_string(kBytes) +
                                                " bytes on " + to_string(gpu(device_)) +
                                                ", which the other ranks' GPUs read sums from");
    }
    for (Event& event : own().events) event = access_.create_event(device_);
  }

  /// The own memory and events stay until the process ends: nobody says when the last of the other
  /// ranks' kernels has read them.
  ~PeerReducer() override {
    if (has_ended()) close();
  }
  PeerReducer(const PeerReducer&) = delete;
  PeerReducer& operator=(const PeerReducer&) = delete;

  /// Local, after the constructor.
  [[nodiscard]] Names names() {
    Names names{access_.name_of_memory(device_, own().memory), {}};
    for (std::size_t i = 0; i < kNumEvents; ++i) {
      names.events[i] = access_.name_of_event(device_, own().events[i]);
    }
    return names;
  }

  /// Local, with what all ranks have told.
  void open(const std::vector<Names>& all) {
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      Peer& peer = peers_[rank];
      if (&peer == &own()) continue;
      peer.memory = access_.open_memory(device_, all[rank].memory);
      for (std::size_t i = 0; i < kNumEvents; ++i) {
        peer.events[i] = access_.open_event(device_, all[rank].events[i]);
      }
    }
    for (const Peer& peer : peers_) windows_.push_back(peer.memory);
  }

  /// Writes what other ranks read in try_view(), and returns when it is there. Local.
  void write_nonce(const Names& own_names) {
    const std::uint64_t nonce = nonce_of(own_names);
    std::uint64_t there = 0;
    copy_nonce(own().memory, gpu(device_), &nonce, cpu());
    copy_nonce(&there, cpu(), own().memory, gpu(device_));
  }

  /// Reads the others' memory by a kernel when all have written it: that CUDA has opened it does
  /// not say that the machine lets one GPU at another's memory. Local. Errors: communication.
  void try_view(const std::vector<Names>& all) {
    std::byte* const seen = own().memory + kHalfBytes;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      const std::byte* const theirs = peers_[rank].memory;
      gpus_->kernels(device_).tree_sum(gpus_->stream(device_), {&theirs, 1}, seen, DType::int64, 1);
      std::uint64_t found = 0;
      copy_nonce(&found, cpu(), seen, gpu(device_));
      if (found == nonce_of(all[rank])) continue;
      throw Error(ErrorCode::communication,
                  to_string(gpu(device_)) + " reads other bytes in the memory of " +
                      name_of(group_.topology(), static_cast<int>(rank)) +
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
  void release_memory() noexcept { accelerator_.release(device_, std::exchange(own().memory, {})); }

  void allreduce(std::span<const Sum> sums) override {
    carry_out([&] {
      for (const Sum& one : sums) sum(one);
      mark_end();
    });
  }

  [[nodiscard]] std::span<std::byte* const> windows() const override { return windows_; }
  [[nodiscard]] std::size_t window_bytes() const override { return kBytes; }
  void begin_reading() override {
    carry_out([&] {
      record(kWindowWritten);
      meet();
      wait_for_others(kWindowWritten);
      is_reading_ = true;
    });
  }

  /// The host stays until its own GPU has read the others' memory.
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
  /// Another one for each reducer, whose memory has a name of its own.
  static std::uint64_t nonce_of(const Names& names) {
    const auto& bytes = names.memory.bytes;
    return Digest()
        .add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
        .value();
  }
  void copy_nonce(void* to, Device to_device, const void* from, Device from_device) {
    gpus_->copy(static_cast<std::byte*>(to), to_device, static_cast<const std::byte*>(from),
                from_device, sizeof(std::uint64_t));
  }

  /// There is nothing to abort: no kernel waits, and a stream that waits for a peer's event goes on
  /// when that GPU does, or never.
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

  [[nodiscard]] Peer& own() { return peers_[static_cast<std::size_t>(group_.topology().rank)]; }

  void record(std::size_t event) {
    accelerator_.record(own().events[event], device_, gpus_->stream(device_));
  }
  /// In the stream's turn: for what they have recorded this event for last.
  void wait_for_others(std::size_t event) {
    for (Peer& peer : peers_) {
      if (&peer != &own()) accelerator_.wait(device_, gpus_->stream(device_), peer.events[event]);
    }
  }

  PeerAccess& required_access() {
    if (PeerAccess* const access = accelerator_.peer_access()) return *access;
    throw Error(ErrorCode::invalid_argument,
                "TUTTI_GPU_PATH=peers: " + accelerator_.describe() +
                    " has no memory that several processes can use; take auto, nccl or host");
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
    accelerator_.copy(device_, stream, own().memory + begin, chunk.from,
                      chunk.count * size_of(chunk.dtype));
    record(half);
    meet();
    wait_for_others(half);
    std::array<const std::byte*, kMostRanks> inputs{};
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      inputs[rank] = peers_[rank].memory + begin;
    }
    gpus_->kernels(device_).tree_sum(stream, std::span(inputs).first(peers_.size()), chunk.to,
                                     chunk.dtype, chunk.count);
  }

  /// All ranks have recorded their events.
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
  PeerAccess& access_;
  int device_;
  UniqueHandle<EventTraits> ended_;
  std::vector<Peer> peers_;          ///< all ranks, this one, too
  std::vector<std::byte*> windows_;  ///< of each rank
  std::size_t chunks_ = 0;
  bool is_reading_ = false;  ///< the windows
};

/// All ranks decide alike.
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

std::unique_ptr<Reducer> make_peer_reducer(Group& group, std::shared_ptr<Gpus> gpus, int device) {
  require_one_small_node(group.topology());
  std::unique_ptr<PeerReducer> reducer;
  Names own{};
  try {
    tutti::agree(group.engine(), [&] {
      reducer = std::make_unique<PeerReducer>(group, std::move(gpus), device);
      own = reducer->names();
    });
  } catch (const Error& error) {
    if (error.recoverable() && reducer != nullptr) reducer->release_memory();
    throw;
  }
  const std::vector<Names> all = allgather(group, own, "exchange of the names of GPUs' memory");
  try {
    tutti::agree(group.engine(), [&] {
      reducer->open(all);
      reducer->write_nonce(own);
    });
    tutti::agree(group.engine(), [&] { reducer->try_view(all); });
  } catch (const Error& error) {
    // Then all ranks come here, and none frees its memory before all have closed it.
    if (error.recoverable()) {
      reducer->close();
      tutti::agree(group.engine(), [] {});
      reducer->release_memory();
    }
    throw;
  }
  return reducer;
}

}  // namespace tutti::gpus
