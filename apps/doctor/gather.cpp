// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/gather.hpp"

#include <chrono>
#include <limits>
#include <span>
#include <string>

#include <tutti/error.hpp>
#include <tutti/mpi_abi.hpp>

namespace apps::doctor {
namespace {

constexpr int kExchanges = 10;

template <class T>
void send(const tutti::MpiMessages& job, int to, T value) {
  job.send(to, std::as_bytes(std::span(&value, 1)));
}

template <class T>
T receive(const tutti::MpiMessages& job, int from) {
  T value{};
  job.receive(from, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

double time_of_day_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// How far each rank's clock is ahead of rank 0's. Of several exchanges the fastest counts; it is
/// taken to have read the other clock half way.
/// Source  Cristian, Distributed Computing 3, 1989.
std::vector<double> clock_offsets(const tutti::MpiMessages& job) {
  std::vector<double> offsets(static_cast<std::size_t>(job.size()));
  if (job.rank() != 0) {
    for (int i = 0; i < kExchanges; ++i) {
      receive<double>(job, 0);
      send(job, 0, time_of_day_s());
    }
    return offsets;
  }
  for (int other = 1; other < job.size(); ++other) {
    double least = std::numeric_limits<double>::max();
    for (int i = 0; i < kExchanges; ++i) {
      const double begin = time_of_day_s();
      send(job, other, begin);
      const auto theirs = receive<double>(job, other);
      const double round_trip = time_of_day_s() - begin;
      if (round_trip >= least) continue;
      least = round_trip;
      offsets[static_cast<std::size_t>(other)] = theirs - (begin + round_trip / 2);
    }
  }
  return offsets;
}

/// Gathers one number of each rank on rank 0.
std::vector<int> gather_numbers(const tutti::MpiMessages& job, int mine) {
  std::vector<int> numbers = {mine};
  if (job.rank() != 0) send(job, 0, mine);
  for (int other = 1; job.rank() == 0 && other < job.size(); ++other) {
    numbers.push_back(receive<int>(job, other));
  }
  return numbers;
}

/// Gathers all ranks' texts on rank 0.
std::vector<std::string> gather_texts(const tutti::MpiMessages& job, const std::string& mine) {
  const std::vector<int> lengths = gather_numbers(job, static_cast<int>(mine.size()));
  std::vector<std::string> texts = {mine};
  if (job.rank() != 0) job.send(0, std::as_bytes(std::span(mine)));
  for (int other = 1; job.rank() == 0 && other < job.size(); ++other) {
    texts.emplace_back(static_cast<std::size_t>(lengths[static_cast<std::size_t>(other)]), '\0');
    job.receive(other, std::as_writable_bytes(std::span(texts.back())));
  }
  return texts;
}

/// Notes the MPI that the library uses, and the one that it was built with.
void name_mpi(RankInfo& mine) {
  try {
    const std::string plugin = tutti::mpi_plugin();
    mine.mpi = tutti::mpi_version();
    mine.mpi_of_build = tutti::mpi_of_build() + " (" + plugin.substr(plugin.rfind('/') + 1) + ")";
  } catch (const tutti::Error& error) {  // a process alone goes on without an MPI
    mine.mpi = std::string("no MPI: ") + error.what();
    mine.mpi_of_build = "plug-ins, none of which was loaded";
  }
}

}  // namespace

std::vector<RankInfo> gather(const tutti::MpiMessages& job, RankInfo mine) {
  mine.rank = job.rank();
  mine.thread_level = job.thread_level();
  mine.world_size = job.size();
  name_mpi(mine);
  const std::vector<double> offsets = clock_offsets(job);
  const std::vector<std::string> texts = gather_texts(job, to_text(mine));
  std::vector<RankInfo> ranks;
  if (mine.rank != 0) return ranks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    ranks.push_back(from_text(texts[rank]));
    ranks.back().clock_offset_s = offsets[rank];
  }
  return ranks;
}

void gather_nodes(const tutti::MpiMessages& job, int node, const std::string& why_unreadable,
                  std::vector<RankInfo>& ranks) {
  const std::vector<int> nodes = gather_numbers(job, node);
  const std::vector<std::string> reasons = gather_texts(job, why_unreadable);
  for (RankInfo& info : ranks) {
    info.node = nodes[static_cast<std::size_t>(info.rank)];
    info.why_unreadable = reasons[static_cast<std::size_t>(info.rank)];
  }
}

int share(const tutti::MpiMessages& job, int value) {
  if (job.rank() != 0) return receive<int>(job, 0);
  for (int other = 1; other < job.size(); ++other) send(job, other, value);
  return value;
}

}  // namespace apps::doctor
