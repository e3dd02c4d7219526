// SPDX-License-Identifier: Apache-2.0
// Optimizers as a store's updater, against the formulas computed in double precision.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/oracle.hpp"

using test::filled;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

namespace {

using Doubles = std::vector<double>;
using Formula = std::function<void(const Doubles& gradient, Doubles& weight)>;

constexpr std::int64_t kCount = 1027;

Doubles to_doubles(const tutti::ConstTensorView& tensor) {
  Tensor wide = Tensor::empty(tensor.shape(), DType::float64);
  wide.view().copy_from(tensor);
  const auto values = wide.values<double>();
  return {values.begin(), values.end()};
}

Tensor gradient_of(int owner, int step, DType dtype) {
  return test::random_tensor({kCount}, dtype, owner, 100 + static_cast<std::uint64_t>(step));
}

Doubles summed_gradient(int owners, int step, DType dtype) {
  Doubles sum(kCount, 0.0);
  for (int owner = 0; owner < owners; ++owner) {
    const Doubles mine = to_doubles(gradient_of(owner, step, dtype));
    std::ranges::transform(sum, mine, sum.begin(), std::plus<>());
  }
  return sum;
}

double prepared(double gradient, double rescale, std::optional<double> clip) {
  const double scaled = rescale * gradient;
  return clip ? std::min(std::max(scaled, -*clip), *clip) : scaled;
}

Formula sgd_formula(const tutti::optimizer::SgdOptions& o, double lr_mult = 1, double wd_mult = 1) {
  return [=, m = Doubles(kCount, 0.0)](const Doubles& gradient, Doubles& weight) mutable {
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double g = prepared(gradient[i], o.rescale_grad, o.clip_gradient) +
                       o.weight_decay * wd_mult * weight[i];
      m[i] = o.momentum * m[i] - o.learning_rate * lr_mult * g;
      weight[i] += m[i];
    }
  };
}

Formula adam_formula(const tutti::optimizer::AdamOptions& o) {
  return [=, m = Doubles(kCount, 0.0), v = Doubles(kCount, 0.0), t = 0](const Doubles& gradient,
                                                                        Doubles& weight) mutable {
    ++t;
    const double rate =
        o.learning_rate * std::sqrt(1 - std::pow(o.beta2, t)) / (1 - std::pow(o.beta1, t));
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double g =
          prepared(gradient[i], o.rescale_grad, o.clip_gradient) + o.weight_decay * weight[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      weight[i] -= rate * m[i] / (std::sqrt(v[i]) + o.epsilon);
    }
  };
}

bool near(const tutti::ConstTensorView& found, const Doubles& expected) {
  const double tolerance = found.dtype() == DType::float64 ? 1e-12 : 2e-5;
  const Doubles values = to_doubles(found);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]))) {
      continue;
    }
    MESSAGE("element ", i, ": expected ", expected[i], ", got ", values[i]);
    return false;
  }
  return true;
}

// Pushes random gradients to `key` five times, each checked against the formula.
void check_steps(KVStore& kv, const Key& key, DType dtype, const Formula& formula) {
  kv.init(key, test::random_tensor({kCount}, dtype, 0, 5));
  Doubles weight = to_doubles(kv.view(key));
  for (int step = 0; step < 5; ++step) {
    kv.push(key, gradient_of(kv.rank(), step, dtype));
    formula(summed_gradient(kv.num_workers(), step, dtype), weight);
    REQUIRE(test::agree(near(kv.view(key), weight)));
  }
  if (kv.type() == "dist") CHECK(test::same_on_all(test::bytes_of(kv.view(key))));
}

template <class Options, class Make, class MakeFormula>
void check_optimizer(const std::vector<Options>& all_options, Make make, MakeFormula formula) {
  test::for_each_type([&](KVStore& kv, float) {
    int key = 0;
    for (const Options& options : all_options) {
      CAPTURE(key);
      kv.set_optimizer(make(options));
      check_steps(kv, key++, DType::float32, formula(options));
      check_steps(kv, key++, DType::float64, formula(options));
    }
  });
}

}  // namespace

TEST_CASE("sgd follows its formula: plain, momentum, weight decay, rescaled, clipped") {
  using Options = tutti::optimizer::SgdOptions;
  const std::vector<Options> all = {
      {},
      {.learning_rate = 0.03},
      {.learning_rate = 0.03, .momentum = 0.9},
      {.learning_rate = 0.03, .weight_decay = 0.2},
      {.learning_rate = 0.03, .momentum = 0.5, .weight_decay = 0.01, .rescale_grad = 0.125},
      {.learning_rate = 0.5, .rescale_grad = 2.0, .clip_gradient = 0.25},
      {.learning_rate = 0.5, .momentum = 0.9, .weight_decay = 0.1, .clip_gradient = 1.5}};
  check_optimizer(all, tutti::optimizer::sgd, [](const Options& o) { return sgd_formula(o); });
}

TEST_CASE("adam follows its formula: defaults, other decays, weight decay, rescaled, clipped") {
  using Options = tutti::optimizer::AdamOptions;
  const std::vector<Options> all = {
      {},
      {.learning_rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.01},
      {.learning_rate = 0.01, .weight_decay = 0.3, .rescale_grad = 0.125},
      {.learning_rate = 0.01, .weight_decay = 0.1, .clip_gradient = 0.5}};
  check_optimizer(all, tutti::optimizer::adam, [](const Options& o) { return adam_formula(o); });
}

