// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/clock.hpp"

#include <chrono>
#include <limits>

#include "runtime/mpi/check.hpp"

namespace tutti::mpi {

namespace {

constexpr int kRounds = 10;
constexpr int kTag = 101;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// How far the other rank's clock is ahead of this one's.
std::int64_t ask(MPI_Comm comm, int rank) {
  std::int64_t ahead = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t theirs = 0;
    const std::int64_t begin = now_ns();
    check(MPI_Send(&begin, 1, MPI_INT64_T, rank, kTag, comm), "MPI_Send of the clock");
    check(MPI_Recv(&theirs, 1, MPI_INT64_T, rank, kTag, comm, MPI_STATUS_IGNORE),
          "MPI_Recv of the clock");
    const std::int64_t end = now_ns();
    if (end - begin >= shortest) continue;
    shortest = end - begin;
    ahead = theirs - (begin + (end - begin) / 2);
  }
  return ahead;
}

void answer(MPI_Comm comm) {
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t theirs = 0;
    check(MPI_Recv(&theirs, 1, MPI_INT64_T, 0, kTag, comm, MPI_STATUS_IGNORE),
          "MPI_Recv of the clock");
    const std::int64_t own = now_ns();
    check(MPI_Send(&own, 1, MPI_INT64_T, 0, kTag, comm), "MPI_Send of the clock");
  }
}

}  // namespace

std::int64_t common_origin_ns(MPI_Comm comm, const std::vector<RankInfo>& infos) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  const int size = static_cast<int>(infos.size());
  std::vector<std::int64_t> origins(infos.size());  // each host's is at its first rank
  if (rank == 0) {
    for (int other = 1; other < size; ++other) {
      const bool is_first = infos[other].host_first == other;
      if (is_first) origins[other] = ask(comm, other);
    }
    const std::int64_t now = now_ns();
    for (std::int64_t& origin : origins) origin += now;
  } else if (infos[rank].host_first == rank) {
    answer(comm);
  }
  check(MPI_Bcast(origins.data(), size, MPI_INT64_T, 0, comm), "MPI_Bcast of the clocks");
  return origins[infos[rank].host_first];
}

}  // namespace tutti::mpi
