// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/reports.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <random>

#include "tutti/error.hpp"

#include "collectives/wait/log.hpp"
#include "runtime/base/output.hpp"
#include "runtime/mpi/clock.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/observe/reports.hpp"
#include "runtime/observe/summary.hpp"
#include "runtime/observe/trace.hpp"

namespace tutti::mpi {

namespace {

/// The statistics of a group, kept from its end until MPI_Finalize.
struct Summary {
  Comm comm;
  std::string target;
  std::shared_ptr<const collectives::RankNames> names;
  std::optional<Statistics> own;
  int group = 0;  ///< as counted by observe::next_group()
};

/// Returns the texts of all ranks on rank 0.
std::vector<std::string> gather(const Comm& comm, const std::string& own) {
  constexpr int kTextTag = 0;
  const Calls& mpi = calls();
  int rank = 0;
  int size = 1;
  check(mpi.rank(comm, &rank), "MPI_Comm_rank");
  check(mpi.size(comm, &size), "MPI_Comm_size");
  std::vector<std::string> texts;
  Request request;
  if (rank != 0) {
    check(mpi.send(own.data(), static_cast<int>(own.size()), 0, kTextTag, comm, &request),
          "MPI_Isend of the statistics");
    check(mpi.wait(&request), "MPI_Wait of the statistics");
    return texts;
  }
  texts.push_back(own);
  for (int other = 1; other < size; ++other) {
    int length = 0;
    check(mpi.wait_for_message(other, kTextTag, comm, &length), "MPI_Probe");
    texts.emplace_back(static_cast<std::size_t>(length), '\0');
    check(mpi.receive(texts.back().data(), length, other, kTextTag, comm, &request),
          "MPI_Irecv of the statistics");
    check(mpi.wait(&request), "MPI_Wait of the statistics");
  }
  return texts;
}

void print(const Summary& summary) {
  const auto texts =
      gather(summary.comm, summary.own ? observe::to_json(*summary.own) : std::string());
  std::vector<Statistics> ranks;
  bool any_calls = false;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    ranks.push_back(observe::from_json(text));
    any_calls = any_calls || !ranks.back().calls.empty();
  }
  if (any_calls)
    observe::print_summary(summary.target,
                           observe::summary_table(ranks, *summary.names, summary.group));
}

/// Prints the statistics of a group. MPI_Finalize calls it while messages can still be sent.
/// MPI_Finalize is collective, so ranks wait here for nobody that they would not wait for anyway;
/// and like all of MPI_Finalize, this has no deadline.
void print_one(void* value) noexcept {
  begin_finalize();
  const std::unique_ptr<std::shared_ptr<Summary>> summary(
      static_cast<std::shared_ptr<Summary>*>(value));
  try {
    print(**summary);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti: warning: TUTTI_STATISTICS: %s\n", error.what());
  }
}

/// Makes MPI_Finalize print the summary. Local.
void print_at_finalize(const std::shared_ptr<Summary>& summary) {
  const Turn turn("MPI_Comm_set_attr");
  check(calls().call_at_finalize(print_one, new std::shared_ptr<Summary>(summary)),
        "MPI_Comm_set_attr");
}

/// Runs `body`, which prepares a file, and names the setting if it fails. Failing early is better
/// than losing the report after the job.
void prepare(const std::string& variable, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    throw Error(error.code(), variable + ": " + error.what());
  }
}

/// Creates the trace: one file for all hosts that see rank 0's; other hosts have a file of their
/// own.
std::string make_trace(EarlyCollectives& ranks, const HostRanks& host, const std::string& path) {
  const int rank = ranks.rank();
  std::uint64_t job = 0;
  ranks.agree("draw the trace's number", [&] { job = std::random_device()(); });
  ranks.broadcast("learn the trace's number", 0, std::span(&job, 1));
  ranks.agree("create the trace", [&] {
    if (rank == 0) prepare("TUTTI_TRACE", [&] { observe::create_trace(path, job); });
  });
  std::string target = path;
  ranks.agree("look for the trace", [&] {
    if (host.infos.front().rank == 0 || observe::is_trace_of(path, job)) return;
    target = observe::with_infix(path, host.self().host);
    if (!host.is_first()) return;
    prepare("TUTTI_TRACE", [&] { observe::create_trace(target, job); });
  });
  return target;
}

/// Returns null if no statistics are requested. Rank 0 checks that it can write their file. Names
/// become absolute here, because the program may change its working directory before they are
/// written.
std::shared_ptr<Summary> make_summary(const Settings& settings, int group,
                                      const collectives::Topology& topology) {
  if (settings.statistics.empty()) return nullptr;
  const bool is_file = settings.statistics != "1";
  const std::string target =
      is_file ? observe::of_group(absolute_name(settings.statistics), group) : "1";
  if (is_file && topology.rank == 0) {
    prepare("TUTTI_STATISTICS", [&] { require_output(target); });
  }
  return std::make_shared<Summary>(Summary{{}, target, topology.names, {}, group});
}

}  // namespace

ReportTargets report_targets(EarlyCollectives& ranks, const HostRanks& host,
                             const collectives::Topology& topology, const Settings& settings) {
  ReportTargets targets;
  const int rank = topology.rank;
  std::shared_ptr<Summary> summary;
  std::string trace;
  ranks.agree("name their reports", [&] {
    const int group = observe::next_group();
    summary = make_summary(settings, group, topology);
    if (!settings.prometheus.empty()) {
      const std::string metrics = observe::of_group(absolute_name(settings.prometheus), group);
      targets.metrics = observe::with_infix(metrics, std::to_string(rank));
      prepare("TUTTI_PROMETHEUS", [&] { require_output(targets.metrics); });
    }
    if (!settings.trace.empty()) trace = observe::of_group(absolute_name(settings.trace), group);
  });
  if (summary != nullptr) {
    summary->comm = ranks.duplicate("prepare for their statistics");
    ranks.agree("prepare their statistics", [&] {
      print_at_finalize(summary);
      targets.summary = [summary](const Statistics& statistics) { summary->own = statistics; };
    });
  }
  if (trace.empty()) return targets;
  targets.trace = make_trace(ranks, host, trace);
  targets.trace_origin_ns = common_origin_ns(ranks, host);
  if (targets.trace != trace && host.is_first()) {
    collectives::Log(topology, settings.log)
        .warn("TUTTI_TRACE: this host does not see rank 0's file; its ranks write " +
              targets.trace + " here, on the same clock");
  }
  return targets;
}

}  // namespace tutti::mpi