TEST_CASE("each key counts its own updates, also when keys are pushed in lists") {
  KVStore kv = test::dist();
  const tutti::optimizer::AdamOptions options = {.learning_rate = 0.05};
  kv.set_optimizer(tutti::optimizer::adam(options));
  kv.init({1, 2}, {Tensor::ones({kCount}), Tensor::ones({kCount})});
  std::vector<Doubles> weights(2, Doubles(kCount, 1.0));
  std::vector<Formula> formulas = {adam_formula(options), adam_formula(options)};
  for (int step = 0; step < 6; ++step) {
    const Tensor gradient = gradient_of(kv.rank(), step, DType::float32);
    const Doubles sum = summed_gradient(kv.num_workers(), step, DType::float32);
    formulas[0](sum, weights[0]);
    if (step % 3 == 2) {
      formulas[1](sum, weights[1]);
      kv.push({2, 1}, {gradient, gradient});
    } else {
      kv.push(1, gradient);
    }
  }
  CHECK(test::agree(near(kv.view(1), weights[0])));
  CHECK(test::agree(near(kv.view(2), weights[1])));
}

TEST_CASE(
    "a changed learning rate takes effect at the next push on all ranks and keeps the state") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(100));
    kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1.0, .momentum = 0.5}));
    kv.push(3, filled(8));
    CHECK(test::all_near(kv.view(3), 100 - 8 * pushed));
    kv.optimizer().set_learning_rate(0.25);
    CHECK(test::all_near(kv.view(3), 100 - 8 * pushed));
    CHECK(test::agree(kv.optimizer().learning_rate() == 0.25));
    kv.push(3, filled(8));  // m = -0.5 * 8 - 0.25 * 8
    CHECK(test::all_near(kv.view(3), 100 - 14 * pushed));
  });
}

TEST_CASE("lr_mult and wd_mult of a key are honoured for this key alone") {
  test::for_each_type([](KVStore& kv, float) {
    const tutti::optimizer::SgdOptions options = {
        .learning_rate = 0.1, .momentum = 0.5, .weight_decay = 0.1};
    const auto sgd = tutti::optimizer::sgd(options);
    sgd->set_lr_mult(1, 0.5);
    sgd->set_wd_mult(1, 3.0);
    sgd->set_lr_mult(2, 0.0);
    kv.set_optimizer(sgd);
    check_steps(kv, 1, DType::float32, sgd_formula(options, 0.5, 3.0));
    check_steps(kv, 2, DType::float64, sgd_formula(options, 0.0, 1.0));
    check_steps(kv, 3, DType::float64, sgd_formula(options));
  });
}

TEST_CASE("set_optimizer starts with new state and set_updater takes its place") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(0));
    for (int i = 1; i <= 2; ++i) {
      kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1.0, .momentum = 0.9}));
      kv.push(3, filled(1));
      CHECK(test::all_near(kv.view(3), static_cast<float>(-i) * pushed));
    }
    kv.set_updater(nullptr);
    kv.push(3, filled(7));
    CHECK(test::all_are(kv.view(3), 7 * pushed));
    CHECK(test::throws_on_all([&] { (void)kv.optimizer(); }, ErrorCode::invalid_argument,
                              {"set_optimizer"}));
  });
}

TEST_CASE("pushpull gives the optimized weights, in place of the gradients too") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(1));
    kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.5}));
    Tensor weight = filled(0);
    kv.pushpull(3, filled(2), weight);
    CHECK(test::all_near(weight, 1 - pushed));
    Tensor gradient = filled(2);
    kv.pushpull(3, gradient);
    CHECK(test::all_near(gradient, 1 - 2 * pushed));
  });
}

TEST_CASE("large tensors and lists of them are updated in every element") {
  KVStore kv = test::dist();
  const tutti::Shape shape = {1500007};
  kv.init({1, 2, 3}, {filled(1, shape), filled(2), filled(3, shape)});
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.25, .momentum = 0.5}));
  const Tensor large = filled(4, shape);
  const auto ranks = static_cast<float>(test::size());
  kv.push({1, 2, 3}, {large, filled(8), large});
  kv.push({1, 2, 3}, {large, filled(8), large});
  CHECK(test::all_near(kv.view(1), 1 - 2.5f * ranks));
  CHECK(test::all_near(kv.view(2), 2 - 5 * ranks));
  CHECK(test::all_near(kv.view(3), 3 - 2.5f * ranks));
}

TEST_CASE("an optimizer on a key that is not float32 or float64 is refused with key and dtype") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init({1, 2}, {Tensor::ones({4}, DType::int32), Tensor::ones({4})});
    kv.set_optimizer(tutti::optimizer::sgd());
    CHECK(test::throws_on_all([&] { kv.push(1, Tensor::ones({4}, DType::int32)); },
                              ErrorCode::invalid_argument, {"1", "int32", "float32"}));
    CHECK(test::agree(test::same_bits(kv.view(1), Tensor::ones({4}, DType::int32))));
    CHECK(test::all_are(kv.view(2), 1));
  });
}

TEST_CASE("a first push that is refused leaves a store that can be compared, and goes on") {
  KVStore kv = test::dist();
  kv.set_optimizer(tutti::optimizer::create("adam"));
  kv.init({3, 4}, {filled(0), filled(0)});
  const Tensor odd = filled(1, {3, 2});
  const Tensor fits = filled(1);
  CHECK(test::throws_on_all([&] { kv.push(3, test::is_last() ? odd : fits); },
                            ErrorCode::invalid_argument, {test::last(), "key 3"}));
  CHECK(test::agree(kv.verify().healed == 0));
  kv.push({3, 4}, {fits, fits});
  CHECK(test::agree(test::same_bits(kv.view(3), kv.view(4))));
  CHECK(test::agree(kv.verify().healed == 0));
}
