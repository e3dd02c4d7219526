// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/init_watch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

#include "tutti/error.hpp"

#include "collectives/job/signals_blocked.hpp"
#include "collectives/text/numbers.hpp"
#include "runtime/mpi/early_collectives.hpp"

namespace tutti::mpi {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kLongestLook{1.0};
constexpr Seconds kFirstWarning{3.0};  // MPI_Init of a few ranks on a busy host takes 2 s
// Ranks expire one after the other, so that the launcher ends the job after the first message.
constexpr Seconds kBetweenRanks{0.1};
constexpr int kSpeakers = 10;

std::string in_init(int rank, Seconds waited) {
  return (rank < 0 ? std::string("a rank") : name_of_process(rank)) + " has been in MPI_Init for " +
         fixed(waited.count(), 1) +
         " s, which returns when all processes of the job have called it, and not all have";
}

void say(const char* level, const std::string& text) {
  std::fputs(("tutti: " + std::string(level) + ": " + text + "\n").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

InitWatch::InitWatch(const std::optional<Launch>& launch, Seconds deadline)
    : rank_(launch ? launch->rank : -1), deadline_(deadline) {
  if (!launch || launch->size == 1) return;
  const collectives::SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::out_of_memory,
                std::string("cannot start the thread that looks whether MPI_Init returns: ") +
                    error.what() + "; allow it more threads or memory (ulimit -u, -v)");
  }
}

InitWatch::~InitWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    has_returned_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void InitWatch::watch() {
  const bool has_deadline = deadline_.count() > 0;
  const Seconds limit = deadline_ + kBetweenRanks * std::clamp(rank_, 0, kSpeakers);
  Seconds next = std::max(kFirstWarning, deadline_ / 10);
  Seconds waited{0};
  std::unique_lock lock(mutex_);
  for (auto last = Clock::now(); !has_returned_;) {
    Seconds nap = std::min(kLongestLook, next - waited);
    if (has_deadline) nap = std::min(nap, limit - waited);
    changed_.wait_for(lock, std::max(nap, Seconds{0.001}));
    const auto now = Clock::now();
    waited += std::min<Seconds>(now - last, kLongestLook);
    last = now;
    if (has_returned_) return;
    if (has_deadline && waited >= limit) {
      say("error", in_init(rank_, waited) +
                       "; this rank ends, because the call cannot be given up. See whether each "
                       "process is a program of MPI, or raise TUTTI_TIMEOUT");
      std::_Exit(exit_code(ErrorCode::timeout));
    }
    if (waited >= next) {
      if (rank_ <= 1) say("warning", in_init(rank_, waited));
      next = 4 * waited;
    }
  }
}

}  // namespace tutti::mpi
