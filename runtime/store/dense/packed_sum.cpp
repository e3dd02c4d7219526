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
  pack();
  lay_out();
}

/// Blocks have the size of a message, so that blocks of different ranks travel at the same time.
void PackedSum::cut() {
  pieces_.clear();
  blocks_.clear();
  const std::size_t block_bytes = std::max<std::size_t>(group_.settings().piece_bytes, 64);
  for (std::size_t key = 0; key < job_->sums.size(); ++key) cut_key(key, block_bytes);
}

void PackedSum::cut_key(std::size_t key, std::size_t block_bytes) {
  const Codec& codec = job_->codec;
  const std::size_t count = job_->sums[key].count;
  const std::size_t step_bytes = codec.packed_bytes(Codec::kCut);
  for (std::size_t first = 0, now = 0; first < count; first += now) {
    const bool full = blocks_.empty() || block_bytes < blocks_.back().bytes + step_bytes;
    if (full) {
      const std::size_t begin = blocks_.empty() ? 0 : blocks_.back().begin + blocks_.back().bytes;
      blocks_.push_back({pieces_.size(), begin});
    }
    Block& block = blocks_.back();
    const std::size_t room = (block_bytes - block.bytes) / step_bytes * Codec::kCut;
    now = codec.can_cut() ? std::min(count - first, room) : count;
    pieces_.push_back({key, first, now, block.bytes});
    block.bytes += codec.packed_bytes(now);
  }
}

std::span<const PackedSum::Piece> PackedSum::pieces_of(std::size_t block) const {
  const std::size_t first = blocks_[block].first_piece;
  const std::size_t end =
      block + 1 < blocks_.size() ? blocks_[block + 1].first_piece : pieces_.size();
  return std::span(pieces_).subspan(first, end - first);
}

const float* PackedSum::gradient_of(const Piece& piece) const {
  return reinterpret_cast<const float*>(job_->sums[piece.key].input) + piece.first;
}

float* PackedSum::residual_of(const Piece& piece) const {
  if (!job_->codec.has_residual()) return nullptr;
  return tutti::residual_of(*job_->entries[piece.key]) + piece.first;
}

void PackedSum::pack() {
  const std::size_t bytes = blocks_.empty() ? 0 : blocks_.back().begin + blocks_.back().bytes;
  if (!packed_ || packed_->size_bytes() < bytes) {
    packed_.reset();
    packed_ = group_.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8);
  }
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    for (const Piece& piece : pieces_of(block)) {
      job_->codec.pack(gradient_of(piece), residual_of(piece), piece.count,
                       packed_->bytes() + blocks_[block].begin + piece.offset);
    }
  }
}

void PackedSum::lay_out() {
  const int ranks = group_.topology().size;
  std::size_t largest = 0;
  for (const Block& block : blocks_) largest = std::max(largest, block.bytes);
  arrived_.resize(static_cast<std::size_t>(ranks));
  for (auto& bytes : arrived_) bytes.resize(std::max(bytes.size(), largest));
  tile_.resize(Codec::kTile);
  segments_.clear();
  for (const Block& block : blocks_) {
    for (int rank = 0; rank < ranks; ++rank) {
      segments_.push_back({.input = packed_->bytes() + block.begin,
                           .output = arrived_[static_cast<std::size_t>(rank)].data(),
                           .count = block.bytes,
                           .dtype = DType::uint8,
                           .source = rank});
    }
  }
}

/// Pieces of a block come in order, and blocks in order of ranks.
void PackedSum::consume(std::size_t segment, std::size_t first, std::size_t count,
                        const std::byte* packed) {
  const std::size_t ranks = arrived_.size();
  const std::size_t block = segment / ranks;
  std::memcpy(arrived_[segment % ranks].data() + first, packed, count);
  const bool is_last = segment % ranks == ranks - 1 && first + count == blocks_[block].bytes;
  if (is_last) finish(block);
}

void PackedSum::finish(std::size_t block) {
  for (const Piece& piece : pieces_of(block)) {
    sources_.clear();
    for (const auto& bytes : arrived_) sources_.push_back(bytes.data() + piece.offset);
    if (job_->codec.has_residual()) {
      const auto self = static_cast<std::size_t>(group_.topology().rank);
      job_->codec.feed_back(gradient_of(piece), residual_of(piece), piece.count, sources_[self]);
    }
    hand_on(piece);
  }
}

void PackedSum::hand_on(const Piece& piece) {
  const Segment& target = job_->sums[piece.key];
  for (std::size_t done = 0; done < piece.count; done += Codec::kTile) {
    const std::size_t now = std::min(Codec::kTile, piece.count - done);
    const std::size_t first = piece.first + done;
    const std::size_t offset = first * sizeof(float);
    const bool keeps = job_->consumer == nullptr;
    float* sums = keeps ? reinterpret_cast<float*>(target.output + offset) : tile_.data();
    job_->codec.sum(sources_, {piece.count, done, now}, workspace_, sums);
    const auto* bytes = reinterpret_cast<const std::byte*>(sums);
    if (!keeps) {
      job_->consumer->consume(piece.key, first, now, bytes);
    } else if (target.second_output != nullptr) {
      std::memcpy(target.second_output + offset, bytes, now * sizeof(float));
    }
  }
}

}  // namespace tutti
