// SPDX-License-Identifier: Apache-2.0
// Collectives in which each rank has a block of its own, of equal or different sizes.
#include <cstdint>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/communicator/refusals.hpp"
#include "runtime/job/group.hpp"

namespace tutti {

using collectives::BlockSegments;
using collectives::Engine;
using collectives::kEveryRank;
using collectives::Kind;

namespace {

using Counts = std::span<const std::size_t>;

/// Returns the count of this rank's own block. Requires a count for each rank.
std::size_t own_of(Counts counts, int rank) { return counts[static_cast<std::size_t>(rank)]; }

std::string refusal_of_own(const char* side, const ConstTensorView& tensor, Counts counts,
                           int rank) {
  if (static_cast<std::size_t>(rank) >= counts.size()) return {};  // has a refusal of its own
  if (own_of(counts, rank) == tensor.count()) return {};
  return side + (" " + to_string(tensor)) + " has not the " + std::to_string(own_of(counts, rank)) +
         " elements that the counts have for this rank";
}

std::uint64_t digest_of(const Shape& shape, DType dtype) {
  return Digest().add(shape, dtype).value();
}

std::uint64_t digest_of(DType dtype) {
  return Digest().add(static_cast<std::uint64_t>(dtype)).value();
}

std::uint64_t digest_of(Counts counts, DType dtype) {
  Digest digest;
  digest.add(static_cast<std::uint64_t>(dtype));
  for (const std::size_t count : counts) digest.add(std::uint64_t{count});
  return digest.value();
}

/// Formats counts such as "5 + 0 + 3"; of many ranks only the first ones.
std::string to_text(Counts counts) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < counts.size() && i < kMost; ++i) {
    text += (text.empty() ? "" : " + ") + std::to_string(counts[i]);
  }
  return counts.size() > kMost ? text + " + ..." : text;
}

std::string from_root(int root) { return " from rank " + std::to_string(root); }
std::string to_root(int root) { return " to rank " + std::to_string(root); }

/// Throws an error that all ranks have found alike.
[[noreturn]] void throw_agreed(const Engine& engine, const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text, ErrorScope::agreed,
              /*reporter=*/engine.topology().rank == 0);
}

}  // namespace

void Communicator::gather(const ConstTensorView& input, const TensorView& output, int root) {
  Engine& engine = group_->engine();
  const auto ranks = static_cast<std::size_t>(size());
  const bool counts_fit = ranks * input.count() == output.count();
  const bool tensors_fit =
      rank() == root ? are_blocks(input, output, counts_fit) : is_usable(input);
  if (!is_root(root, size()) || !tensors_fit) {
    refuse(engine, "gather",
           {refusal_of_root(root, size()),
            rank() == root ? refusal_of_blocks(input, output, counts_fit) : refusal(input)});
  }
  BlockSegments segments(rank(), input.bytes(), output.bytes(), input.dtype(), ranks);
  for (int from = 0; from < size(); ++from) segments.add(from, root, input.count());
  const auto describe = [&] { return "gather of " + to_string(input) + to_root(root); };
  engine.run({.kind = Kind::gather,
              .root = root,
              .digest = digest_of(input.shape(), input.dtype()),
              .segments = segments.all(),
              .describe = describe});
}

void Communicator::scatter(const ConstTensorView& input, const TensorView& output, int root) {
  Engine& engine = group_->engine();
  const auto ranks = static_cast<std::size_t>(size());
  const bool counts_fit = ranks * output.count() == input.count();
  const bool tensors_fit =
      rank() == root ? are_blocks(input, output, counts_fit) : is_usable(output);
  if (!is_root(root, size()) || !tensors_fit) {
    refuse(engine, "scatter",
           {refusal_of_root(root, size()),
            rank() == root ? refusal_of_blocks(input, output, counts_fit) : refusal(output)});
  }
  BlockSegments segments(rank(), input.bytes(), output.bytes(), output.dtype(), ranks);
  for (int to = 0; to < size(); ++to) segments.add(root, to, output.count());
  const auto describe = [&] { return "scatter of " + to_string(output) + from_root(root); };
  engine.run({.kind = Kind::scatter,
              .root = root,
              .digest = digest_of(output.shape(), output.dtype()),
              .segments = segments.all(),
              .describe = describe});
}

std::vector<std::size_t> Communicator::exchange_counts(std::size_t count) {
  Engine& engine = group_->engine();
  const std::uint64_t own = count;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size()));
  BlockSegments segments(rank(), reinterpret_cast<const std::byte*>(&own),
                         reinterpret_cast<std::byte*>(all.data()), DType::int64, all.size());
  for (int from = 0; from < size(); ++from) segments.add(from, kEveryRank, 1);
  const auto describe = [] { return std::string("exchange_counts"); };
  engine.run({.kind = Kind::allgather, .segments = segments.all(), .describe = describe});
  return {all.begin(), all.end()};
}

