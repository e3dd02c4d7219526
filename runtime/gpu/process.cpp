// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process: the variable that holds them, and the public calls.
#include <atomic>

#include "tutti/error.hpp"
#include "tutti/gpu.hpp"
#include "tutti/settings.hpp"

#include "collectives/text/numbers.hpp"
#include "runtime/gpu/gpus.hpp"

namespace tutti {

namespace gpus {

namespace {

struct Process {
  std::mutex mutex;
  std::atomic<bool> looked{false};
  std::atomic<int> count{0};
  std::atomic<double> timeout_s{Settings{}.timeout.count()};
  std::shared_ptr<Gpus> gpus;
  std::string reason;
};

/// The process's GPUs. Never destroyed: when a process ends, CUDA may be gone already, and freeing
/// memory waits for work that may never end.
Process& process() {
  static auto* const found = new Process;
  return *found;
}

/// The process's GPUs, after looking for them once. GPUs that a test has put here stay.
Process& looked_at() {
  Process& own = process();
  if (own.looked.load(std::memory_order_acquire)) return own;
  const std::lock_guard lock(own.mutex);
  if (own.looked) return own;
  Found found = find_accelerator();
  if (found.accelerator != nullptr) own.gpus = std::make_shared<Gpus>(std::move(found.accelerator));
  own.reason = std::move(found.reason);
  own.count = own.gpus == nullptr ? 0 : own.gpus->count();
  own.looked.store(true, std::memory_order_release);
  return own;
}

}  // namespace

bool is_here(Device device) noexcept {
  const int count = process().count.load(std::memory_order_relaxed);
  return device.kind == DeviceKind::gpu && device.index >= 0 && device.index < count;
}

Timeout timeout() noexcept { return Timeout(process().timeout_s.load(std::memory_order_relaxed)); }

void set_timeout(Timeout timeout) noexcept {
  process().timeout_s.store(timeout.count(), std::memory_order_relaxed);
}

std::shared_ptr<Gpus> find_gpus() { return looked_at().gpus; }

std::shared_ptr<Gpus> require_gpus(const std::string& what, Device device) {
  const Process& own = looked_at();
  if (own.gpus == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                what + ": a tensor on " + to_string(device) + ", but " + own.reason);
  }
  own.gpus->require(what, device);
  return own.gpus;
}

std::string describe() {
  const Process& own = looked_at();
  if (own.gpus == nullptr) return "none: " + own.reason;
  std::string text = own.gpus->accelerator().describe();
  for (int device = 0; device < own.gpus->count(); ++device) {
    const DeviceInfo info = own.gpus->accelerator().info(device);
    const double gibibytes = static_cast<double>(info.memory_bytes) / double{1 << 30};
    text += (device == 0 ? ": " : "; ") + to_string(tutti::gpu(device)) + " " + info.name + ", " +
            fixed(gibibytes, 1) + " GiB";
  }
  return text;
}

void replace_gpus(std::shared_ptr<Gpus> gpus) {
  Process& own = process();
  const std::lock_guard lock(own.mutex);
  own.gpus = std::move(gpus);
  own.count = own.gpus == nullptr ? 0 : own.gpus->count();
  own.looked = true;
  own.reason = "a test has taken them away";
}

}  // namespace gpus

int num_gpus() noexcept {
  try {
    const auto gpus = gpus::find_gpus();
    return gpus == nullptr ? 0 : gpus->count();
  } catch (...) {
    return 0;  // a machine that cannot even give a reason has no usable GPU
  }
}

std::string describe_gpus() { return gpus::describe(); }

void set_stream(Device device, void* stream) {
  gpus::require_gpus("set_stream", device)->set_stream(device.index, stream);
}

void* stream_of(Device device) {
  return gpus::require_gpus("stream_of", device)->stream(device.index);
}

void wait_for_stream(Device device, void* stream) {
  gpus::require_gpus("wait_for_stream", device)->wait_for_stream(device.index, stream);
}

void let_stream_wait(Device device, void* stream) {
  gpus::require_gpus("let_stream_wait", device)->let_stream_wait(device.index, stream);
}

void synchronize(Device device) {
  gpus::require_gpus("synchronize", device)->synchronize(device.index);
}

}  // namespace tutti
