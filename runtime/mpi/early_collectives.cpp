// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/early_collectives.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "collectives/job/local_error.hpp"
#include "collectives/text/numbers.hpp"
#include "runtime/job/node_observer.hpp"
#include "runtime/mpi/kept_comms.hpp"
#include "runtime/mpi/session.hpp"

namespace tutti::mpi {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kRollCallTag = 102;
constexpr Seconds kRollCall{0.5};  // longer than a polling rank takes to answer
constexpr Seconds kLongestPoll{1.0};
constexpr Seconds kBetweenLooks{1.0};

/// The error of one rank, as sent to the others.
struct Report {
  int code;
  char text[1024];
};

std::string in_seconds(Seconds time) { return significant(time.count(), 3) + " s"; }

}  // namespace

std::string name_of_process(int rank) {
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  return "rank " + std::to_string(rank) + " (host " + host + ", pid " + std::to_string(getpid()) +
         ")";
}

/// Memory that MPI may still read or write after a deadline has passed.
struct EarlyCollectives::Buffers {
  Comm copy;
  std::vector<std::uint64_t> own;
  std::vector<std::uint64_t> least;
  Report report{};
  std::vector<std::byte> sent;
  std::vector<std::byte> received;
  std::vector<int> lengths;
  std::vector<int> begins;
};

struct EarlyCollectives::RollCall {
  std::int32_t asks;  ///< 1 if an answer is requested
  char step[92];
};

/// Starts an operation of MPI and returns its request.
template <class Start>
Request EarlyCollectives::begin(const char* call, Start start) {
  const Turn turn(call);
  Request request;
  check(start(&request), call);
  return request;
}

EarlyCollectives::EarlyCollectives(const Comm& parent, Seconds timeout, bool warns)
    : mpi_(calls()),
      timeout_(timeout),
      comm_(parent),
      warns_(warns),
      buffers_(std::make_shared<Buffers>()) {
  const Turn turn("MPI_Comm_rank");
  check(mpi_.rank(parent, &rank_), "MPI_Comm_rank");
  check(mpi_.size(parent, &size_), "MPI_Comm_size");
  name_ = name_of_process(rank_);
}

void EarlyCollectives::leave_parent(const char* step) { meet_in(duplicate(step)); }

void EarlyCollectives::meet_in(const Comm& own) {
  comm_ = own;
  is_own_ = true;
}

void EarlyCollectives::return_errors(const Comm& comm) const {
  const Turn turn("MPI_Comm_set_errhandler");
  check(mpi_.return_errors(comm), "MPI_Comm_set_errhandler");
}

Comm EarlyCollectives::duplicate(const char* step) {
  wait(step, begin("MPI_Comm_idup", [&](Request* request) {
         return mpi_.start_duplicate(comm_, &buffers_->copy, request);
       }));
  return_errors(buffers_->copy);
  return buffers_->copy;
}

void EarlyCollectives::barrier(const char* step) {
  wait(step,
       begin("MPI_Ibarrier", [&](Request* request) { return mpi_.start_barrier(comm_, request); }));
}

/// The splits have no nonblocking form, but all ranks have arrived when they begin, and other
/// threads hold a turn only for a moment.
Comm EarlyCollectives::split_host(const char* step) {
  barrier(step);
  Comm host;
  const Turn turn("MPI_Comm_split_type");
  check(mpi_.split_host(comm_, rank_, &host), "MPI_Comm_split_type");
  check(mpi_.return_errors(host), "MPI_Comm_set_errhandler");
  return host;
}

Comm EarlyCollectives::split(const char* step, bool takes_part) {
  barrier(step);
  Comm part;
  const Turn turn("MPI_Comm_split");
  check(mpi_.split(comm_, rank_, takes_part, &part), "MPI_Comm_split");
  if (part.is_set()) check(mpi_.return_errors(part), "MPI_Comm_set_errhandler");
  return part;
}

void EarlyCollectives::minima(const char* step, std::span<std::uint64_t> values) {
  buffers_->own.assign(values.begin(), values.end());
  buffers_->least.resize(values.size());
  wait(step, begin("MPI_Iallreduce", [&](Request* request) {
         return mpi_.start_minimum(buffers_->own.data(), buffers_->least.data(),
                                   static_cast<int>(values.size()), comm_, request);
       }));
  std::copy(buffers_->least.begin(), buffers_->least.end(), values.begin());
}

