// SPDX-License-Identifier: Apache-2.0
// Messages between all pairs of ranks, checked element by element.
#pragma once

#include "tests/support/blocks.hpp"

namespace test {

/// Sends a message in both directions between each two ranks, from the lower one first. True if
/// this rank has received the right ones.
inline bool pairs_are_right(tutti::Communicator& comm, std::size_t count, bool shared) {
  tutti::Tensor sent = numbers(comm, shared, count);
  tutti::Tensor received = numbers(comm, !shared, count);
  bool right = true;
  for (int low = 0; low < comm.size(); ++low) {
    for (int high = low + 1; high < comm.size(); ++high) {
      if (comm.rank() != low && comm.rank() != high) continue;
      const int other = comm.rank() == low ? high : low;
      fill_block(sent.values<std::int64_t>(), comm.rank(), other);
      if (comm.rank() == low) comm.send(sent, other);
      comm.receive(received, other);
      right = is_block(received.values<std::int64_t>(), other, comm.rank()) && right;
      if (comm.rank() == high) comm.send(sent, other);
    }
  }
  return right;
}

}  // namespace test
