// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/work.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace apps::benchmark {
namespace {

/// The offset between the places in the pattern at which the tensors of one call begin, so that a
/// result in the wrong tensor is noticed.
constexpr std::size_t kTensorShift = 7;

std::vector<Stretch> shifted(std::vector<Stretch> stretches, std::size_t tensor) {
  for (Stretch& stretch : stretches) stretch.first += tensor * kTensorShift;
  return stretches;
}

/// A writable view of an input, whose memory belongs to this program; only the collective must not
/// write into it.
tutti::TensorView writable(const tutti::ConstTensorView& input) {
  return {const_cast<std::byte*>(input.bytes()), input.shape(), input.dtype(), input.device()};
}

bool is_on_cpu(const tutti::TensorView& tensor) {
  return tensor.device().kind == tutti::DeviceKind::cpu;
}

/// Writes a tensor. `write` stores all of its elements, or those of a copy on the host that the GPU
/// then gets.
template <class Write>
void write_whole(const tutti::TensorView& tensor, Write&& write) {
  if (is_on_cpu(tensor)) return write(tensor);
  tutti::Tensor image = tutti::Tensor::empty(tensor.shape(), tensor.dtype());
  write(image.view());
  tensor.copy_from(image);
}

/// The tensor's elements on the CPU: the tensor itself, or `image`, which becomes a copy.
tutti::ConstTensorView on_cpu(const tutti::TensorView& tensor,
                              std::optional<tutti::Tensor>& image) {
  if (is_on_cpu(tensor)) return tensor;
  image = tutti::Tensor::empty(tensor.shape(), tensor.dtype());
  image->view().copy_from(tensor);
  return std::as_const(*image).view();
}

}  // namespace

void CacheSweeper::sweep() {
  constexpr std::size_t kLine = 64;
  for (std::size_t at = 0; at < memory_.size(); at += kLine) ++memory_[at];
}

std::size_t cold_slots(std::size_t slot_bytes, std::size_t cache_bytes) {
  if (slot_bytes == 0) return 2;
  return std::clamp(cache_bytes / slot_bytes + 1, std::size_t{2}, kMaxSlots);
}

std::size_t slot_bytes(const Job& job) {
  std::size_t count = 0;
  for (const Layout::Pair& pair : job.layout.pairs) {
    count += (job.has_one_buffer() ? 0 : pair.input.count()) + pair.output.count();
  }
  return count * tutti::size_of(job.pattern.dtype());
}

CallBuffers make_slot(const Job& job, const Allocate& allocate) {
  CallBuffers slot;
  const tutti::DType dtype = job.pattern.dtype();
  for (const Layout::Pair& pair : job.layout.pairs) {
    slot.memory.push_back(allocate(pair.output, dtype));
    slot.outputs.push_back(slot.memory.back().view());
    if (!job.has_one_buffer()) slot.memory.push_back(allocate(pair.input, dtype));
    slot.inputs.push_back(std::as_const(slot.memory.back()).view());
  }
  return slot;
}

Call by_way_of_the_host(const Job& job, Call call) {
  const Allocate ordinary = [](const tutti::Shape& shape, tutti::DType dtype) {
    return tutti::Tensor::empty(shape, dtype);
  };
  auto host = std::make_shared<CallBuffers>(make_slot(job, ordinary));
  return [host, call = std::move(call)](CallBuffers& slot) {
    for (std::size_t i = 0; i < slot.inputs.size(); ++i) {
      writable(host->inputs[i]).copy_from(slot.inputs[i]);
    }
    call(*host);
    for (std::size_t i = 0; i < slot.outputs.size(); ++i) {
      slot.outputs[i].copy_from(host->outputs[i]);
    }
  };
}

TimedCall::TimedCall(Job job, std::vector<CallBuffers> slots, Call call, CacheMode mode,
                     CacheSweeper* sweeper)
    : job_(std::move(job)),
      slots_(std::move(slots)),
      call_(std::move(call)),
      mode_(mode),
      sweeper_(sweeper) {
  for (CallBuffers& slot : slots_) {
    poison_outputs(slot);
    write_inputs(slot);
  }
  if (mode_ != CacheMode::fresh) return;
  for (int turn = 0; turn < 2; ++turn) fresh_.emplace_back(job_.pattern, job_.rank, turns_++);
}

void TimedCall::refresh() {
  if (mode_ != CacheMode::fresh) return;
  CallBuffers& slot = slots_[current_];
  write(slot, fresh_[slot.turn == fresh_[0].turn() ? 1 : 0]);
}

void TimedCall::renew() {
  if (mode_ != CacheMode::cold) return;
  write_inputs(slots_[current_]);
  current_ = (current_ + 1) % slots_.size();
  if (sweeper_ != nullptr) sweeper_->sweep();
}

std::size_t TimedCall::check() {
  std::size_t wrong = mode_ == CacheMode::cold ? 0 : count_wrong(slots_[current_]);
  for (CallBuffers& slot : slots_) {
    poison_outputs(slot);
    write_inputs(slot);
    call_(slot);
    wrong += count_wrong(slot);
  }
  return wrong;
}

/// True if this rank has inputs. A collective that is always in place spreads the input of one
/// rank.
bool TimedCall::has_input() const { return !job_.chosen.in_place || job_.rank == job_.root; }

void TimedCall::write_inputs(CallBuffers& slot) {
  write(slot, Pattern::Values(job_.pattern, job_.rank, turns_++));
}

void TimedCall::write(CallBuffers& slot, const Pattern::Values& input) const {
  slot.turn = input.turn();
  if (!has_input()) return;
  for (std::size_t i = 0; i < slot.inputs.size(); ++i) {
    write_whole(writable(slot.inputs[i]),
                [&](const tutti::TensorView& tensor) { input.write(tensor, i * kTensorShift); });
  }
}

void TimedCall::poison_outputs(CallBuffers& slot) const {
  for (const tutti::TensorView& output : slot.outputs) write_whole(output, poison);
}

std::size_t TimedCall::count_wrong(const CallBuffers& slot) const {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < slot.outputs.size(); ++i) {
    std::optional<tutti::Tensor> image;
    const tutti::ConstTensorView output = on_cpu(slot.outputs[i], image);
    const auto expected = job_.chosen.expected(output.count(), job_.rank, job_.ranks, job_.root);
    wrong += job_.pattern.count_wrong(output, slot.turn, shifted(expected, i));
  }
  return wrong;
}

}  // namespace apps::benchmark
