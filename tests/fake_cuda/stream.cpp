// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <optional>
#include <thread>

#include "tests/fake_cuda/machine.hpp"

namespace fake_cuda {

namespace {

constexpr auto kPause = std::chrono::microseconds(20);
constexpr int kYields = 100;
constexpr int kMostDelay = 60;  // microseconds
constexpr unsigned kOneInLate = 8;
// Opening and closing the device's memory takes longer than most work, so that streams leave it
// open for a moment, but for a few times.
constexpr auto kLeftOpen = std::chrono::milliseconds(5);
constexpr unsigned kOneInClosed = 32;

}  // namespace

Stream::Stream(std::shared_ptr<Device> device, int index, unsigned seed, DeviceMemory& memory)
    : owner_(std::move(device)), index_(index), memory_(memory), random_(seed) {}

void Stream::start(const std::shared_ptr<Stream>& stream) {
  std::thread([stream] { stream->run(); }).detach();
}

std::size_t Stream::put(Work work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_one();
  return ++num_put_;
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_one();
}

void Stream::await(std::size_t count) const {
  for (int i = 0; i < kYields && !has_run(count); ++i) std::this_thread::yield();
  while (!has_run(count)) std::this_thread::sleep_for(kPause);
}

void Stream::run() {
  std::optional<DeviceMemory::Open> open;
  for (;;) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      const auto has_work = [&] { return is_closed_ || !work_.empty(); };
      if (open.has_value() && !changed_.wait_for(lock, kLeftOpen, has_work)) open.reset();
      changed_.wait(lock, has_work);
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    if (random_() % kOneInLate == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % kMostDelay));
    }
    while (owner_->hangs) std::this_thread::sleep_for(kPause);
    if (!open.has_value()) open.emplace(memory_);
    work();
    work = nullptr;
    if (random_() % kOneInClosed == 0) open.reset();
    ++num_run_;
  }
}

}  // namespace fake_cuda
