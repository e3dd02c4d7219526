// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/gpus.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "tutti/error.hpp"

#include "runtime/base/tensor_bytes.hpp"

namespace tutti::gpus {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kYield = std::chrono::milliseconds(5);
constexpr auto kSleep = std::chrono::microseconds(50);
constexpr auto kPoll = std::chrono::seconds(1);

/// Polls with a deadline, which begins anew as long as `renews()` says so. As in every wait, at
/// most a second of the time between two polls counts: the process may have been stopped.
template <class Ready, class Renews>
void wait_until(Ready ready, Renews renews, Timeout timeout, const std::string& what) {
  auto last = Clock::now();
  Clock::duration waited{0};
  while (!ready()) {
    const auto now = Clock::now();
    waited = renews() ? Clock::duration{0} : waited + std::min<Clock::duration>(now - last, kPoll);
    last = now;
    if (timeout.count() > 0 && waited > timeout) {
      throw Error(ErrorCode::timeout, what + " has not ended after " +
                                          std::to_string(timeout.count()) +
                                          " s; is other work in its stream waiting for something?");
    }
    if (waited > kYield) {
      std::this_thread::sleep_for(kSleep);
    } else if (waited > kSpin) {
      std::this_thread::yield();
    }
  }
}

}  // namespace

void wait(Accelerator& accelerator, Event event, Timeout timeout, const std::string& what) {
  wait_until([&] { return accelerator.done(event); }, [] { return false; }, timeout, what);
}

Gpus::Gpus(std::shared_ptr<Accelerator> accelerator) : accelerator_(std::move(accelerator)) {
  for (int device = 0; device < accelerator_->count(); ++device) {
    auto own = std::make_unique<PerDevice>();
    own->pool = std::make_unique<Pool>(*accelerator_, device);
    devices_.push_back(std::move(own));
  }
}

Gpus::~Gpus() {
  for (const auto& device : devices_) {
    if (device->order != nullptr) accelerator_->destroy_event(device->order);
    for (const BounceBuffer& buffer : device->buffers) {
      if (buffer.event != nullptr) accelerator_->destroy_event(buffer.event);
      if (buffer.memory != nullptr) accelerator_->release_pinned(buffer.memory);
    }
  }
}

void Gpus::require(const std::string& what, Device device) const {
  if (device.kind == DeviceKind::gpu && device.index >= 0 && device.index < count()) return;
  throw Error(ErrorCode::invalid_argument,
              what + ": " + to_string(device) + " is not here; this process has " +
                  (count() == 1 ? "gpu(0)" : "gpu(0) to gpu(" + std::to_string(count() - 1) + ")"));
}

Stream Gpus::stream(int device) const {
  const std::lock_guard lock(mutex_);
  return at(device).stream;
}

void Gpus::require_usable(const char* call, int device, Stream stream) const {
  const std::string why = accelerator_->refusal_of(device, stream);
  if (why.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + " of " + to_string(gpu(device)) + ": " + why);
}

void Gpus::require_stream(int device) const {
  require_usable("the stream", device, stream(device));
}

/// The caller holds mutex_.
void Gpus::let_wait(int device, Stream earlier, int other_device, Stream later) {
  PerDevice& own = at(device);
  if (own.order == nullptr) own.order = accelerator_->create_event(device);
  accelerator_->record(own.order, device, earlier);
  accelerator_->wait(other_device, later, own.order);
}

void Gpus::set_stream(int device, Stream stream) {
  const std::lock_guard lock(mutex_);
  PerDevice& own = at(device);
  if (stream == own.stream) return;
  require_usable("set_stream", device, stream);
  let_wait(device, own.stream, device, stream);
  own.stream = stream;
}

void Gpus::wait_for_stream(int device, Stream other) {
  const std::lock_guard lock(mutex_);
  const PerDevice& own = at(device);
  if (other == own.stream) return;
  require_usable("wait_for_stream", device, other);
  let_wait(device, other, device, own.stream);
}

