// SPDX-License-Identifier: Apache-2.0
// gpus::Kernels: every optimizer, bit by bit as on a CPU; where norms are taken, nearly so.
#include <doctest/doctest.h>

#include "tests/gpu/rig.hpp"
#include "tests/support/optimizer_options.hpp"

using test::DeviceTensor;
using tutti::DType;
using tutti::Optimizer;
using tutti::Tensor;
using tutti::UpdateStep;
using tutti::gpus::TensorRow;

namespace {

bool is_rounded(DType dtype) { return tutti::size_of(dtype) == 2; }

/// A weight with its states, on the CPU and on the device.
class Key {
 public:
  Key(test::Rig& rig, const Optimizer& optimizer, DType dtype, std::int64_t count, int num_inputs,
      std::size_t offset)
      : rig_(rig), optimizer_(optimizer), weight_(test::random_tensor({count}, dtype, 0)) {
    row.dtype = dtype;
    row.count = static_cast<std::size_t>(count);
    row.num_inputs = num_inputs;
    const DType state_dtype = is_rounded(dtype) ? DType::float32 : dtype;
    const int own = optimizer.num_states();
    for (int i = 0; i < own + (is_rounded(dtype) ? 1 : 0); ++i) {
      states_.push_back(Tensor::zeros({count}, state_dtype));
      const bool is_copy = i >= own || optimizer.starts_as_weight(i);
      if (is_copy) states_.back().view().copy_from(weight_);
      on_device_.push_back(std::make_unique<DeviceTensor>(rig, states_.back(), offset));
      row.states[i] = on_device_.back()->data();
    }
    on_device_.push_back(std::make_unique<DeviceTensor>(rig, weight_, offset));
    row.output = on_device_.back()->data();
    for (int i = 0; i < num_inputs; ++i) {
      gradients_.push_back(Tensor::zeros({count}, dtype));
      inputs_.push_back(std::make_unique<DeviceTensor>(rig, gradients_.back(), offset));
      row.inputs[i] = inputs_.back()->data();
    }
  }

  void write_gradients(std::uint64_t seed) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      gradients_[i] = test::random_tensor(weight_.shape(), row.dtype, static_cast<int>(i), seed);
      rig_.write(inputs_[i]->data(), gradients_[i].view().bytes(), gradients_[i].size_bytes());
    }
  }

  /// The update on the CPU, as the store does it.
  void update(const UpdateStep& step) {
    const Tensor sum = row.in_tree ? test::sum_in_tree(gradients_) : test::sum_in_order(gradients_);
    if (row.dtype == DType::float64) return update_in<double>(step, sum, weight_);
    if (row.dtype == DType::float32) return update_in<float>(step, sum, weight_);
    Tensor wide = Tensor::zeros(sum.shape(), DType::float32);
    wide.view().copy_from(sum);
    update_in<float>(step, wide, states_.back());
    weight_.view().copy_from(states_.back());
  }

  /// True if the device has the same bits, or numbers that differ by rounding alone.
  [[nodiscard]] bool agrees(bool in_every_bit) const {
    bool same = true;
    for (std::size_t i = 0; i < on_device_.size(); ++i) {
      const Tensor& expected = i < states_.size() ? states_[i] : weight_;
      const Tensor found = on_device_[i]->read();
      const double tolerance = is_rounded(found.dtype()) ? 0.01 : 1e-5;
      same = same && on_device_[i]->is_guarded() &&
             (in_every_bit ? test::same_bytes(found, expected)
                           : test::near(found, test::to_doubles(expected), tolerance));
    }
    return same;
  }

  TensorRow row;

 private:
  template <class Real>
  void update_in(const UpdateStep& step, const Tensor& sum, Tensor& weight) {
    std::vector<Real*> states;
    for (int i = 0; i < optimizer_.num_states(); ++i) {
      states.push_back(states_[static_cast<std::size_t>(i)].values<Real>().data());
    }
    optimizer_.update(step, tutti::ElementRange<Real>{.gradient = sum.values<Real>(),
                                                      .weight = weight.values<Real>(),
                                                      .states = states});
  }

  test::Rig& rig_;
  const Optimizer& optimizer_;
  Tensor weight_;
  std::vector<Tensor> states_;
  std::vector<Tensor> gradients_;
  std::vector<std::unique_ptr<DeviceTensor>> on_device_;  ///< the states, then the weight
  std::vector<std::unique_ptr<DeviceTensor>> inputs_;
};

using Keys = std::vector<std::unique_ptr<Key>>;