void Communicator::allgatherv(const ConstTensorView& input, const TensorView& output,
                              Counts counts) {
  Engine& engine = group_->engine();
  const bool counts_fit = add_up(counts, output, size()) && own_of(counts, rank()) == input.count();
  if (!are_blocks(input, output, counts_fit)) {
    refuse(engine, "allgatherv",
           {refusal_of_pair(input, output), refusal_of_counts("output", output, counts, size()),
            refusal_of_own("input", input, counts, rank())});
  }
  BlockSegments segments(rank(), input.bytes(), output.bytes(), input.dtype(), counts.size());
  for (int from = 0; from < size(); ++from) {
    segments.add(from, kEveryRank, counts[static_cast<std::size_t>(from)]);
  }
  const auto describe = [&] {
    return "allgatherv of " + to_text(counts) + " elements of " + to_string(input.dtype());
  };
  engine.run({.kind = Kind::allgather,
              .digest = digest_of(counts, input.dtype()),
              .segments = segments.all(),
              .describe = describe});
}

void Communicator::allgatherv(const ConstTensorView& input, const TensorView& output) {
  allgatherv(input, output, exchange_counts(input.count()));
}

void Communicator::reduce_scatter(const ConstTensorView& input, const TensorView& output,
                                  Counts counts, ReduceOp op) {
  Engine& engine = group_->engine();
  const bool counts_fit = add_up(counts, input, size()) && own_of(counts, rank()) == output.count();
  if (!are_blocks(input, output, counts_fit) || !fits(op, input.dtype())) {
    refuse(engine, "reduce_scatter",
           {refusal_of_pair(input, output), refusal_of_counts("input", input, counts, size()),
            refusal_of_own("output", output, counts, rank()), refusal_of_op(op, input.dtype())});
  }
  BlockSegments segments(rank(), input.bytes(), output.bytes(), input.dtype(), counts.size());
  for (int to = 0; to < size(); ++to) {
    segments.add(kEveryRank, to, counts[static_cast<std::size_t>(to)]);
  }
  const auto describe = [&] {
    return std::string("reduce_scatter (") + to_string(op) + ") to blocks of " + to_text(counts) +
           " elements of " + to_string(input.dtype());
  };
  engine.run({.kind = Kind::reduce_scatter,
              .reduce = op,
              .digest = digest_of(counts, input.dtype()),
              .segments = segments.all(),
              .describe = describe});
}

void Communicator::alltoall(const ConstTensorView& input, const TensorView& output) {
  Engine& engine = group_->engine();
  const auto ranks = static_cast<std::size_t>(size());
  const bool counts_fit = input.count() == output.count() && input.count() % ranks == 0;
  if (!are_blocks(input, output, counts_fit)) {
    refuse(engine, "alltoall",
           {refusal_of_pair(input, output),
            "input " + to_string(input) + " and output " + to_string(output) + " must both hold " +
                std::to_string(size()) + " equal blocks, one per rank"});
  }
  const std::size_t block = input.count() / ranks;
  BlockSegments segments(rank(), input.bytes(), output.bytes(), input.dtype(), ranks * ranks);
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) segments.add(from, to, block);
  }
  const auto describe = [&] { return "alltoall of " + to_string(input); };
  engine.run({.kind = Kind::alltoall,
              .digest = digest_of({static_cast<std::int64_t>(block)}, input.dtype()),
              .segments = segments.all(),
              .describe = describe});
}

void Communicator::alltoallv(const ConstTensorView& input, Counts input_counts,
                             const TensorView& output, Counts output_counts) {
  Engine& engine = group_->engine();
  const bool counts_fit =
      add_up(input_counts, input, size()) && add_up(output_counts, output, size());
  if (!are_blocks(input, output, counts_fit)) {
    refuse(engine, "alltoallv",
           {refusal_of_pair(input, output), refusal_of_counts("input", input, input_counts, size()),
            refusal_of_counts("output", output, output_counts, size())});
  }
  const auto ranks = static_cast<std::size_t>(size());
  const auto describe = [&] { return std::string("alltoallv of ") + to_string(input.dtype()); };
  CountExchange& counts = group_->count_exchange();
  counts.meet(engine, input, input_counts, output_counts, describe);
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      if (counts.given(from, to) == counts.wanted(from, to)) continue;
      throw_agreed(engine, "alltoallv: rank " + std::to_string(from) + " gives " +
                               std::to_string(counts.given(from, to)) + " elements to rank " +
                               std::to_string(to) + ", which expects " +
                               std::to_string(counts.wanted(from, to)) + "; nothing was changed");
    }
  }
  if (counts.have_data()) {
    return counts.copy_data(static_cast<std::size_t>(rank()), input.bytes(), output.bytes());
  }
  BlockSegments segments(rank(), input.bytes(), output.bytes(), input.dtype(), ranks * ranks);
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      segments.add(static_cast<int>(from), static_cast<int>(to), counts.given(from, to));
    }
  }
  engine.run({.kind = Kind::alltoall,
              .digest = digest_of(input.dtype()),
              .segments = segments.all(),
              .describe = describe});
}

}  // namespace tutti