void Gpus::let_stream_wait(int device, Stream other) {
  const std::lock_guard lock(mutex_);
  const PerDevice& own = at(device);
  if (other == own.stream) return;
  require_usable("let_stream_wait", device, other);
  let_wait(device, own.stream, device, other);
}

void Gpus::order(int earlier, int later) {
  if (earlier == later) return;
  const std::lock_guard lock(mutex_);
  let_wait(earlier, at(earlier).stream, later, at(later).stream);
}

bool Gpus::begin_turn(int device) {
  const std::lock_guard lock(mutex_);
  PerDevice& own = at(device);
  const std::thread::id self = std::this_thread::get_id();
  if (own.turns > 0 && own.turn_of != self) return false;
  own.turn_of = self;
  ++own.turns;
  return true;
}

void Gpus::end_turn(int device) noexcept {
  const std::lock_guard lock(mutex_);
  --at(device).turns;
}

void SumTurn::begin(Gpus& gpus, int device) {
  if (gpus_ != nullptr) return;
  if (!gpus.begin_turn(device)) {
    throw Error(ErrorCode::invalid_argument,
                "values on " + to_string(gpu(device)) +
                    " are summed from two threads at once, whose order may differ between ranks, "
                    "and NCCL would hang; let one call end before the other begins, or sum by way "
                    "of the host with TUTTI_GPU_PATH=host");
  }
  gpus_ = &gpus;
  device_ = device;
}

Tensor Gpus::allocate(const Shape& shape, DType dtype, Device device) {
  require("tensor", device);
  const std::optional<std::size_t> bytes = bytes_of(shape, dtype);
  std::byte* memory = bytes ? at(device.index).pool->take(*bytes) : nullptr;
  if (memory == nullptr) {
    throw Error(ErrorCode::out_of_memory,
                "tensor: " + to_string(device) + " (" + accelerator_->info(device.index).name +
                    ") has no memory for shape " + to_string(shape) + " of " + to_string(dtype));
  }
  std::shared_ptr<void> owner(memory, [gpus = shared_from_this(), device](void* freed) {
    gpus->at(device.index).pool->give_back(static_cast<std::byte*>(freed));
  });
  return Tensor::adopt(std::move(owner), memory, shape, dtype, device);
}

void Gpus::copy(std::byte* to, Device to_device, const std::byte* from, Device from_device,
                std::size_t bytes, const Wait& wait) {
  if (bytes == 0) return;
  const bool to_gpu = to_device.kind == DeviceKind::gpu;
  const bool from_gpu = from_device.kind == DeviceKind::gpu;
  if (to_gpu) require_stream(to_device.index);
  if (from_gpu) require_stream(from_device.index);
  if (to_gpu && from_gpu) {
    order(from_device.index, to_device.index);
    accelerator_->copy(to_device.index, stream(to_device.index), to, from, bytes);
    order(to_device.index, from_device.index);
  } else if (to_gpu) {
    upload(to_device.index, to, from, bytes, wait);
  } else if (from_gpu) {
    download(from_device.index, to, from, bytes, wait);
  } else {
    std::memmove(to, from, bytes);
  }
}

void Gpus::await(Event event, const Wait& wait, const std::string& what) {
  if (wait) return wait([&] { return accelerator_->done(event); }, what);
  gpus::wait(*accelerator_, event, timeout(), what);
}

Gpus::BounceBuffer& Gpus::next_buffer(int device, const Wait& wait) {
  PerDevice& own = at(device);
  BounceBuffer& buffer = own.buffers[own.next_buffer++ % kBounceBuffers];
  if (buffer.memory == nullptr) {
    if (buffer.event == nullptr) buffer.event = accelerator_->create_event(device);
    buffer.memory = accelerator_->allocate_pinned(device, kBounceBytes);
    if (buffer.memory == nullptr) {
      throw Error(ErrorCode::out_of_memory,
                  "no pinned memory for copies between the cpu and " + to_string(gpu(device)));
    }
  } else {
    if (!buffer.is_followed) accelerator_->record(buffer.event, device, stream(device));
    buffer.is_followed = true;
    await(buffer.event, wait, "a copy from the cpu to " + to_string(gpu(device)));
  }
  return buffer;
}