std::vector<TensorRow> rows_of(const Keys& keys) {
  std::vector<TensorRow> rows;
  for (const auto& key : keys) rows.push_back(key->row);
  return rows;
}

Keys some_keys(test::Rig& rig, const Optimizer& optimizer, DType dtype) {
  Keys keys;
  const auto add = [&](std::int64_t count, int num_inputs, std::size_t offset) {
    keys.push_back(std::make_unique<Key>(rig, optimizer, dtype, count, num_inputs, offset));
  };
  for (const std::int64_t count : {0, 1, 33, 1024, 2600}) add(count, 1, 0);
  for (const int num_inputs : {2, 3, 8}) add(2600, num_inputs, 0);
  add(1500, 1, 1);
  add(1500, 4, 1);
  for (const int num_inputs : {4, 6, 7}) {
    add(1100, num_inputs, num_inputs == 6 ? 1 : 0);
    keys.back()->row.in_tree = true;
  }
  return keys;
}

/// Updates all keys a few times, each with a step of its own, on both machines.
bool follow(test::Rig& rig, Optimizer& optimizer, Keys& keys) {
  const auto table = rig.kernels().make_table();
  const std::vector<TensorRow> rows = rows_of(keys);
  bool all = true;
  for (std::uint64_t t = 1; t <= 3; ++t) {
    std::vector<UpdateStep> steps;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      UpdateStep step = optimizer.step(static_cast<std::int64_t>(i), t + i % 3, t);
      if (i % 4 == 3) step.learning_rate *= 0.5;
      if (i % 5 == 4) step.learning_rate = 0;
      steps.push_back(step);
      keys[i]->write_gradients(t * 100 + i);
      keys[i]->update(step);
    }
    rig.kernels().update(nullptr, *table, rows, optimizer, steps);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      CAPTURE(i);
      CAPTURE(t);
      const bool agrees = keys[i]->agrees(optimizer.elementwise());
      CHECK(agrees);
      all = all && agrees;
    }
  }
  return all;
}

}  // namespace

TEST_CASE("every optimizer updates as on a CPU: all dtypes, 1 to 8 gradients, any alignment") {
  test::RandomOptions random(20261122);
  for (const std::string& name : test::optimizer_names()) {
    for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
      for (int round = 0; round < 3; ++round) {
        const auto rig = test::make_rig();
        const std::string text = test::text_of(name, random.of(name)) + ",multi_precision=true";
        INFO(text, ", ", std::string(to_string(dtype)));
        const auto optimizer = tutti::optimizer::create(text);
        REQUIRE(rig->kernels().can_update(*optimizer));
        Keys keys = some_keys(*rig, *optimizer, dtype);
        if (!follow(*rig, *optimizer, keys)) break;
      }
    }
  }
}

TEST_CASE("weights of different dtypes are updated in one call") {
  for (const char* text : {"adam,multi_precision=true", "lamb,multi_precision=true"}) {
    const auto rig = test::make_rig();
    const auto optimizer = tutti::optimizer::create(text);
    Keys keys;
    for (int i = 0; i < 9; ++i) {
      const DType dtype = test::all_dtypes()[static_cast<std::size_t>(i) % 4];
      keys.push_back(std::make_unique<Key>(*rig, *optimizer, dtype, 700 + 500 * i, 1, 0));
    }
    CHECK(follow(*rig, *optimizer, keys));
  }
}

TEST_CASE("norms of a large tensor are those of a CPU but for rounding") {
  for (const char* text : {"lars", "lamb", "lans"}) {
    const auto rig = test::make_rig();
    const auto optimizer = tutti::optimizer::create(text);
    Keys keys;
    keys.push_back(std::make_unique<Key>(*rig, *optimizer, DType::float32, 600001, 1, 0));
    CHECK(follow(*rig, *optimizer, keys));
  }
}

namespace {

class OwnOptimizer final : public Optimizer {
 public:
  OwnOptimizer() : Optimizer("sgd", {}) {}
  [[nodiscard]] int num_states() const override { return 0; }
  void update(const UpdateStep&, const tutti::ElementRange<float>&) const override {}
  void update(const UpdateStep&, const tutti::ElementRange<double>&) const override {}
};

}  // namespace

TEST_CASE("kernels know the library's optimizers, and no others whatever their name") {
  const auto rig = test::make_rig();
  for (const std::string& name : tutti::optimizer::names()) {
    CHECK(rig->kernels().can_update(*tutti::optimizer::create(name)));
  }
  CHECK_FALSE(rig->kernels().can_update(OwnOptimizer()));
}