std::span<const std::byte> EarlyCollectives::allgather_bytes(const char* step, const Comm& among,
                                                             std::span<const std::byte> own) {
  int count = 1;
  {
    const Turn turn("MPI_Comm_size");
    check(mpi_.size(among, &count), "MPI_Comm_size");
  }
  buffers_->sent.assign(own.begin(), own.end());
  buffers_->received.resize(own.size() * static_cast<std::size_t>(count));
  wait(step, begin("MPI_Iallgather", [&](Request* request) {
         return mpi_.start_allgather(buffers_->sent.data(), static_cast<int>(own.size()),
                                     buffers_->received.data(), among, request);
       }));
  return buffers_->received;
}

std::vector<std::vector<std::byte>> EarlyCollectives::allgather_parts(
    const char* step, const Comm& among, std::span<const std::byte> own) {
  buffers_->lengths = allgather(step, among, static_cast<int>(own.size()));
  buffers_->begins.clear();
  int end = 0;
  for (const int length : buffers_->lengths) {
    buffers_->begins.push_back(end);
    end += length;
  }
  buffers_->sent.assign(own.begin(), own.end());
  buffers_->received.resize(static_cast<std::size_t>(end));
  wait(step, begin("MPI_Iallgatherv", [&](Request* request) {
         return mpi_.start_allgather_parts(buffers_->sent, buffers_->received.data(),
                                           buffers_->lengths, buffers_->begins, among, request);
       }));
  std::vector<std::vector<std::byte>> parts;
  for (std::size_t i = 0; i < buffers_->begins.size(); ++i) {
    const std::byte* const begin = buffers_->received.data() + buffers_->begins[i];
    parts.emplace_back(begin, begin + buffers_->lengths[i]);
  }
  return parts;
}

void EarlyCollectives::broadcast_bytes(const char* step, int root, std::span<std::byte> bytes) {
  buffers_->received.resize(bytes.size());
  std::byte* buffer = buffers_->received.data();
  if (rank_ == root) std::memcpy(buffer, bytes.data(), bytes.size());
  wait(step, begin("MPI_Ibcast", [&](Request* request) {
         return mpi_.start_broadcast(buffer, static_cast<int>(bytes.size()), root, comm_, request);
       }));
  std::memcpy(bytes.data(), buffer, bytes.size());
}

void EarlyCollectives::agree(const char* step, collectives::FunctionRef<void()> body) {
  const auto error = collectives::caught(body);
  const auto nobody = static_cast<std::uint64_t>(size_);
  const auto first = minimum(step, error ? static_cast<std::uint64_t>(rank_) : nobody);
  if (first == nobody) return;
  Report& report = buffers_->report;
  if (error) {
    report.code = static_cast<int>(error->code);
    std::snprintf(report.text, sizeof report.text, "%s", error->text.c_str());
  }
  broadcast(step, static_cast<int>(first), std::span(&report, 1));
  throw Error(static_cast<ErrorCode>(report.code),
              "rank " + std::to_string(first) + ": " + report.text, ErrorScope::agreed,
              /*reporter=*/rank_ == 0);
}

void EarlyCollectives::test(Request& request, bool* done) {
  const Turn turn("MPI_Test");
  const int code = mpi_.test(&request, done);
  if (code == 0) return;
  collectives::leak_until_exit(buffers_);  // MPI may still write to them
  throw_error(code, "MPI_Test");
}

/// Waits for a request. The deadline counts the time between polls, so that a job that was
/// suspended does not exceed it.
void EarlyCollectives::wait(const char* step, Request request) {
  Seconds waited{0};
  next_look_ = kBetweenLooks;
  auto last = Clock::now();
  for (bool done = false;;) {
    test(request, &done);
    if (done) break;
    const auto now = Clock::now();
    waited += std::min<Seconds>(now - last, kLongestPoll);
    last = now;
    answer_roll_calls(step);
    look_for_other_calls(step, waited);
    if (timeout_.count() > 0 && waited >= timeout_) expire(step, waited);
    pause_.pause(waited);
  }
  seen_at_.clear();  // all ranks have come to this step
  have_met_ = true;
}

// --- ranks that do not come ---------------------------------------------------------------------

