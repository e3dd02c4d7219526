// SPDX-License-Identifier: Apache-2.0
// A trial, on all ranks: the GPU's stream is empty, barrier of the hosts, clock, sum, end of the
// sum, clock. A rank on which NCCL has failed goes on to the barriers, so that all ranks leave
// together.
#include "runtime/gpu_sum/faster_way.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>

#include "tutti/error.hpp"

#include "runtime/gpu_sum/allgather.hpp"
#include "runtime/job/agree.hpp"

namespace tutti::gpus {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLeastBytes = std::size_t{256} << 10;
constexpr std::size_t kMostBytes = std::size_t{8} << 20;
constexpr int kRuns = 3;  // the first run connects, and does not count
constexpr Timeout kLongestTrial{20};

std::string to_milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", 1e3 * seconds);
  return text;
}

class Trial {
 public:
  Trial(Group& group, const std::shared_ptr<Gpus>& gpus, int device, std::size_t bytes)
      : group_(group), gpus_(*gpus), device_(device) {
    const std::size_t unit = kGrain * group.topology().largest_node();
    const std::size_t whole = std::clamp(bytes, kLeastBytes, kMostBytes) / unit * unit + unit;
    tutti::agree(group.engine(), [&] {
      memory_ = gpus->allocate({static_cast<std::int64_t>(whole / sizeof(float))}, DType::float32,
                               gpu(device));
      event_ = UniqueHandle<EventTraits>(
          {&gpus_.accelerator(), gpus_.accelerator().create_event(device)});
      gpus_.kernels(device).fill(stream(), memory_->bytes(), DType::float32, memory_->count(), 0);
    });
  }

  [[nodiscard]] Stream stream() const { return gpus_.stream(device_); }
  [[nodiscard]] Sum sum() {
    return {memory_->bytes(), memory_->bytes(), memory_->count(), DType::float32};
  }

  /// This rank's best time. Collective.
  double time(const std::function<void()>& body) {
    double best = std::numeric_limits<double>::max();
    for (int run = 0; run < kRuns; ++run) {
      await_stream([] { return false; });
      meet();
      const auto begin = Clock::now();
      body();
      const std::chrono::duration<double> passed = Clock::now() - begin;
      if (run > 0) best = std::min(best, passed.count());
    }
    return best;
  }

  /// Returns when the work in the stream has run, or `gives_up` says so.
  void await_stream(const std::function<bool()>& gives_up) {
    Accelerator& accelerator = gpus_.accelerator();
    accelerator.record(event_.get().event, device_, stream());
    group_.engine().await([&] { return gives_up() || accelerator.done(event_.get().event); },
                          [] { return std::string("trial of the ways to sum over nodes"); });
  }

 private:
  void meet() {
    const auto describe = [] { return std::string("trial of the ways to sum over nodes"); };
    group_.engine().run({.kind = collectives::Kind::barrier,
                         .segments = {},
                         .describe = describe,
                         .verb = collectives::Verb::sum_of_gpus});
  }

  Group& group_;
  Gpus& gpus_;
  int device_;
  std::optional<Tensor> memory_;
  UniqueHandle<EventTraits> event_;
};

/// One rank's best times, in seconds.
struct Times {
  double staged = 0;
  double nccl = 0;
  char why[160] = {};  ///< the reason if NCCL has failed; else empty
};

/// A trial of NCCL, and its error if there is one. Then ends NCCL's work in the stream: nothing may
/// follow it there.
class Attempt {
 public:
  Attempt(Group& group, Trial& trial, const std::shared_ptr<NodeCollectives>& nccl)
      : group_(group), trial_(trial), nccl_(nccl), patience_(patience_of_trial(group)) {}

  void operator()() {
    if (!why_.empty()) return;
    try {
      const Sum sum = trial_.sum();
      nccl_->allreduce(trial_.stream(), {&sum, 1}, patience_);
      const auto begin = Clock::now();
      trial_.await_stream([&] {
        if (const auto failure = nccl_->failure()) why_ = *failure;
        if (patience_.timeout.count() > 0 && Clock::now() - begin > patience_.timeout) {
          why_ = "a sum has not ended after " + std::to_string(patience_.timeout.count()) + " s";
        }
        return !why_.empty();
      });
    } catch (const Error& error) {
      if (group_.failed()) throw;
      why_ = error.what();
    }
    if (!why_.empty()) abort_beside(nccl_);
  }
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  Group& group_;
  Trial& trial_;
  std::shared_ptr<NodeCollectives> nccl_;
  Patience patience_;
  std::string why_;
};

}  // namespace

Patience patience_of_trial(Group& group) {
  Patience patience = patience_of(group, "connection of the GPUs of all nodes");
  const bool is_bounded = patience.timeout.count() > 0;  // ranks wait for a rank that has given up
  patience.timeout = is_bounded ? std::min(patience.timeout / 4, kLongestTrial) : kLongestTrial;
  return patience;
}

FasterWay find_faster_way(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                          Reducer& staged, const std::shared_ptr<NodeCollectives>& nccl,
                          std::size_t bytes) {
  Trial trial(group, gpus, device, bytes);
  Attempt attempt(group, trial, nccl);
  Times own;
  own.staged = trial.time([&] {
    const Sum sum = trial.sum();
    staged.allreduce({&sum, 1});
    staged.await();
  });
  own.nccl = trial.time([&] { attempt(); });
  attempt.why().copy(own.why, sizeof own.why - 1);
  Times slowest;
  int failed = -1;
  const std::vector<Times> all = allgather(group, own, "trial of the ways to sum over nodes");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    slowest.staged = std::max(slowest.staged, all[rank].staged);
    slowest.nccl = std::max(slowest.nccl, all[rank].nccl);
    if (failed < 0 && all[rank].why[0] != '\0') failed = static_cast<int>(rank);
  }
  if (failed >= 0) {
    abort_beside(nccl);
    gpus->kept(device).forget(nccl.get());
    return {false, "NCCL does not sum over all nodes: " + name_of(group.topology(), failed) + ": " +
                       all[static_cast<std::size_t>(failed)].why};
  }
  const std::string times = std::to_string(trial.sum().count * sizeof(float)) + " bytes take " +
                            to_milliseconds(slowest.nccl) + " by NCCL over all nodes and " +
                            to_milliseconds(slowest.staged) + " " + staged.describe();
  return {slowest.nccl < slowest.staged, times};
}

}  // namespace tutti::gpus
