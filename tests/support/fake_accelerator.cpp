// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_accelerator.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tutti/error.hpp"

#include "runtime/gpu/gpus.hpp"

namespace test {

namespace {

/// True if the memory is in one of these blocks.
bool holds(const std::map<std::byte*, std::size_t>& blocks, const std::byte* memory) {
  const auto after = blocks.upper_bound(const_cast<std::byte*>(memory));
  if (after == blocks.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return memory < begin + bytes;
}

}  // namespace

FakeAccelerator::FakeAccelerator(int devices, unsigned seed, std::size_t memory_bytes)
    : random_(seed), memory_bytes_(memory_bytes), devices_(static_cast<std::size_t>(devices)) {
  for (int device = 0; device < devices; ++device) {
    devices_[device].kernels = make_fake_kernels(*this, device);
  }
  node_library_ = make_fake_node_library(*this, "");
  peer_access_ = make_fake_peer_access(*this);
}

FakeAccelerator::~FakeAccelerator() {
  *aborts_wait_ = false;
  for (FakeDevice& device : devices_) {
    for (const auto& [memory, bytes] : device.blocks) std::free(memory);
  }
  for (const auto& [memory, bytes] : pinned_) std::free(memory);
}

gpus::DeviceInfo FakeAccelerator::info(int device) const {
  const auto found = merged_.find(device);
  const int bus = found == merged_.end() ? device : found->second;
  return {"fake GPU", "0000:0" + std::to_string(bus) + ":00.0", memory_bytes_, is_sliced_};
}

/// Fills the memory with a pattern, so that reading it before it is written is noticed.
std::byte* FakeAccelerator::allocate(int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  FakeDevice& own = devices_.at(device);
  if (own.used + bytes > memory_bytes_) return nullptr;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(memory, 0xA5, bytes);
  own.used += bytes;
  own.blocks[memory] = bytes;
  return memory;
}

void FakeAccelerator::release(int device, std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  run_all();  // the real one waits for the device, too
  FakeDevice& own = devices_[device];
  own.used -= own.blocks[memory];
  own.blocks.erase(memory);
  std::free(memory);
}

std::size_t FakeAccelerator::used(int device) {
  const std::lock_guard lock(mutex_);
  return devices_.at(device).used;
}

std::byte* FakeAccelerator::allocate_pinned(int /*device*/, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  pinned_[memory] = bytes;
  return memory;
}

void FakeAccelerator::release_pinned(std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  run_all();
  pinned_.erase(memory);
  std::free(memory);
}

std::string FakeAccelerator::refusal_of(int /*device*/, gpus::Stream stream) const {
  return stream != nullptr && stream == captured_ ? "the stream is captured into a graph" : "";
}

gpus::Stream FakeAccelerator::create_stream(int device) {
  const std::lock_guard lock(mutex_);
  return devices_.at(device).streams.insert(std::make_shared<FakeStream>()).first->get();
}

void FakeAccelerator::destroy_stream(int device, gpus::Stream stream) noexcept {
  const std::lock_guard lock(mutex_);
  run_all();
  std::erase_if(devices_[device].streams, [&](const auto& own) { return own.get() == stream; });
}

std::shared_ptr<FakeAccelerator::FakeStream> FakeAccelerator::find(int device,
                                                                   gpus::Stream stream) {
  FakeDevice& own = devices_.at(device);
  if (stream == nullptr) return own.default_stream;
  for (const auto& candidate : own.streams) {
    if (candidate.get() == stream) return candidate;
  }
  throw std::logic_error("a stream of another device, or one that was destroyed");
}

gpus::Event FakeAccelerator::create_event(int /*device*/) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(lacks_event_, false)) {
    throw tutti::Error(tutti::ErrorCode::communication, "cudaEventCreate: an event is lacking");
  }
  return events_.insert(std::make_unique<FakeEvent>()).first->get();
}

void FakeAccelerator::destroy_event(gpus::Event event) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(events_, [&](const auto& own) { return own.get() == event; });
}

void FakeAccelerator::record(gpus::Event event, int device, gpus::Stream stream) {
  const std::lock_guard lock(mutex_);
  const auto own = find(device, stream);
  *static_cast<FakeEvent*>(event) = {own, own->put};
}

/// Waits like CUDA: for the event as it is now, whatever it is recorded for later.
void FakeAccelerator::wait(int device, gpus::Stream stream, gpus::Event event) {
  const std::lock_guard lock(mutex_);
  const FakeEvent now = *static_cast<FakeEvent*>(event);
  enqueue(device, stream, [now] { return is_done(now); });
}

void FakeAccelerator::require_reach(int device) const {
  if (device != cut_off_) return;
  throw tutti::Error(tutti::ErrorCode::communication,
                     "fake call on gpu(" + std::to_string(device) + "): no peer access");
}

