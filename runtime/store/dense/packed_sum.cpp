// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/dense/packed_sum.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/store/core/gradient_compression.hpp"

namespace tutti {

using collectives::Codec;
using collectives::Segment;

void PackedSum::stage(const Job& job) {
  job_.emplace(job);
  cut();
  make_room();
  if (!job_->is_packed_elsewhere) pack();
  lay_out();
}

/// Cuts the packed bytes into packets of the size of a message, so that packets of different ranks
/// travel at the same time.
void PackedSum::cut() {
  parts_.clear();
  packets_.clear();
  const std::size_t packet_bytes = std::max<std::size_t>(group_.settings().piece_bytes, 64);
  for (std::size_t key = 0; key < job_->sums.size(); ++key) cut_key(key, packet_bytes);
}

void PackedSum::cut_key(std::size_t key, std::size_t packet_bytes) {
  const Codec& codec = job_->codec;
  const std::size_t count = job_->sums[key].count;
  const std::size_t step_bytes = codec.packed_bytes(Codec::kCut);
  for (std::size_t first = 0, now = 0; first < count; first += now) {
    const bool full = packets_.empty() || packet_bytes < packets_.back().bytes + step_bytes;
    if (full) {
      const std::size_t begin =
          packets_.empty() ? 0 : packets_.back().begin + packets_.back().bytes;
      packets_.push_back({parts_.size(), begin});
    }
    Packet& packet = packets_.back();
    const std::size_t room = (packet_bytes - packet.bytes) / step_bytes * Codec::kCut;
    now = codec.can_cut() ? std::min(count - first, room) : count;
    parts_.push_back({key, first, now, packet.bytes});
    packet.bytes += codec.packed_bytes(now);
  }
}

std::span<const PackedSum::Part> PackedSum::parts_of(std::size_t packet) const {
  const std::size_t first = packets_[packet].first_part;
  const std::size_t end =
      packet + 1 < packets_.size() ? packets_[packet + 1].first_part : parts_.size();
  return std::span(parts_).subspan(first, end - first);
}

const float* PackedSum::gradient_of(const Part& part) const {
  return reinterpret_cast<const float*>(job_->sums[part.key].input) + part.first;
}

float* PackedSum::residual_of(const Part& part) const {
  if (!job_->codec.has_residual()) return nullptr;
  return tutti::residual_of(*job_->entries[part.key]) + part.first;
}

void PackedSum::make_room() {
  const std::size_t bytes = packets_.empty() ? 0 : packets_.back().begin + packets_.back().bytes;
  if (!packed_ || packed_->size_bytes() < bytes) {
    packed_.reset();
    packed_ = group_.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8);
  }
}

void PackedSum::pack() {
  for (std::size_t packet = 0; packet < packets_.size(); ++packet) {
    for (const Part& part : parts_of(packet)) {
      if (!packs(part)) continue;
      job_->codec.pack(gradient_of(part), residual_of(part), part.count,
                       packed_->bytes() + packets_[packet].begin + part.offset);
    }
  }
}

void PackedSum::lay_out() {
  const int ranks = group_.topology().size;
  std::size_t largest = 0;
  for (const Packet& packet : packets_) largest = std::max(largest, packet.bytes);
  arrived_.resize(static_cast<std::size_t>(ranks));
  for (auto& bytes : arrived_) bytes.resize(std::max(bytes.size(), largest));
  tile_.resize(Codec::kTile);
  segments_.clear();
  for (const Packet& packet : packets_) {
    for (int rank = 0; rank < ranks; ++rank) {
      segments_.push_back({.input = packed_->bytes() + packet.begin,
                           .output = arrived_[static_cast<std::size_t>(rank)].data(),
                           .count = packet.bytes,
                           .dtype = DType::uint8,
                           .source = rank});
    }
  }
}

/// Takes a piece. Pieces of a packet come in order, and packets in order of ranks.
void PackedSum::consume(std::size_t segment, std::size_t first, std::size_t count,
                        const std::byte* packed) {
  const std::size_t ranks = arrived_.size();
  const std::size_t packet = segment / ranks;
  std::memcpy(arrived_[segment % ranks].data() + first, packed, count);
  const bool is_last = segment % ranks == ranks - 1 && first + count == packets_[packet].bytes;
  if (is_last) finish(packet);
}

void PackedSum::finish(std::size_t packet) {
  for (const Part& part : parts_of(packet)) {
    if (!sums_up(part)) continue;
    sources_.clear();
    for (const auto& bytes : arrived_) sources_.push_back(bytes.data() + part.offset);
    if (has_residuals()) {
      const auto self = static_cast<std::size_t>(group_.topology().rank);
      job_->codec.feed_back(gradient_of(part), residual_of(part), part.count, sources_[self]);
    }
    hand_on(part);
  }
}

/// True if this object keeps the residuals: whoever packs does.
bool PackedSum::has_residuals() const {
  return job_->codec.has_residual() && !job_->is_packed_elsewhere;
}

/// In a simulation, lets the time pass in which gradient and residual are read and packed.
bool PackedSum::packs(const Part& part) const {
  const std::size_t read = job_->codec.has_residual() ? 2 : 1;
  return group_.engine().workers().works(read * part.count * sizeof(float) +
                                         job_->codec.packed_bytes(part.count));
}

/// In a simulation, lets the time pass in which the residual is fed back, and the packed values of
/// all ranks are unpacked and summed.
bool PackedSum::sums_up(const Part& part) const {
  const std::size_t fed_back = has_residuals() ? 3 : 0;
  const std::size_t elements = fed_back + 2 * arrived_.size();
  return group_.engine().workers().works(elements * part.count * sizeof(float) +
                                         2 * arrived_.size() *
                                             job_->codec.packed_bytes(part.count));
}

void PackedSum::hand_on(const Part& part) {
  const Segment& target = job_->sums[part.key];
  for (std::size_t done = 0; done < part.count; done += Codec::kTile) {
    const std::size_t now = std::min(Codec::kTile, part.count - done);
    const std::size_t first = part.first + done;
    const std::size_t offset = first * sizeof(float);
    const bool keeps = job_->consumer == nullptr;
    float* sums = keeps ? reinterpret_cast<float*>(target.output + offset) : tile_.data();
    job_->codec.sum(sources_, {part.count, done, now}, workspace_, sums);
    const auto* bytes = reinterpret_cast<const std::byte*>(sums);
    if (!keeps) {
      job_->consumer->consume(part.key, first, now, bytes);
    } else if (target.second_output != nullptr) {
      std::memcpy(target.second_output + offset, bytes, now * sizeof(float));
    }
  }
}

}  // namespace tutti