/// Copies, and records an event behind the copy. If the event cannot be recorded, the next use of
/// the buffer records it.
void Gpus::copy_followed(int device, BounceBuffer& buffer, std::byte* to, const std::byte* from,
                         std::size_t bytes) {
  buffer.is_followed = false;
  accelerator_->copy(device, stream(device), to, from, bytes);
  accelerator_->record(buffer.event, device, stream(device));
  buffer.is_followed = true;
}

void Gpus::upload(int device, std::byte* to, const std::byte* from, std::size_t bytes,
                  const Wait& wait) {
  const std::lock_guard lock(at(device).buffers_in_use);
  for (std::size_t done = 0; done < bytes; done += kBounceBytes) {
    const std::size_t size = std::min(kBounceBytes, bytes - done);
    BounceBuffer& buffer = next_buffer(device, wait);
    std::memcpy(buffer.memory, from + done, size);
    copy_followed(device, buffer, to + done, buffer.memory, size);
  }
}

/// Copies to the host by several buffers: all are filled before the first is read.
void Gpus::download(int device, std::byte* to, const std::byte* from, std::size_t bytes,
                    const Wait& wait) {
  const std::lock_guard lock(at(device).buffers_in_use);
  const std::size_t chunks = (bytes + kBounceBytes - 1) / kBounceBytes;
  std::array<BounceBuffer*, kBounceBuffers> filled{};
  const auto size_of_chunk = [&](std::size_t chunk) {
    return std::min(kBounceBytes, bytes - chunk * kBounceBytes);
  };
  for (std::size_t step = 0; step < chunks + kBounceBuffers; ++step) {
    if (step >= kBounceBuffers && step - kBounceBuffers < chunks) {
      const std::size_t chunk = step - kBounceBuffers;
      const BounceBuffer& buffer = *filled[chunk % kBounceBuffers];
      await(buffer.event, wait, "a copy from " + to_string(gpu(device)));
      std::memcpy(to + chunk * kBounceBytes, buffer.memory, size_of_chunk(chunk));
    }
    if (step >= chunks) continue;
    BounceBuffer& buffer = next_buffer(device, wait);
    copy_followed(device, buffer, buffer.memory, from + step * kBounceBytes, size_of_chunk(step));
    filled[step % kBounceBuffers] = &buffer;
  }
}

void Gpus::synchronize(int device) {
  require_stream(device);
  const EventTraits::Handle event{accelerator_.get(), accelerator_->create_event(device)};
  const UniqueHandle<EventTraits> owned(event);
  accelerator_->record(event.event, device, stream(device));
  const auto ready = [&] { return accelerator_->done(event.event); };
  const auto is_watched = [&] { return run_checks(device); };
  wait_until(ready, is_watched, timeout(), "the work in the stream of " + to_string(gpu(device)));
  run_checks(device);  // an abort also ends work in the stream
}

void Gpus::set_check(int device, const void* owner, Check check) {
  PerDevice& own = at(device);
  const std::lock_guard lock(own.checks_in_use);
  if (check) {
    own.checks[owner] = std::move(check);
  } else {
    own.checks.erase(owner);
  }
}

bool Gpus::run_checks(int device) const {
  PerDevice& own = at(device);
  const std::lock_guard lock(own.checks_in_use);
  bool is_watched = false;
  for (const auto& [owner, check] : own.checks) is_watched = check() || is_watched;
  return is_watched;
}

std::size_t Gpus::allocations() const {
  std::size_t sum = 0;
  for (const auto& device : devices_) sum += device->pool->allocations();
  return sum;
}

}  // namespace tutti::gpus
