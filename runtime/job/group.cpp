// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/group.hpp"

#include <exception>
#include <unistd.h>

#include "tutti/error.hpp"

#include "collectives/leak.hpp"
#include "runtime/gpu/tensor_ops.hpp"
#include "runtime/job/stop_flag.hpp"

namespace tutti {

namespace {

/// The size from sysconf; a common one if it gives none, as in some containers.
std::size_t cache_bytes(int level, std::size_t usual) {
  const long bytes = sysconf(level);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : usual;
}

collectives::CacheSizes cache_sizes() {
  return {.level1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, std::size_t{32} << 10),
          .last_level = cache_bytes(_SC_LEVEL3_CACHE_SIZE, std::size_t{32} << 20)};
}

collectives::NodeMemory node_memory(const GroupParts& parts) {
  collectives::NodeMemory memory;
  memory.local_rank = parts.topology.local_rank;
  memory.arena_bytes = parts.arena->reserved_bytes();
  for (std::byte* arena : parts.arenas) memory.peers.push_back({arena});
  return memory;
}

}  // namespace

void allocate_slots(Arena& arena, std::size_t slot_bytes) {
  auto& control = *reinterpret_cast<collectives::ControlBlock*>(arena.data());
  const auto slot = [&] {
    return static_cast<std::uint64_t>(arena.allocate(slot_bytes) - arena.data());
  };
  for (auto& offset : control.stage) offset = slot();
  for (auto& offset : control.result) offset = slot();
}

collectives::Tuning choose_tuning(const collectives::Topology& topology, const Settings& settings) {
  return collectives::Tuning::choose(topology, settings, cache_sizes());
}

Group::Group(GroupParts parts) : parts_(std::move(parts)) {
  engine_ = std::make_unique<collectives::Engine>(
      node_memory(parts_), parts_.topology, parts_.settings, parts_.transport.get(),
      [arena = parts_.arena](std::size_t bytes) { return arena->allocate(bytes); }, parts_.tuning);
  engine_->watch(stop_flag());
  gpus::set_timeout(parts_.settings.timeout);
  observer_ =
      std::make_unique<NodeObserver>(engine_->memory(), engine_->topology(), parts_.processes);
  engine_->set_observer(observer_.get());
  reports_ = std::make_unique<Reports>(*engine_, std::move(parts_.reports));
}

/// After a failure a peer that was stopped may resume in the middle of a call: what it may still
/// read or write stays mapped until the process ends.
Group::~Group() {
  reports_->finish();
  observer_.reset();
  engine_->set_observer(nullptr);
  if (parts_.topology.size == 1) return;
  if (engine_->failed()) {
    collectives::leak_until_exit(
        std::make_shared<std::vector<Mapping>>(std::move(parts_.mappings)));
    collectives::leak_until_exit(parts_.arena);
  } else {
    engine_->leave(std::uncaught_exceptions() > 0);
  }
}

void Group::copy(const TensorView& target, const ConstTensorView& source) {
  const auto on_gpu = [](Device device) { return device.kind == DeviceKind::gpu; };
  if (!on_gpu(target.device()) && !on_gpu(source.device())) return target.copy_from(source);
  gpus::copy(target, source, [&](const std::function<bool()>& ready, const std::string& what) {
    engine_->await(ready, [&] { return what; });
  });
}

Tensor Group::allocate(Shape shape, DType dtype) {
  std::byte* memory = parts_.arena->allocate(shape.count() * size_of(dtype));
  std::shared_ptr<void> owner(
      memory, [arena = parts_.arena](void* freed) { arena->free(static_cast<std::byte*>(freed)); });
  return Tensor::adopt(std::move(owner), memory, shape, dtype);
}

}  // namespace tutti
