// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/work.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace apps::benchmark {
namespace {

/// Tensors of one call begin at different places of the pattern, so that a result in the wrong
/// tensor is seen.
constexpr std::size_t kTensorShift = 7;

std::vector<Stretch> shifted(std::vector<Stretch> stretches, std::size_t tensor) {
  for (Stretch& stretch : stretches) stretch.first += tensor * kTensorShift;
  return stretches;
}

/// The memory is ours; only the collective must not write into it.
tutti::TensorView writable(const tutti::ConstTensorView& input) {
  return {const_cast<std::byte*>(input.bytes()), input.shape(), input.dtype(), input.device()};
}

/// The same tensor on the cpu: itself, or a copy.
class OnCpu {
 public:
  explicit OnCpu(const tutti::TensorView& tensor) : tensor_(tensor) {
    if (tensor.device().kind == tutti::DeviceKind::cpu) return;
    copy_ = tutti::Tensor::empty(tensor.shape(), tensor.dtype());
    copy_->view().copy_from(tensor);
  }
  [[nodiscard]] tutti::TensorView view() { return copy_ ? copy_->view() : tensor_; }
  /// Where the tensor is, it becomes what the copy is now.
  void write_back() {
    if (copy_) tensor_.copy_from(*copy_);
  }

 private:
  tutti::TensorView tensor_;
  std::optional<tutti::Tensor> copy_;
};

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
    count += (job.chosen.in_place ? 0 : pair.input.count()) + pair.output.count();
  }
  return count * tutti::size_of(job.pattern.dtype());
}

Slot make_slot(const Job& job, const Allocate& allocate) {
  Slot slot;
  const tutti::DType dtype = job.pattern.dtype();
  for (const Layout::Pair& pair : job.layout.pairs) {
    slot.memory.push_back(allocate(pair.output, dtype));
    slot.outputs.push_back(slot.memory.back().view());
    if (!job.chosen.in_place) slot.memory.push_back(allocate(pair.input, dtype));
    slot.inputs.push_back(std::as_const(slot.memory.back()).view());
  }
  return slot;
}

Call by_way_of_the_host(const Job& job, Call call) {
  const Allocate ordinary = [](const tutti::Shape& shape, tutti::DType dtype) {
    return tutti::Tensor::empty(shape, dtype);
  };
  auto host = std::make_shared<Slot>(make_slot(job, ordinary));
  return [host, call = std::move(call)](Slot& slot) {
    for (std::size_t i = 0; i < slot.inputs.size(); ++i) {
      writable(host->inputs[i]).copy_from(slot.inputs[i]);
    }
    call(*host);
    for (std::size_t i = 0; i < slot.outputs.size(); ++i) {
      slot.outputs[i].copy_from(host->outputs[i]);
    }
  };
}

Work::Work(Job job, std::vector<Slot> slots, Call call, CacheSweeper* sweeper)
    : job_(std::move(job)), slots_(std::move(slots)), call_(std::move(call)), sweeper_(sweeper) {
  for (Slot& slot : slots_) {
    poison_outputs(slot);
    write_inputs(slot);
  }
}

void Work::renew() {
  if (!is_cold()) return;
  write_inputs(slots_[current_]);
  current_ = (current_ + 1) % slots_.size();
  if (sweeper_ != nullptr) sweeper_->sweep();
}

std::size_t Work::check() {
  std::size_t wrong = is_cold() ? 0 : count_wrong(slots_[current_]);
  for (Slot& slot : slots_) {
    poison_outputs(slot);
    write_inputs(slot);
    call_(slot);
    wrong += count_wrong(slot);
  }
  return wrong;
}

bool Work::has_input() const { return !job_.chosen.in_place || job_.rank == kRoot; }

void Work::write_inputs(Slot& slot) {
  slot.turn = turns_++;
  if (!has_input()) return;
  for (std::size_t i = 0; i < slot.inputs.size(); ++i) {
    OnCpu input(writable(slot.inputs[i]));
    job_.pattern.write(input.view(), slot.turn, shifted({{input.view().count(), job_.rank, 0}}, i));
    input.write_back();
  }
}

void Work::poison_outputs(Slot& slot) const {
  for (const tutti::TensorView& output : slot.outputs) {
    OnCpu poisoned(output);
    poison(poisoned.view());
    poisoned.write_back();
  }
}

std::size_t Work::count_wrong(const Slot& slot) const {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < slot.outputs.size(); ++i) {
    OnCpu on_cpu(slot.outputs[i]);
    const tutti::TensorView output = on_cpu.view();
    const auto expected = job_.chosen.expected(output.count(), job_.rank, job_.ranks);
    wrong += job_.pattern.count_wrong(output, slot.turn, shifted(expected, i));
  }
  return wrong;
}

}  // namespace apps::benchmark
