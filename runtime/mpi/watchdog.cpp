// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/watchdog.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/signals_blocked.hpp"
#include "collectives/wait/wait.hpp"
#include "runtime/job/node_observer.hpp"

namespace tutti::mpi {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// On a crowded machine, a thread may wait this long for a processor.
constexpr Seconds kMargin{1.0};
constexpr Seconds kLongestNap{1.0};
constexpr Seconds kShortestNap{0.05};
constexpr int kLooks = 16;  // observations per deadline
constexpr std::size_t kStackBytes = std::size_t{256} << 10;

/// The state of the watchdog, global as MPI is. Never destroyed, because its thread ends with the
/// process.
struct Watched {
  std::mutex mutex;
  std::deque<CallMark> marks;     ///< never shrinks, so that marks do not move
  std::vector<CallMark*> unused;  ///< marks of threads that have ended
  std::string rank;
  Seconds limit{0};
  bool is_endless = false;
  bool is_running = false;
};

Watched& watched() {
  static auto* const all = new Watched;
  return *all;
}

/// Lends a mark to a thread; when that ends, the mark is used by another thread.
class Lease {
 public:
  Lease() {
    Watched& all = watched();
    const std::lock_guard lock(all.mutex);
    if (all.unused.empty()) {
      mark_ = &all.marks.emplace_back();
    } else {
      mark_ = all.unused.back();
      all.unused.pop_back();
    }
  }
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  [[nodiscard]] CallMark* mark() const { return mark_; }

 private:
  CallMark* mark_;
};

thread_local CallMark* own_mark = nullptr;
thread_local bool has_ended = false;

Lease::~Lease() {
  own_mark = nullptr;
  has_ended = true;
  Watched& all = watched();
  const std::lock_guard lock(all.mutex);
  all.unused.push_back(mark_);
}

/// Returns the mark of a thread. Destructors of an ending thread may still make calls; these are
/// not observed.
CallMark* first_mark() {
  static CallMark of_ending_threads;
  if (has_ended) return &of_ending_threads;
  thread_local const Lease lease;
  return lease.mark();
}

[[noreturn]] void end_process(const std::string& rank, const char* call, Seconds waited) {
  const std::string own_call = call_under_way();
  const std::string text =
      rank + " has been in " + call + " for " +
      collectives::in_seconds(std::chrono::duration_cast<Clock::duration>(waited)) +
      ", and MPI does not return from it" + (own_call.empty() ? "" : " (" + own_call + ")") +
      "; this rank ends, because such a call cannot be given up. See whether the process of a "
      "peer has ended, or raise TUTTI_TIMEOUT";
  if (fail_nodes(ErrorCode::timeout, text)) {
    const std::string line = "tutti: error: " + text + "\n";
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  }
  std::_Exit(exit_code(ErrorCode::timeout));
}

/// The last observation of a mark.
struct Look {
  std::uint64_t count = 0;
  Seconds unchanged{0};
};

/// Sleeps and observes calls until the process ends.
class Watchdog {
 public:
  [[noreturn]] void run() {
    for (auto last = Clock::now();;) {
      std::this_thread::sleep_for(nap_now());
      const auto now = Clock::now();
      look(std::min<Seconds>(now - last, kLongestNap));
      last = now;
    }
  }

 private:
  static Seconds nap_now() {
    Watched& all = watched();
    const std::lock_guard lock(all.mutex);
    return std::clamp(all.limit / kLooks, kShortestNap, kLongestNap);
  }

  void look(Seconds passed) {
    Watched& all = watched();
    const std::lock_guard lock(all.mutex);
    if (all.is_endless) return;
    looks_.resize(all.marks.size());
    for (std::size_t i = 0; i < looks_.size(); ++i) {
      const std::uint64_t count = all.marks[i].count.load(std::memory_order_acquire);
      Look& seen = looks_[i];
      const bool is_inside = count % 2 == 1 && count == seen.count;
      seen = {count, is_inside ? seen.unchanged + passed : Seconds{0}};
      if (seen.unchanged < all.limit) continue;
      end_process(all.rank, all.marks[i].call.load(std::memory_order_relaxed), seen.unchanged);
    }
  }

  std::vector<Look> looks_;
};

void* watch(void* /*unused*/) { Watchdog().run(); }

/// Starts the thread with a small stack, because the address space of a job may be limited.
void start_thread() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const collectives::SignalsBlocked blocked;
  pthread_t thread{};
  const int code = pthread_create(&thread, &attributes, watch, nullptr);
  pthread_attr_destroy(&attributes);
  if (code == 0) return;
  throw Error(ErrorCode::out_of_memory,
              std::string("cannot start the thread that looks whether calls of MPI return: ") +
                  std::strerror(code) + "; allow it more threads or memory (ulimit -u, -v)");
}

}  // namespace

CallMark& call_mark() {
  CallMark*& mark = own_mark;  // cached, because thread-local access in a shared library is a call
  if (mark == nullptr) mark = first_mark();
  return *mark;
}

void watch_calls(Seconds timeout, const std::string& rank) {
  Watched& all = watched();
  const std::lock_guard lock(all.mutex);
  if (all.rank.empty()) all.rank = rank;
  all.limit = std::max(all.limit, timeout + kMargin);
  if (timeout.count() <= 0) all.is_endless = true;
  if (all.is_running || all.is_endless) return;
  start_thread();
  all.is_running = true;
}

}  // namespace tutti::mpi
