// SPDX-License-Identifier: Apache-2.0
// The sum over ranks of values on GPUs: in the node between the GPUs, between nodes by the hosts.
//
//   chunk i     device  --reduce_scatter--> own share  --copy--> buffer            stream, down
//   chunk i-lag buffer  --engine: the same local rank of all nodes--> buffer       host
//               buffer  --copy--> own share  --allgather--> device                 up, stream
//
//   stream   RS0 RS1 RS2 AG0 RS3 AG1 ...        the same order on all ranks, whatever the timing
//   down         D0  D1  D2      D3
//   host                  H0      H1
//   up                        U0      U1
//
// Without a NodeLibrary a chunk's share is all of it, and the engine sums over all ranks: then the
// order of summation is that of values on the cpu. With one node and a NodeLibrary there is nothing
// to stage: see node_reducer.hpp.
//
// Cost, of n bytes on N nodes of P ranks: in the node 2 n (P-1)/P bytes per GPU in and out; n/P
// bytes per rank to the host and back, and 2 n/P (N-1)/N over the network. At any time kLag chunks
// are on their way to the host while one is between the nodes.
// Invariant: no wait is without the engine's ear for failures. Whatever is thrown, the failure is
// raised first, for ranks that wait in the host's memory, and then the node's collectives are
// aborted, so that no stream is left waiting for a rank that has given up. An abort waits for the
// device, which may hang: it has a thread of its own, and a second.
// Source  the hierarchical allreduce of Horovod (Sergeev, Del Balso, arXiv:1802.05799) has the
// stages, one after the other.
#include "runtime/gpu_sum/staged_reducer.hpp"

#include <algorithm>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"

