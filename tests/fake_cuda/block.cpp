// SPDX-License-Identifier: Apache-2.0
// The threads of a block, on one thread of the host. They run one after the other until one waits
// for others: it is left where it is, and gone on with when all of its warp, or of its block, have
// come. So a kernel in which nobody waits needs one fibre for a block, and one that adds over the
// block has one for each thread.
#include <cuda_runtime.h>
#include <optional>

#include "runtime/simulated/fibre.hpp"
#include "tests/fake_cuda/machine.hpp"

thread_local dim3 threadIdx;
thread_local dim3 blockIdx;

namespace fake_cuda {

namespace {

using tutti::simulated::Fibre;
using tutti::simulated::Stacks;

constexpr unsigned kWarpThreads = 32;
constexpr unsigned kMostThreads = 256;

enum class State { not_begun, in_shuffle, at_barrier, ended };

struct Thread {
  State state = State::not_begun;
  Fibre* fibre = nullptr;  ///< that it was left in
  double value = 0;
  unsigned delta = 0;
};

class Block {
 public:
  Block(Stacks& stacks, unsigned num_threads, const std::function<void()>& thread)
      : stacks_(stacks), thread_(thread), threads_(num_threads) {}

  void run() {
    begin_threads();
    while (go_on()) {
    }
    for (const Thread& thread : threads_) {
      if (thread.state != State::ended) {
        give_up("threads of a block wait for others of it that have ended or wait elsewhere");
      }
    }
  }

  double shuffle_down(double value, unsigned delta) {
    const unsigned own = threadIdx.x;
    threads_[own].value = value;
    threads_[own].delta = delta;
    leave(State::in_shuffle);
    return threads_[own].value;
  }

  void wait() { leave(State::at_barrier); }

 private:
  [[nodiscard]] unsigned size() const { return static_cast<unsigned>(threads_.size()); }

  /// Every fibre runs the next thread that nobody has begun until one of its threads waits.
  void begin_threads() {
    while (next_ < size()) {
      auto& fibre = fibres_.emplace_back(std::make_unique<Fibre>(
          stacks_.stack(static_cast<int>(fibres_.size())), [this] { run_threads(); }));
      now_ = fibre.get();
      now_->resume();
    }
  }

  void run_threads() {
    while (next_ < size()) {
      const unsigned own = next_++;
      threadIdx.x = own;
      thread_();
      threads_[own].state = State::ended;
    }
  }

  void leave(State state) {
    const unsigned own = threadIdx.x;
    threads_[own].state = state;
    threads_[own].fibre = now_;
    now_->leave();
  }

  void resume(unsigned index) {
    threadIdx.x = index;
    now_ = threads_[index].fibre;
    now_->resume();
  }

  [[nodiscard]] bool all(unsigned begin, unsigned end, State state) const {
    for (unsigned i = begin; i < end; ++i) {
      if (threads_[i].state != state) return false;
    }
    return true;
  }

  /// Whether somebody could.
  bool go_on() {
    bool has_run = false;
    for (unsigned warp = 0; warp < size(); warp += kWarpThreads) {
      if (!all(warp, warp + kWarpThreads, State::in_shuffle)) continue;
      shuffle(warp);
      for (unsigned i = warp; i < warp + kWarpThreads; ++i) resume(i);
      has_run = true;
    }
    if (has_run || !all(0, size(), State::at_barrier)) return has_run;
    for (unsigned i = 0; i < size(); ++i) resume(i);
    return true;
  }

  void shuffle(unsigned warp) {
    double given[kWarpThreads];
    for (unsigned lane = 0; lane < kWarpThreads; ++lane) given[lane] = threads_[warp + lane].value;
    for (unsigned lane = 0; lane < kWarpThreads; ++lane) {
      Thread& thread = threads_[warp + lane];
      if (lane + thread.delta < kWarpThreads) thread.value = given[lane + thread.delta];
    }
  }

  Stacks& stacks_;
  const std::function<void()>& thread_;
  std::vector<Thread> threads_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  Fibre* now_ = nullptr;
  unsigned next_ = 0;
};

/// Of this thread of the host.
thread_local Block* running = nullptr;

}  // namespace

double shuffle_down(double value, unsigned delta) { return running->shuffle_down(value, delta); }
void wait_for_block() { running->wait(); }

void run_blocks(const cudaLaunchConfig_t& config, const std::function<void()>& thread) {
  const unsigned num_threads = config.blockDim.x;
  if (num_threads % kWarpThreads != 0 || num_threads > kMostThreads) {
    give_up("a block of " + std::to_string(num_threads) + " threads");
  }
  thread_local Stacks stacks(static_cast<int>(kMostThreads));
  for (unsigned index = 0; index < config.gridDim.x; ++index) {
    Block block(stacks, num_threads, thread);
    blockIdx.x = index;
    running = &block;
    block.run();
  }
  running = nullptr;
}

}  // namespace fake_cuda