bool FakeAccelerator::done(gpus::Event event) {
  const std::lock_guard lock(mutex_);
  const FakeEvent& own = *static_cast<FakeEvent*>(event);
  for (int i = 0; i < 3 && !is_done(own); ++i) {
    if (!run_one()) break;
  }
  return is_done(own);
}

void FakeAccelerator::enqueue(int device, gpus::Stream stream, Work work) {
  const std::lock_guard lock(mutex_);
  if (devices_.at(device).is_broken) {
    throw tutti::Error(tutti::ErrorCode::communication,
                       "gpu(" + std::to_string(device) + ") is broken");
  }
  const auto own = find(device, stream);
  own->work.push_back(std::move(work));
  ++own->put;
}

/// Runs the front of a random stream, or of another one if that cannot run. False if none can.
bool FakeAccelerator::run_one() {
  std::vector<FakeStream*> ready;
  for (FakeDevice& device : devices_) {
    if (device.hangs) continue;
    if (!device.default_stream->work.empty()) ready.push_back(device.default_stream.get());
    for (const auto& stream : device.streams) {
      if (!stream->work.empty()) ready.push_back(stream.get());
    }
  }
  std::shuffle(ready.begin(), ready.end(), random_);
  for (FakeStream* stream : ready) {
    if (!stream->work.front()()) continue;
    stream->work.pop_front();
    ++stream->run;
    return true;
  }
  return false;
}

void FakeAccelerator::run_all() {
  const std::lock_guard lock(mutex_);
  while (run_one()) {
  }
}

std::size_t FakeAccelerator::pending() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const FakeDevice& device : devices_) {
    sum += device.default_stream->work.size();
    for (const auto& stream : device.streams) sum += stream->work.size();
  }
  return sum;
}

void FakeAccelerator::break_down(int device) {
  const std::lock_guard lock(mutex_);
  devices_.at(device).is_broken = true;
}

void FakeAccelerator::hang(int device) {
  const std::lock_guard lock(mutex_);
  devices_.at(device).hangs = true;
}

void FakeAccelerator::go_on(int device) {
  const std::lock_guard lock(mutex_);
  devices_.at(device).hangs = false;
}

void FakeAccelerator::fail_collectives(const std::string& why) {
  const std::lock_guard lock(mutex_);
  failure_of_collectives_ = why;
}

std::optional<std::string> FakeAccelerator::failure_of_collectives() const {
  const std::lock_guard lock(mutex_);
  return failure_of_collectives_;
}

/// Copies like CUDA: ordinary memory of the host is read, or written, before this returns.
void FakeAccelerator::copy(int device, gpus::Stream stream, std::byte* to, const std::byte* from,
                           std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (copy_delay_ms_ > 0 && is_of_device(from) != is_of_device(to)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(copy_delay_ms_));
  }
  if (is_of_device(from) && !is_of_device(to)) bytes_to_host_ += bytes;
  enqueue(device, stream, [=] {
    std::memcpy(to, from, bytes);
    return true;
  });
  if (is_known(to) && is_known(from)) return;
  while (!find(device, stream)->work.empty() && run_one()) {
  }
}

bool FakeAccelerator::is_known(const std::byte* memory) const {
  return holds(pinned_, memory) || holds(pinned_for_others_, memory) || is_of_device(memory);
}

bool FakeAccelerator::is_of_device(const std::byte* memory) const {
  return std::ranges::any_of(
      devices_, [&](const FakeDevice& device) { return holds(device.blocks, memory); });
}

bool FakeAccelerator::pin(int /*device*/, std::byte* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!can_pin_) return false;
  pinned_for_others_[memory] = bytes;
  return true;
}

void FakeAccelerator::unpin(std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  pinned_for_others_.erase(memory);
}

void FakeAccelerator::begin_range(const char* name) noexcept {
  const std::lock_guard lock(mutex_);
  ranges_.push_back(std::string(static_cast<std::size_t>(open_ranges_++), ' ') + name);
}

void FakeAccelerator::end_range() noexcept {
  const std::lock_guard lock(mutex_);
  --open_ranges_;
}

void FakeAccelerator::lose_node_library(const std::string& why) {
  node_library_ = make_fake_node_library(*this, why);
}

gpus::Kernels& FakeAccelerator::kernels(int device) { return *devices_.at(device).kernels; }

FakeGpus::FakeGpus(int devices, unsigned seed, std::size_t memory)
    : accelerator(std::make_shared<FakeAccelerator>(devices, seed, memory)) {
  gpus::replace_gpus(std::make_shared<gpus::Gpus>(accelerator));
}

FakeGpus::~FakeGpus() { gpus::replace_gpus(nullptr); }

}  // namespace test
