// SPDX-License-Identifier: Apache-2.0
// Blocks that go from rank to rank, whose elements name both ranks and their place in the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/communicator.hpp"

namespace test {

using Counts = std::vector<std::size_t>;

/// Fills the block that one rank gives another; `to` is -1 where all ranks get the same block.
void fill_block(std::span<std::int64_t> block, int from, int to);
bool is_block(std::span<const std::int64_t> block, int from, int to);

inline std::size_t total(const Counts& counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  return sum;
}

/// The number of elements that `from` gives `to`, about `scale` of them; zero for some pairs.
inline std::size_t uneven_count(int from, int to, std::size_t scale) {
  return scale * static_cast<std::size_t>((3 * from + 5 * to + 1) % 4) / 2;
}

/// A vector of int64, in the memory of the node or in ordinary memory, whose numbers no block has.
tutti::Tensor numbers(tutti::Communicator& comm, bool shared, std::size_t count);
bool is_untouched(const tutti::Tensor& tensor);

/// Fills a tensor with blocks of these sizes, one after the other, of which block r goes to
/// `to_of(r)`.
template <class ToOf>
void fill_blocks(tutti::Tensor& tensor, const Counts& counts, int from, ToOf&& to_of) {
  auto rest = tensor.values<std::int64_t>();
  for (std::size_t r = 0; r < counts.size(); ++r) {
    fill_block(rest.first(counts[r]), from, to_of(static_cast<int>(r)));
    rest = rest.subspan(counts[r]);
  }
}

/// True if block r came from rank r, and is for `to`.
inline bool are_blocks(const tutti::Tensor& tensor, const Counts& counts, int to) {
  std::span<const std::int64_t> rest = tensor.values<std::int64_t>();
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (!is_block(rest.first(counts[r]), static_cast<int>(r), to)) return false;
    rest = rest.subspan(counts[r]);
  }
  return true;
}

// --- the calls: each returns true if this rank's result is right ---------------------------------

inline bool gather_is_right(tutti::Communicator& comm, std::size_t count, int root, bool shared) {
  const Counts counts(static_cast<std::size_t>(comm.size()), count);
  tutti::Tensor input = numbers(comm, shared, count);
  tutti::Tensor output = numbers(comm, !shared, total(counts));
  fill_block(input.values<std::int64_t>(), comm.rank(), -1);
  comm.gather(input, output, root);
  return comm.rank() == root ? are_blocks(output, counts, -1) : is_untouched(output);
}

inline bool scatter_is_right(tutti::Communicator& comm, std::size_t count, int root, bool shared) {
  const Counts counts(static_cast<std::size_t>(comm.size()), count);
  tutti::Tensor input = numbers(comm, shared, comm.rank() == root ? total(counts) : 0);
  tutti::Tensor output = numbers(comm, shared, count);
  if (comm.rank() == root) fill_blocks(input, counts, root, [](int to) { return to; });
  comm.scatter(input, output, root);
  return is_block(output.values<std::int64_t>(), root, comm.rank());
}

inline bool allgatherv_is_right(tutti::Communicator& comm, std::size_t scale, bool shared,
                                bool exchanged) {
  Counts counts;
  for (int rank = 0; rank < comm.size(); ++rank) counts.push_back(uneven_count(rank, 1, scale));
  tutti::Tensor input = numbers(comm, shared, counts[static_cast<std::size_t>(comm.rank())]);
  tutti::Tensor output = numbers(comm, shared, total(counts));
  fill_block(input.values<std::int64_t>(), comm.rank(), -1);
  if (exchanged) {
    if (comm.exchange_counts(input.count()) != counts) return false;
    comm.allgatherv(input, output);
  } else {
    comm.allgatherv(input, output, counts);
  }
  return are_blocks(output, counts, -1);
}

inline bool alltoall_is_right(tutti::Communicator& comm, std::size_t count, bool shared) {
  const Counts counts(static_cast<std::size_t>(comm.size()), count);
  tutti::Tensor input = numbers(comm, shared, total(counts));
  tutti::Tensor output = numbers(comm, shared, total(counts));
  fill_blocks(input, counts, comm.rank(), [](int to) { return to; });
  comm.alltoall(input, output);
  return are_blocks(output, counts, comm.rank());
}

inline bool alltoallv_is_right(tutti::Communicator& comm, std::size_t scale, bool shared) {
  Counts given;
  Counts wanted;
  for (int rank = 0; rank < comm.size(); ++rank) {
    given.push_back(uneven_count(comm.rank(), rank, scale));
    wanted.push_back(uneven_count(rank, comm.rank(), scale));
  }
  tutti::Tensor input = numbers(comm, shared, total(given));
  tutti::Tensor output = numbers(comm, shared, total(wanted));
  fill_blocks(input, given, comm.rank(), [](int to) { return to; });
  comm.alltoallv(input, given, output, wanted);
  return are_blocks(output, wanted, comm.rank());
}

/// Makes all of these calls with blocks of about `count` elements; true if all results are right.
inline bool blocks_are_right(tutti::Communicator& comm, std::size_t count, bool shared) {
  bool right = true;
  for (int root = 0; root < comm.size(); root += 2) {
    right = gather_is_right(comm, count, root, shared) && right;
    right = scatter_is_right(comm, count, root, shared) && right;
  }
  right = allgatherv_is_right(comm, count, shared, /*exchanged=*/false) && right;
  right = allgatherv_is_right(comm, count, shared, /*exchanged=*/true) && right;
  right = alltoall_is_right(comm, count, shared) && right;
  return alltoallv_is_right(comm, count, shared) && right;
}

}  // namespace test
