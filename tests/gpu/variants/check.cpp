// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/variants/check.hpp"

#include "tests/support/oracle.hpp"

namespace test::variants {

using tutti::DType;
using tutti::Tensor;
using tutti::gpus::TensorRow;

namespace {

constexpr int kCalls = 3;
/// None, one, less and more than a tile of any variant, whole tiles, and many.
constexpr std::int64_t kCounts[] = {0, 1, 33, 512, 1024, 2600, 4096, 8192, 40'001, 131'072};

/// The tensors of one row on the device.
class RowOnDevice {
 public:
  RowOnDevice(Rig& rig, const Case& now, const tutti::Optimizer* optimizer, std::int64_t count) {
    row_.dtype = now.dtype;
    row_.count = static_cast<std::size_t>(count);
    row_.num_inputs = now.num_inputs;
    for (int i = 0; i < now.num_inputs; ++i) {
      inputs_.push_back(put(rig, now, values(now, count, i)));
      row_.inputs[static_cast<std::size_t>(i)] = inputs_.back()->data();
    }
    const Tensor weight = values(now, count, 100);
    written_.push_back(put(rig, now, weight));
    row_.output = written_.back()->data();
    if (optimizer == nullptr) return;
    for (int i = 0; i < optimizer->num_states(); ++i)
      add_state(rig, now, i, Tensor::zeros({count}));
    if (tutti::size_of(now.dtype) == 2) {
      Tensor exact = Tensor::zeros({count});
      exact.view().copy_from(weight);
      add_state(rig, now, optimizer->num_states(), exact);
    }
  }

  [[nodiscard]] const TensorRow& row() const { return row_; }

  [[nodiscard]] bool has_results_of(const RowOnDevice& other) const {
    for (std::size_t i = 0; i < written_.size(); ++i) {
      if (!written_[i]->is_guarded()) return false;
      if (!same_bytes(written_[i]->read(), other.written_[i]->read())) return false;
    }
    return true;
  }

 private:
  static Tensor values(const Case& now, std::int64_t count, int seed) {
    if (now.zeros) return Tensor::zeros({count}, now.dtype);
    return random_tensor({count}, now.dtype, seed);
  }
  static std::unique_ptr<DeviceTensor> put(Rig& rig, const Case& now, const Tensor& tensor) {
    return std::make_unique<DeviceTensor>(rig, tensor, now.offset);
  }
  void add_state(Rig& rig, const Case& now, int index, const Tensor& tensor) {
    written_.push_back(put(rig, now, tensor));
    row_.states[static_cast<std::size_t>(index)] = written_.back()->data();
  }

  TensorRow row_;
  std::vector<std::unique_ptr<DeviceTensor>> inputs_;
  std::vector<std::unique_ptr<DeviceTensor>> written_;  ///< output, states
};

using Rows = std::vector<std::unique_ptr<RowOnDevice>>;

Rows run(Rig& rig, Variant& variant, const Case& now, const tutti::Optimizer* optimizer) {
  Rows kept;
  std::vector<TensorRow> rows;
  for (const std::int64_t count : kCounts) {
    kept.push_back(std::make_unique<RowOnDevice>(rig, now, optimizer, count));
    rows.push_back(kept.back()->row());
  }
  const auto table = variant.make_table();
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    if (optimizer == nullptr) {
      variant.sum(nullptr, *table, rows);
      continue;
    }
    std::vector<tutti::UpdateStep> steps(rows.size(), optimizer->step(1, call, call));
    steps.back().learning_rate *= 0.5;
    variant.update(nullptr, *table, rows, *optimizer, steps);
  }
  // Reading waits for all work, before the table goes.
  std::byte last{};
  rig.read(&last, rows.back().output, 1);
  return kept;
}

}  // namespace

std::vector<Case> all_cases() {
  const std::string halves = "adamw,multi_precision=true";
  return {
      {.name = "sum of 2", .num_inputs = 2},
      {.name = "sum of 4", .num_inputs = 4},
      {.name = "sum of 8", .num_inputs = 8},
      {.name = "sum of 2, unaligned", .num_inputs = 2, .offset = 1},
      {.name = "sgd with momentum", .optimizer = "sgd,momentum=0.9"},
      {.name = "adamw", .optimizer = "adamw"},
      {.name = "adamw, zeros", .optimizer = "adamw", .zeros = true},
      {.name = "adamw, unaligned", .optimizer = "adamw", .offset = 1},
      {.name = "adamw, bf16", .optimizer = halves, .dtype = DType::bfloat16},
      {.name = "lamb", .optimizer = "lamb"},
  };
}

std::string difference(Rig& rig, Variant& variant, const Case& now) {
  const auto optimizer = now.optimizer.empty() ? nullptr : tutti::optimizer::create(now.optimizer);
  if (!variant.obstacle(optimizer.get()).empty()) return {};
  Plain plain(rig.kernels());
  const Rows expected = run(rig, plain, now, optimizer.get());
  const Rows found = run(rig, variant, now, optimizer.get());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!found[i]->has_results_of(*expected[i])) {
      return now.name + ", " + std::to_string(kCounts[i]) + " elements";
    }
  }
  return {};
}

}  // namespace test::variants
