// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/disk_writer.hpp"

#include <exception>
#include <sched.h>
#include <string>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/job/signals_blocked.hpp"

namespace tutti::checkpoint {

namespace {

/// The program's threads and other files go first.
void become_idle() {
  const sched_param no_priority{};
  sched_setscheduler(0, SCHED_IDLE, &no_priority);  // of this thread alone, on Linux
  constexpr int kThisThread = 1;                    // IOPRIO_WHO_PROCESS
  constexpr int kIdle = 3 << 13;                    // IOPRIO_CLASS_IDLE
  syscall(SYS_ioprio_set, kThisThread, 0, kIdle);
}

}  // namespace

DiskWriter::~DiskWriter() {
  if (thread_.joinable()) thread_.join();
}

Pending DiskWriter::start(std::uint64_t number, std::function<Saved()> copy,
                          std::function<void(const std::string&)> warn) {
  auto waiting = std::make_shared<AsyncWaiting>();
  waiting->warn = std::move(warn);
  waiting->await = [shared = shared_](const std::function<bool()>& ready) {
    std::unique_lock lock(shared->mutex);
    shared->ended.wait(lock, ready);
  };
  state_ = std::make_shared<AsyncState>(std::move(waiting), "save_async", 1);
  shared_->is_done = false;
  shared_->saved.reset();
  number_ = number;
  const auto body = [shared = shared_, state = state_, copy = std::move(copy)] {
    become_idle();
    std::optional<Saved> saved;
    std::exception_ptr error;
    try {
      saved = copy();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(shared->mutex);
    shared->saved = std::move(saved);
    shared->is_done = true;
    state->end_part(error, 0);
    shared->ended.notify_all();
  };
  const collectives::SignalsBlocked blocked;
  try {
    thread_ = std::thread(body);
  } catch (const std::system_error& error) {
    shared_->is_done = true;
    state_.reset();
    throw Error(ErrorCode::out_of_memory,
                std::string("save_async: no thread can be made: ") + error.what() +
                    "; raise the limit of threads (ulimit -u, the cgroup's pids.max), or save()");
  }
  return Pending(state_);
}

bool DiskWriter::wait_for(std::chrono::duration<double> most) const {
  std::unique_lock lock(shared_->mutex);
  return shared_->ended.wait_for(lock, most, [&] { return shared_->is_done; });
}

std::optional<Saved> DiskWriter::take() {
  if (thread_.joinable()) thread_.join();
  const std::shared_ptr<AsyncState> state = std::exchange(state_, nullptr);
  if (state != nullptr) state->wait();
  return std::exchange(shared_->saved, std::nullopt);
}

}  // namespace tutti::checkpoint
