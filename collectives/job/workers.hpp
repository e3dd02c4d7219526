// SPDX-License-Identifier: Apache-2.0
// Workers: the threads of a rank that help with large sums, updates and copies.
//
//   caller     run() opens a job | piece 0 | piece 3 | piece 4 | closes it
//   helper 1   asleep . . . . . . . . | piece 1 | piece 5 |  polls, then sleeps
//   helper 2   asleep . . . . . . . . . . | piece 2 |  polls, then sleeps
//
// Any free thread takes the next piece, so that a helper without a core delays nobody: the caller
// does what is left, and only waits for helpers that are in the middle of a piece.
#pragma once

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/job/function_ref.hpp"
#include "collectives/job/futex.hpp"
#include "collectives/job/pace.hpp"
#include "collectives/job/processor_mask.hpp"
#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

/// Smallest work that is split over the threads of a rank.
inline constexpr std::size_t kSplitBytes = std::size_t{256} << 10;

/// The owner's thread calls run(). Helpers are created by the first call that needs them, sleep
/// between calls, and end with this object. They receive no signals, and compute in the caller's
/// floating-point mode. A forked process has no helpers; there run() does all pieces itself.
class Workers {
 public:
  struct Options {
    int threads = 1;                    ///< including the caller
    std::chrono::microseconds spin{0};  ///< how long a helper polls for more work before it sleeps
    /// Called if not all helpers could be created; must not throw. Fewer helpers change no result.
    std::function<void(const std::string&)> warn{};
    Pace* pace = nullptr;                               ///< set only in a simulation
    std::shared_ptr<const ProcessorMask> processors{};  ///< null: those of the owner's thread
  };
  explicit Workers(Options options);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  [[nodiscard]] int threads() const { return options_.threads; }

  /// True if work on `bytes` bytes is split. It is a single comparison, because small calls need
  /// it, too.
  [[nodiscard]] bool splits(std::size_t bytes) const { return bytes >= least_bytes_; }

  /// Calls piece(i) once for every i < pieces, in any order and in parallel, and returns when all
  /// have returned. What they wrote is then visible to the caller, including writes past the
  /// caches. Rethrows the first exception of a piece; after it no further pieces are begun.
  void run(std::size_t pieces, FunctionRef<void(std::size_t)> piece);

  /// Calls body(first, count) for ranges that together cover `elements` elements: a single range if
  /// the work is too small to be split, otherwise in parallel as by run(). Each range begins at a
  /// multiple of kCutBytes.
  template <class Body>
  void over(std::size_t elements, std::size_t element_bytes, Body&& body) {
    if (!splits(elements * element_bytes)) return body(0, elements);
    const std::size_t each = range_bytes(elements * element_bytes) / element_bytes;
    run((elements + each - 1) / each, [&](std::size_t piece) {
      const std::size_t first = piece * each;
      body(first, std::min(each, elements - first));
    });
  }
  static constexpr std::size_t kCutBytes = 4096;

  /// Calls reduce() of kernels/reduce.hpp, in parallel if it is large, with the same bits.
  void reduce(const Reduction& reduction, std::span<const std::byte* const> sources,
              std::span<std::byte* const> destinations, std::size_t count, WritePolicy stores) {
    if (!works(count * (sources.size() * size_of(reduction.from) +
                        destinations.size() * size_of(reduction.to)))) {
      return;
    }
    if (splits(count * size_of(reduction.to))) {
      reduce_together(reduction, sources, destinations, count, stores);
    } else {
      collectives::reduce(reduction, sources, destinations, count, stores);
    }
  }

  /// In a simulation, lets the time of reading and writing `bytes` bytes pass. Returns true if the
  /// work is to be done.
  [[nodiscard]] bool works(std::size_t bytes) const {
    return options_.pace == nullptr || options_.pace->work(bytes);
  }

 private:
  struct Job {
    const FunctionRef<void(std::size_t)>* piece = nullptr;
    std::size_t pieces = 0;
    std::fenv_t mode{};
  };

  void reduce_together(const Reduction& reduction, std::span<const std::byte* const> sources,
                       std::span<std::byte* const> destinations, std::size_t count,
                       WritePolicy stores);
  [[nodiscard]] std::size_t range_bytes(std::size_t bytes) const;
  void make_helpers();
  void help(int number);
  void await_change(std::uint32_t seen);
  void take_pieces();
  void close();

  const Options options_;
  const std::size_t least_bytes_;
  Job job_;
  std::exception_ptr error_;  ///< written by the thread that sets failed_
  std::vector<std::thread> helpers_;
  bool made_ = false;
  long process_ = 0;  ///< the process that has the helpers
  /// Odd while a job is open. Helpers sleep on it.
  alignas(64) SleepableCounter state_;
  std::atomic<bool> ends_{false};
  alignas(64) SleepableCounter inside_;           ///< number of helpers that may access the job
  alignas(64) std::atomic<std::size_t> next_{0};  ///< the first piece that has not been taken
  std::atomic<bool> failed_{false};
};

}  // namespace tutti::collectives
