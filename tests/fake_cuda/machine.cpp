// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/machine.hpp"

#include <cstdio>
#include <cstdlib>

namespace fake_cuda {

void give_up(const std::string& why) {
  std::fprintf(stderr, "fake CUDA: %s\n", why.c_str());
  std::abort();
}

Machine::Machine() {
  const char* const devices = std::getenv("FAKE_CUDA_DEVICES");
  const int count = devices == nullptr ? 1 : std::atoi(devices);
  for (int i = 0; i < count; ++i) devices_.push_back(std::make_shared<Device>());
  if (const char* const seed = std::getenv("FAKE_CUDA_SEED")) {
    next_seed_ = static_cast<unsigned>(std::atoi(seed));
  }
}

/// Never destroyed: streams run until the process ends.
Machine& Machine::self() {
  static auto* const found = new Machine;
  return *found;
}

int& Machine::current() {
  thread_local int device = 0;
  return pushed_contexts().empty() ? device : pushed_contexts().back();
}

std::vector<int>& Machine::pushed_contexts() {
  thread_local std::vector<int> devices;
  return devices;
}

void Machine::use(int index) {
  const std::lock_guard lock(own_mutex_);
  device(index)->is_used = true;
}

cudaError_t& Machine::last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t Machine::enter(const char* name, Context context) {
  const std::lock_guard lock(own_mutex_);
  ++calls_[name];
  if (broken_ != cudaSuccess) return broken_;
  if (const auto found = faults_.find(name); found != faults_.end()) {
    Fault& fault = found->second;
    if (fault.calls_left == 0) return fault.error;
    if (--fault.calls_left == 0) {
      const cudaError_t error = fault.error;
      faults_.erase(found);
      return error;
    }
  }
  if (context == Context::none) return cudaSuccess;
  if (devices_.empty()) return cudaErrorNoDevice;
  devices_.at(static_cast<std::size_t>(current()))->is_used = true;
  return cudaSuccess;
}

cudaError_t Machine::leave(cudaError_t error) {
  if (error != cudaSuccess) last_error() = error;
  return error;
}

int Machine::count() const {
  const std::lock_guard lock(own_mutex_);
  return static_cast<int>(devices_.size());
}

std::shared_ptr<Device> Machine::device(int index) {
  return devices_.at(static_cast<std::size_t>(index));
}

bool Machine::is_used(int device) const {
  const std::lock_guard lock(own_mutex_);
  return devices_.at(static_cast<std::size_t>(device))->is_used;
}

std::shared_ptr<Stream> Machine::make_stream(int index) {
  auto stream = std::make_shared<Stream>(device(index), index, next_seed_++, memory);
  Stream::start(stream);
  return stream;
}

std::shared_ptr<Stream> Machine::find(cudaStream_t stream) {
  const std::lock_guard lock(own_mutex_);
  if (stream == nullptr) {
    auto& own = default_streams_[current()];
    if (own == nullptr) own = make_stream(current());
    return own;
  }
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

cudaStream_t Machine::add_stream() {
  const std::lock_guard lock(own_mutex_);
  auto made = make_stream(current());
  auto* const handle = reinterpret_cast<cudaStream_t>(made.get());
  streams_[handle] = std::move(made);
  return handle;
}

bool Machine::remove(cudaStream_t stream) {
  const std::lock_guard lock(own_mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return false;
  found->second->close();
  closed_.push_back(std::move(found->second));
  streams_.erase(found);
  return true;
}

std::shared_ptr<Event> Machine::find(cudaEvent_t event) const {
  const std::lock_guard lock(own_mutex_);
  const auto found = events_.find(event);
  return found == events_.end() ? nullptr : found->second;
}

cudaEvent_t Machine::add_event() {
  const std::lock_guard lock(own_mutex_);
  auto made = std::make_shared<Event>();
  made->device = current();
  auto* const handle = reinterpret_cast<cudaEvent_t>(made.get());
  events_[handle] = std::move(made);
  return handle;
}

bool Machine::remove(cudaEvent_t event) {
  const std::lock_guard lock(own_mutex_);
  return events_.erase(event) == 1;
}

cudaStreamCaptureMode& Machine::capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

bool Machine::may_call_beside_captures() {
  if (capture_mode() == cudaStreamCaptureModeRelaxed) return true;
  const std::lock_guard lock(own_mutex_);
  bool may = true;
  for (const auto& [handle, stream] : streams_) {
    if (!stream->is_capturing) continue;
    stream->is_capture_lost = true;
    may = false;
  }
  return may;
}

void Machine::await_all() {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard lock(own_mutex_);
    for (const auto& [device, stream] : default_streams_) all.push_back(stream);
    for (const auto& [handle, stream] : streams_) all.push_back(stream);
    all.insert(all.end(), closed_.begin(), closed_.end());
  }
  for (const auto& stream : all) stream->await(stream->num_put());
  const std::lock_guard lock(own_mutex_);
  std::erase_if(closed_, [](const auto& stream) { return stream->has_run(stream->num_put()); });
}

void set_devices(int count) {
  Machine& machine = Machine::self();
  const std::lock_guard lock(machine.own_mutex_);
  for (const auto& [device, stream] : machine.default_streams_) {
    stream->close();
    machine.closed_.push_back(stream);
  }
  machine.default_streams_.clear();
  machine.devices_.clear();
  for (int i = 0; i < count; ++i) machine.devices_.push_back(std::make_shared<Device>());
  Machine::current() = 0;
}

void fail(const std::string& call, int nth, cudaError_t error) {
  Machine& machine = Machine::self();
  const std::lock_guard lock(machine.own_mutex_);
  machine.faults_[call] = {nth, error};
}

void break_down(cudaError_t error) {
  Machine& machine = Machine::self();
  const std::lock_guard lock(machine.own_mutex_);
  machine.broken_ = error;
}

void repair() {
  Machine& machine = Machine::self();
  const std::lock_guard lock(machine.own_mutex_);
  machine.broken_ = cudaSuccess;
  machine.faults_.clear();
}

void hang(int device) {
  Machine& machine = Machine::self();
  const std::lock_guard lock(machine.own_mutex_);
  machine.device(device)->hangs = true;
}

void go_on(int device) {
  Machine& machine = Machine::self();
  const std::lock_guard lock(machine.own_mutex_);
  machine.device(device)->hangs = false;
}

void set_capturing(cudaStream_t stream, bool is_capturing) {
  const auto found = Machine::self().find(stream);
  if (found == nullptr) return;
  found->is_capturing = is_capturing;
  found->is_capture_lost = false;
}

bool is_capture_lost(cudaStream_t stream) {
  const auto found = Machine::self().find(stream);
  return found != nullptr && found->is_capture_lost;
}

bool is_used(int device) { return Machine::self().is_used(device); }

int calls(const std::string& call) {
  Machine& machine = Machine::self();
  const std::lock_guard lock(machine.own_mutex_);
  return machine.calls_[call];
}

std::size_t copied_bytes() { return Machine::self().copied_bytes; }

cudaError_t left_behind() { return Machine::last_error(); }

Counts counts() {
  Machine& machine = Machine::self();
  Counts counts;
  counts.device_blocks = machine.memory.num_blocks();
  {
    const std::lock_guard lock(machine.mutex);
    counts.pinned_blocks = machine.pinned.size();
    counts.registered_blocks = machine.registered.size();
  }
  const std::lock_guard lock(machine.own_mutex_);
  counts.streams = machine.streams_.size();
  counts.events = machine.events_.size();
  return counts;
}

}  // namespace fake_cuda
