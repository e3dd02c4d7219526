// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/tutti_calls.hpp"

#include <memory>

#include <tutti/gpu.hpp>
#include <tutti/kvstore.hpp>

namespace apps::benchmark {
namespace {

Call pushpull_call(const Job& job, const tutti::Compression& compression,
                   const tutti::Communicator& world, tutti::Device device) {
  auto store = std::make_shared<tutti::KVStore>(tutti::KVStore::create(world));
  store->set_gradient_compression(compression);
  std::vector<tutti::Key> keys;
  for (std::size_t i = 0; i < job.layout.pairs.size(); ++i) {
    keys.emplace_back(i);
    store->init(keys.back(),
                tutti::Tensor::zeros(job.layout.pairs[i].output, job.pattern.dtype(), device));
  }
  return [store, keys](Slot& slot) { store->pushpull(keys, slot.inputs, slot.outputs); };
}

/// With the work that a call leaves in the device's stream.
Call gpu_call(const Job& job, const Options& options, tutti::Communicator world) {
  const tutti::Device device = tutti::gpu_of(world);
  Call call = [world](Slot& slot) mutable { world.allreduce(slot.inputs[0], slot.outputs[0]); };
  if (std::string(job.chosen.name) == "pushpull") {
    call = pushpull_call(job, options.compression, world, device);
  }
  return [call, device](Slot& slot) {
    call(slot);
    tutti::synchronize(device);
  };
}

}  // namespace

Call tutti_call(const Job& job, const Options& options, const tutti::Communicator& communicator) {
  if (options.on_gpu) return gpu_call(job, options, communicator);
  const tutti::ReduceOp op = options.op;
  const std::string name = job.chosen.name;
  if (name == "pushpull")
    return pushpull_call(job, options.compression, communicator, tutti::cpu());
  auto world = communicator;
  if (name == "allreduce") {
    return
        [world, op](Slot& slot) mutable { world.allreduce(slot.inputs[0], slot.outputs[0], op); };
  }
  if (name == "reduce_scatter") {
    return [world, op](Slot& slot) mutable {
      world.reduce_scatter(slot.inputs[0], slot.outputs[0], op);
    };
  }
  if (name == "allgather") {
    return [world](Slot& slot) mutable { world.allgather(slot.inputs[0], slot.outputs[0]); };
  }
  if (name == "broadcast") {
    return [world](Slot& slot) mutable { world.broadcast(slot.outputs[0], kRoot); };
  }
  if (name == "reduce") {
    return [world, op](Slot& slot) mutable {
      world.reduce(slot.inputs[0], slot.outputs[0], kRoot, op);
    };
  }
  return [world](Slot&) mutable { world.barrier(); };
}

}  // namespace apps::benchmark