/// Sends a roll call, in a turn, from memory that is never freed: its receiver may never receive
/// it.
void EarlyCollectives::tell(int to_rank, const char* step, bool asks) {
  auto roll_call = std::make_shared<RollCall>(RollCall{asks ? 1 : 0, {}});
  std::snprintf(roll_call->step, sizeof roll_call->step, "%s", step);
  Request request;
  check(mpi_.send(roll_call.get(), sizeof *roll_call, to_rank, kRollCallTag, comm_, &request),
        "MPI_Isend of a roll call");
  check(mpi_.release(&request), "MPI_Request_free");
  collectives::leak_until_exit(std::move(roll_call));
}

/// Answers the roll calls of other ranks while this one waits, and records the steps of those that
/// asked.
void EarlyCollectives::answer_roll_calls(const char* step) {
  if (!is_own_) return;
  for (;;) {
    int from = kAnyRank;
    bool found = false;
    const Turn turn("MPI_Iprobe");
    check(mpi_.probe(&from, kRollCallTag, comm_, &found), "MPI_Iprobe");
    if (!found) return;
    RollCall theirs;
    Request request;
    check(mpi_.receive(&theirs, sizeof theirs, from, kRollCallTag, comm_, &request), "MPI_Irecv");
    check(mpi_.wait(&request), "MPI_Wait of a roll call");
    seen_at_[from] = theirs.step;
    if (theirs.asks != 0) tell(from, step, /*asks=*/false);  // in the turn that is held here
  }
}

/// Asks every rank which step it is in, and describes those that are not in this one.
std::string EarlyCollectives::call_roll(const char* step) {
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const Turn turn("MPI_Isend");
    tell(other, step, /*asks=*/true);
  }
  for (const auto end = Clock::now() + kRollCall; Clock::now() < end; pause_.pause(kRollCall)) {
    answer_roll_calls(step);
  }
  std::string silent;
  std::string elsewhere;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const std::string& at = seen_at_[other];
    const std::string name = "rank " + std::to_string(other);
    if (at.empty()) {
      silent += (silent.empty() ? "" : ", ") + name;
    } else if (at != step) {
      elsewhere += "; " + name + " waits for all to " + at;
    }
  }
  if (!silent.empty()) return silent + " did not come" + elsewhere;
  return elsewhere.empty() ? "all ranks wait in it, and MPI does not go on" : elsewhere.substr(2);
}

/// Looks for ranks of this node that wait for this one in a call of another group. They make other
/// calls than this rank, unless they have several threads that make calls. So it is a warning at
/// first, and an error after half of the deadline, before those ranks end by an error that has only
/// their call.
void EarlyCollectives::look_for_other_calls(const char* step, Seconds waited) {
  if (is_own_ || waited < next_look_) return;
  next_look_ = waited + kBetweenLooks;
  const std::string others = who_waits();
  if (others.empty()) return;
  const std::string text =
      name_ + " has waited " + in_seconds(waited) + " for all ranks to " + step + ", and " + others;
  if (timeout_.count() > 0 && waited >= timeout_ / 2) {
    collectives::leak_until_exit(buffers_);
    const std::string error =
        "ranks disagree: " + text + "; every rank must make the same calls in the same order";
    throw Error(ErrorCode::mismatch, error, ErrorScope::failed,
                fail_nodes(ErrorCode::mismatch, error));
  }
  if (std::exchange(warns_, false)) {
    std::fputs(("tutti: warning: " + text + "\n").c_str(), stderr);
  }
}

/// Describes the missing ranks. Before there is a communicator of our own, nothing is sent, because
/// a question could match a receive of the program; but what has come tells who makes another call.
std::string EarlyCollectives::missing(const char* step) {
  if (is_own_) return call_roll(step);
  if (have_met_) return "all had come before this, and some have given up since; see their errors";
  if (const auto sender = who_has_sent()) {
    return "rank " + std::to_string(*sender) +
           " of the job has sent data that this rank has not received, in a call of a store or "
           "communicator that there is already; every rank must make the same calls in the same "
           "order";
  }
  return "which of them have not come cannot be seen from here";
}

void EarlyCollectives::expire(const char* step, Seconds waited) {
  collectives::leak_until_exit(buffers_);
  throw Error(ErrorCode::timeout,
              name_ + " waited " + in_seconds(waited) + " for all ranks to " + step + ": " +
                  missing(step) + "; see what they are doing, or raise TUTTI_TIMEOUT",
              ErrorScope::failed);
}

}  // namespace tutti::mpi
