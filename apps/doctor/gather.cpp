// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/gather.hpp"

#include <array>
#include <chrono>
#include <limits>
#include <numeric>
#include <string>
#include <thread>

#include <tutti/error.hpp>
#include <tutti/mpi.hpp>

namespace apps::doctor {
namespace {

constexpr std::chrono::seconds kDeadline{60};
constexpr int kExchanges = 10;
constexpr int kPing = 1;
constexpr int kPong = 2;

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  throw tutti::Error(tutti::ErrorCode::communication, std::string(call) + " failed");
}

void wait(MPI_Request& request, const char* call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int done = 0;;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
    if (done != 0) return;
    if (std::chrono::steady_clock::now() - begin > kDeadline) {
      throw tutti::Error(tutti::ErrorCode::timeout,
                         std::string(call) + ": not all ranks answered within a minute");
    }
    std::this_thread::yield();
  }
}

void send(MPI_Comm comm, int to, int tag, double value) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(&value, 1, MPI_DOUBLE, to, tag, comm, &request), "MPI_Isend");
  wait(request, "MPI_Isend");
}

double receive(MPI_Comm comm, int from, int tag) {
  double value = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(&value, 1, MPI_DOUBLE, from, tag, comm, &request), "MPI_Irecv");
  wait(request, "MPI_Irecv");
  return value;
}

double time_of_day_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// How far each rank's clock is ahead of rank 0's: of several exchanges the fastest is believed,
/// which read the other clock half way.
/// Source  Cristian, Distributed Computing 3, 1989.
std::vector<double> clock_offsets(MPI_Comm comm, int rank, int size) {
  std::vector<double> offsets(static_cast<std::size_t>(size));
  if (rank != 0) {
    for (int i = 0; i < kExchanges; ++i) {
      receive(comm, 0, kPing);
      send(comm, 0, kPong, time_of_day_s());
    }
    return offsets;
  }
  for (int other = 1; other < size; ++other) {
    double least = std::numeric_limits<double>::max();
    for (int i = 0; i < kExchanges; ++i) {
      const double begin = time_of_day_s();
      send(comm, other, kPing, begin);
      const double theirs = receive(comm, other, kPong);
      const double round_trip = time_of_day_s() - begin;
      if (round_trip >= least) continue;
      least = round_trip;
      offsets[static_cast<std::size_t>(other)] = theirs - (begin + round_trip / 2);
    }
  }
  return offsets;
}

/// One number of each rank, on rank 0.
std::vector<int> gather_numbers(MPI_Comm comm, int mine) {
  int size = 1;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<int> numbers(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Igather(&mine, 1, MPI_INT, numbers.data(), 1, MPI_INT, 0, comm, &request),
        "MPI_Igather");
  wait(request, "MPI_Igather");
  return numbers;
}

/// All ranks' texts, on rank 0.
std::vector<std::string> gather_texts(MPI_Comm comm, const std::string& mine) {
  const std::vector<int> lengths = gather_numbers(comm, static_cast<int>(mine.size()));
  std::vector<int> starts(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), 0);
  std::string all(static_cast<std::size_t>(starts.back() + lengths.back()), '\0');
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Igatherv(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, all.data(),
                     lengths.data(), starts.data(), MPI_CHAR, 0, comm, &request),
        "MPI_Igatherv");
  wait(request, "MPI_Igatherv");
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    texts.push_back(all.substr(static_cast<std::size_t>(starts[rank]),
                               static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

}  // namespace

std::vector<RankInfo> gather(MPI_Comm comm, RankInfo mine) {
  int size = 1;
  check(MPI_Comm_rank(comm, &mine.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check(MPI_Query_thread(&mine.thread_level), "MPI_Query_thread");
  constexpr std::array kLevels = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                  MPI_THREAD_MULTIPLE};
  for (std::size_t level = 0; level < kLevels.size(); ++level) {
    if (mine.thread_level == kLevels[level]) {
      mine.thread_level = static_cast<int>(level);
      break;
    }
  }
  mine.world_size = size;
  mine.mpi = tutti::mpi_version();
  mine.mpi_of_build = tutti::mpi_of_build();
  const std::vector<double> offsets = clock_offsets(comm, mine.rank, size);
  const std::vector<std::string> texts = gather_texts(comm, to_text(mine));
  std::vector<RankInfo> ranks;
  if (mine.rank != 0) return ranks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    ranks.push_back(from_text(texts[rank]));
    ranks.back().clock_offset_s = offsets[rank];
  }
  return ranks;
}

void gather_nodes(MPI_Comm comm, int node, const std::string& why_unreadable,
                  std::vector<RankInfo>& ranks) {
  const std::vector<int> nodes = gather_numbers(comm, node);
  const std::vector<std::string> reasons = gather_texts(comm, why_unreadable);
  for (RankInfo& info : ranks) {
    info.node = nodes[static_cast<std::size_t>(info.rank)];
    info.why_unreadable = reasons[static_cast<std::size_t>(info.rank)];
  }
}

int share(MPI_Comm comm, int value) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(&value, 1, MPI_INT, 0, comm, &request), "MPI_Ibcast");
  wait(request, "MPI_Ibcast");
  return value;
}

}  // namespace apps::doctor