namespace tutti::gpus {

StagedReducer::StagedReducer(Group& group, std::shared_ptr<Gpus> gpus, int device,
                             std::shared_ptr<NodeCollectives> node)
    : group_(group),
      gpus_(std::move(gpus)),
      accelerator_(gpus_->accelerator()),
      device_(device),
      node_(std::move(node)),
      patience_(patience_of(group, "sum between the GPUs of a node")),
      memory_(group.allocate({static_cast<std::int64_t>(kBuffers * kBufferBytes)}, DType::uint8)) {
  std::byte* host = memory_.bytes();
  is_pinned_ = accelerator_.pin(device_, host, memory_.size_bytes());
  if (!is_pinned_) host = apart_ = allocate_apart();
  down_ = accelerator_.create_stream(device_);
  up_ = accelerator_.create_stream(device_);
  begun_ = accelerator_.create_event(device_);
  ended_ = accelerator_.create_event(device_);
  for (std::size_t i = 0; i < kBuffers; ++i) {
    buffers_[i] = {host + i * kBufferBytes, accelerator_.create_event(device_),
                   accelerator_.create_event(device_), accelerator_.create_event(device_)};
  }
}

/// Memory of its own, where shared memory cannot be pinned: copies to memory that is not pinned
/// would wait for all work in the stream, and for ever if a peer is gone.
std::byte* StagedReducer::allocate_apart() {
  if (std::byte* memory = accelerator_.allocate_pinned(device_, memory_.size_bytes()))
    return memory;
  throw Error(ErrorCode::out_of_memory, "cannot pin " + std::to_string(memory_.size_bytes()) +
                                            " bytes of the host's memory for copies to and from " +
                                            to_string(gpu(device_)) +
                                            "; raise the limit of locked memory (ulimit -l)");
}

/// True if no work of this object is under way. The last copies may still run.
bool StagedReducer::has_ended() noexcept {
  try {
    if (group_.engine().failed()) return false;
    wait(accelerator_, ended_, group_.settings().timeout, "the last copies of a sum over ranks");
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// After a failure work may never end, and freeing memory that it uses would wait for it.
StagedReducer::~StagedReducer() {
  if (!has_ended()) {
    gpus_->kept(device_).forget(node_.get());
    collectives::leak_until_exit(std::make_shared<Tensor>(std::move(memory_)));
    return;
  }
  for (const StagingBuffer& buffer : buffers_) {
    for (const Event event : {buffer.reduced, buffer.arrived, buffer.returned}) {
      accelerator_.destroy_event(event);
    }
  }
  accelerator_.destroy_event(begun_);
  accelerator_.destroy_event(ended_);
  accelerator_.destroy_stream(device_, down_);
  accelerator_.destroy_stream(device_, up_);
  if (is_pinned_) accelerator_.unpin(memory_.bytes());
  if (apart_ != nullptr) accelerator_.release_pinned(apart_);
}

std::string StagedReducer::describe() const {
  if (node_ == nullptr) return "by way of the host";
  return accelerator_.node_library().describe() + " in the node, the host between";
}

void StagedReducer::allreduce(std::span<const Sum> sums) {
  carry_out([&] {
    SumTurn turn;  // for a group's first sum; later calls have begun a turn before
    if (node_ != nullptr) turn.begin(*gpus_, device_);
    pipeline(sums);
  });
}

/// The host waits until the GPUs are through: if one fails, other nodes have to be told, which only
/// a thread in the engine may do.
void StagedReducer::finish() {
  if (node_ == nullptr) return;
  carry_out([&] { await(ended_); });
}

void StagedReducer::await() {
  carry_out([&] { await(ended_); });
}

void StagedReducer::check() { group_.check_usable(); }

/// Explains a wait between GPUs: a rank whose own GPU does not end may be waiting for another
/// one's.
std::string StagedReducer::wait_between() const {
  if (node_ == nullptr) return {};
  std::string ranks;
  for (const int rank : group_.topology().local_ranks()) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return ", in which the GPUs of ranks " + ranks + " wait for each other";
}

void StagedReducer::await(Event event) {
  const auto ready = [&] {
    if (node_ != nullptr) {
      if (const auto failure = failure_of(group_, *node_)) {
        throw Error(ErrorCode::communication, *failure);
      }
    }
    return accelerator_.done(event);
  };
  const auto what = [&] {
    return "sum of " + to_string(gpu(device_)) + " over the ranks" + wait_between();
  };
  group_.engine().await(ready, what);
}

/// Cuts sums into chunks. A sum's last chunk may be smaller; sums are padded, so that every rank
/// has a share of equal size of each (see kGrain).
std::vector<StagedReducer::Chunk> StagedReducer::cut(std::span<const Sum> sums) const {
  const auto& topology = group_.topology();
  const std::size_t shares = node_ == nullptr ? 1 : static_cast<std::size_t>(topology.local_size());
  const std::size_t own = node_ == nullptr ? 0 : static_cast<std::size_t>(topology.local_rank);
  std::vector<Chunk> chunks;
  for (const Sum& sum : sums) {
    const std::size_t width = size_of(sum.dtype);
    const std::size_t most = kBufferBytes / width * shares;
    for (std::size_t first = 0; first < sum.count; first += most) {
      const std::size_t count = std::min(most, sum.count - first) / shares;
      std::byte* data = sum.to + first * width;
      chunks.push_back({data, data + own * count * width, count, sum.dtype});
    }
  }
  return chunks;
}

void StagedReducer::pipeline(std::span<const Sum> sums) {
  const std::vector<Chunk> chunks = cut(sums);
  accelerator_.record(begun_, device_, gpus_->stream(device_));
  accelerator_.wait(device_, down_, begun_);
  accelerator_.wait(device_, up_, begun_);
  for (std::size_t i = 0; i < chunks.size() + kLag; ++i) {
    if (i < chunks.size()) send_off(chunks[i], buffers_[i % kBuffers]);
    if (i < kLag) continue;
    StagingBuffer& buffer = buffers_[(i - kLag) % kBuffers];
    exchange(chunks[i - kLag], buffer);
    bring_back(chunks[i - kLag], buffer);
  }
  accelerator_.record(ended_, device_, gpus_->stream(device_));
}

/// Sends a chunk to the host. The buffer is free once its last chunk is back on the device, which
/// `returned` tells; so does an event that was never recorded.
void StagedReducer::send_off(const Chunk& chunk, StagingBuffer& buffer) {
  const Stream stream = gpus_->stream(device_);
  if (node_ != nullptr) {
    node_->reduce_scatter(stream, chunk.data, chunk.count, chunk.dtype, patience_);
    accelerator_.record(buffer.reduced, device_, stream);
    accelerator_.wait(device_, down_, buffer.reduced);
  }
  accelerator_.wait(device_, down_, buffer.returned);
  accelerator_.copy(device_, down_, buffer.host, chunk.share, chunk.count * size_of(chunk.dtype));
  accelerator_.record(buffer.arrived, device_, down_);
}

void StagedReducer::exchange(const Chunk& chunk, StagingBuffer& buffer) {
  await(buffer.arrived);
  const collectives::Segment segment{buffer.host, buffer.host, chunk.count, chunk.dtype};
  const auto describe = [&] {
    return "sum of " + std::to_string(chunk.count) + " " + to_string(chunk.dtype) +
           " of GPUs over the ranks";
  };
  group_.engine().run({.kind = collectives::Kind::allreduce,
                       .segments = {&segment, 1},
                       .describe = describe,
                       .lanes_apart = node_ != nullptr,
                       .verb = collectives::Verb::sum_of_gpus});
}

void StagedReducer::bring_back(const Chunk& chunk, StagingBuffer& buffer) {
  const Stream stream = gpus_->stream(device_);
  accelerator_.copy(device_, up_, chunk.share, buffer.host, chunk.count * size_of(chunk.dtype));
  accelerator_.record(buffer.returned, device_, up_);
  accelerator_.wait(device_, stream, buffer.returned);
  if (node_ == nullptr) return;
  node_->allgather(stream, chunk.data, chunk.count, chunk.dtype, patience_);
}

}  // namespace tutti::gpus
