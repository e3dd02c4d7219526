// SPDX-License-Identifier: Apache-2.0
// The optimizers in a store of one process, against the reference in double precision.
#include <doctest/doctest.h>
#include <random>

#include "tests/support/checks.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/optimizer_options.hpp"
#include "tests/support/oracle.hpp"

using test::Doubles;
using test::Numbers;
using test::Reference;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

namespace {

KVStore local() { return KVStore::create("local", tutti::Settings()); }

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-9;
    case DType::float32:
      return 5e-4;
    case DType::float16:
      return 2e-3;
    default:
      return 1e-2;  // bfloat16 has 8 bits
  }
}

bool is_exact(DType dtype) { return dtype == DType::float32 || dtype == DType::float64; }

/// Pushes `steps` random gradients and compares with the reference after each.
bool follows_reference(const std::string& name, const Numbers& options, std::size_t count,
                       DType dtype, int steps) {
  const std::string text =
      test::text_of(name, options) + (is_exact(dtype) ? "" : ",multi_precision=true");
  INFO(text, ", ", count, " elements, ", std::string(tutti::to_string(dtype)));
  KVStore kv = local();
  kv.set_optimizer(tutti::optimizer::create(text));
  const auto length = static_cast<std::int64_t>(count);
  kv.init(3, test::random_tensor({length}, dtype, 0));
  Doubles weight = test::to_doubles(kv.view(3));
  Reference reference(name, options);
  for (int step = 0; step < steps; ++step) {
    const Tensor gradient =
        test::random_tensor({length}, dtype, 1, static_cast<std::uint64_t>(step) + 7);
    kv.push(3, gradient);
    reference.step(test::to_doubles(gradient), weight);
    if (test::near(kv.view(3), weight, tolerance_of(dtype))) continue;
    FAIL_CHECK("differs after step ", step);
    return false;
  }
  return true;
}

/// All optimizers but sgld, whose noise is not in the reference.
std::vector<std::string> names_without_noise() {
  std::vector<std::string> names = test::optimizer_names();
  std::erase(names, "sgld");
  return names;
}

}  // namespace

TEST_CASE("every optimizer that can be named has a reference, and the other way round") {
  CHECK(tutti::optimizer::names() == test::optimizer_names());
}

TEST_CASE("defaults: every optimizer follows its formula over 30 steps") {
  for (const std::string& name : names_without_noise()) {
    follows_reference(name, {}, 257, DType::float64, 30);
    follows_reference(name, {}, 257, DType::float32, 30);
  }
}

TEST_CASE("random options: every optimizer follows its formula in every floating-point type") {
  test::RandomOptions random(20240917);
  for (const std::string& name : names_without_noise()) {
    for (int round = 0; round < 12; ++round) {
      follows_reference(name, random.of(name), 131, DType::float64, 25);
    }
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
      for (int round = 0; round < 4; ++round) {
        follows_reference(name, random.of(name), 131, dtype, 10);
      }
    }
  }
}

TEST_CASE("every optimizer updates tensors of 0, 1, odd and many elements") {
  for (const std::string& name : names_without_noise()) {
    const Numbers options = {{"weight_decay", 0.1}, {"clip_gradient", 2}};
    for (const std::size_t count : {0, 1, 7, 511, 513, test::kFewRounds ? 5003 : 70001}) {
      for (const DType dtype : {DType::float32, DType::float64, DType::float16}) {
        follows_reference(name, options, count, dtype, 3);
      }
    }
  }
}

TEST_CASE("keys have their own counts, states and multipliers, pushed alone or in lists") {
  std::mt19937 engine(5);
  for (const std::string& name : names_without_noise()) {
    CAPTURE(name);
    const Numbers options = {{"learning_rate", 0.01}, {"weight_decay", 0.05}};
    const auto optimizer = tutti::optimizer::create(test::text_of(name, options));
    KVStore kv = local();
    kv.set_optimizer(optimizer);
    std::vector<Reference> references(3, Reference(name, options));
    std::vector<Doubles> weights;
    for (int key = 0; key < 3; ++key) {
      const Tensor start = test::random_tensor({50 + key}, DType::float64, key);
      kv.init(key, start);
      weights.push_back(test::to_doubles(start));
      optimizer->set_lr_mult(key, 0.5 + key);
      optimizer->set_wd_mult(key, 2.0 - key);
      references[key].multiply(0.5 + key, 2.0 - key);
    }
    for (std::uint64_t step = 0; step < 12; ++step) {
      std::vector<Key> keys;
      std::vector<Tensor> gradients;
      for (int key = 0; key < 3; ++key) {
        if (engine() % 2 == 0) continue;
        keys.emplace_back(key);
        gradients.push_back(test::random_tensor({50 + key}, DType::float64, key + 9, step));
        references[key].step(test::to_doubles(gradients.back()), weights[key]);
      }
      kv.push(keys, gradients);
      for (int key = 0; key < 3; ++key) CHECK(test::near(kv.view(key), weights[key], 1e-9));
    }
  }
}

TEST_CASE("a changed learning rate is used from the next push on by every optimizer") {
  for (const std::string& name : names_without_noise()) {
    CAPTURE(name);
    KVStore kv = local();
    kv.set_optimizer(tutti::optimizer::create(name));
    kv.init(3, test::random_tensor({33}, DType::float64, 0));
    Doubles weight = test::to_doubles(kv.view(3));
    Reference reference(name, {});
    for (const double rate : {0.1, 0.003, 0.02}) {
      kv.optimizer().set_learning_rate(rate);
      reference.set_learning_rate(rate);
      const Tensor gradient = test::random_tensor({33}, DType::float64, 1);
      kv.push(3, gradient);
      reference.step(test::to_doubles(gradient), weight);
      CHECK(test::near(kv.view(3), weight, 1e-9));
    }
  }
}

TEST_CASE("a rate of 0 leaves every weight finite; zero gradients and weights, too") {
  for (const std::string& name : test::optimizer_names()) {
    CAPTURE(name);
    KVStore kv = local();
    kv.set_optimizer(tutti::optimizer::create(name));
    kv.init({1, 2}, {Tensor::ones({9}), Tensor::zeros({9})});
    kv.optimizer().set_lr_mult(1, 0.0);
    for (int step = 0; step < 3; ++step) kv.push({1, 2}, {Tensor::ones({9}), Tensor::zeros({9})});
    for (const float value : kv.view(1).values<float>()) CHECK(value == 1.0f);
    for (const float value : kv.view(2).values<float>()) CHECK(std::isfinite(value));
  }
}

TEST_CASE("weights of 0 move: the ratio of norms is 1 then, also where only the gradient is 0") {
  for (const std::string name : {"lars", "lamb", "lans"}) {
    KVStore kv = local();
    kv.set_optimizer(tutti::optimizer::create(name + ",weight_decay=0.1"));
    kv.init(3, Tensor::zeros({40}, DType::float64));
    Doubles weight(40, 0.0);
    Reference reference(name, {{"weight_decay", 0.1}});
    for (const bool moving : {true, false, true}) {
      Tensor gradient = test::random_tensor({40}, DType::float64, 1);
      if (!moving) gradient.fill(0);
      kv.push(3, gradient);
      reference.step(test::to_doubles(gradient), weight);
      CHECK(weight[7] != 0);
      CHECK(test::near(kv.view(3), weight, 1e-12));
    }
  }
}

TEST_CASE("a gradient that is not a number shows in the weight") {
  for (const std::string& name : test::optimizer_names()) {
    CAPTURE(name);
    KVStore kv = local();
    kv.set_optimizer(tutti::optimizer::create(name + ",clip_gradient=1"));
    kv.init(3, Tensor::ones({5}));
    Tensor gradient = Tensor::ones({5});
    gradient.values<float>()[2] = std::numeric_limits<float>::quiet_NaN();
    kv.push(3, gradient);
    CHECK(std::isnan(kv.view(3).values<float>()[2]));
  }
}

TEST_CASE("equal gradients without end leave centered rmsprop finite") {
  KVStore kv = local();
  kv.set_optimizer(tutti::optimizer::create("rmsprop,centered=true"));
  kv.init(3, Tensor::ones({1000}));
  const Tensor gradient = test::random_tensor({1000}, DType::float32, 0);
  for (int step = 0; step < 500; ++step) kv.push(3, gradient);
  for (const float value : kv.view(3).values<float>()) CHECK(std::isfinite(value));
}

TEST_CASE("multi_precision adds up steps that 16 bits would lose") {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    for (const char* text : {"sgd,learning_rate=1", "lamb,learning_rate=0.0001"}) {
      CAPTURE(text);
      KVStore kv = local();
      kv.set_optimizer(tutti::optimizer::create(std::string(text) + ",multi_precision=true"));
      kv.init(3, Tensor::ones({100}, dtype));
      for (int step = 0; step < 1000; ++step) kv.push(3, Tensor::full({100}, 1e-4, dtype));
      CHECK(test::near(kv.view(3), Doubles(100, 0.9), 0.01));
    }
  }
}

TEST_CASE("16-bit weights without multi_precision are refused, and integers always") {
  KVStore kv = local();
  kv.init({1, 2}, {Tensor::ones({4}, DType::bfloat16), Tensor::ones({4}, DType::int32)});
  kv.set_optimizer(tutti::optimizer::sgd());
  test::expect_error([&] { kv.push(1, Tensor::ones({4}, DType::bfloat16)); }, test::kInvalid,
                     {"key 1 (4) bfloat16: sgd", "multi_precision", "float32 copy"});
  kv.set_optimizer(tutti::optimizer::sgd({.multi_precision = true}));
  test::expect_error([&] { kv.push(2, Tensor::ones({4}, DType::int32)); }, test::kInvalid,
                     {"key 2 (4) int32: sgd", "float32, float64"});
  kv.push(1, Tensor::ones({4}, DType::bfloat16));
  CHECK(test::near(kv.view(1), Doubles(4, 0.9), 0.01));
}

TEST_CASE("sgld adds noise of mean 0 and variance lr that no key, step or seed repeats") {
  constexpr std::int64_t kCount = 200000;
  const auto noise = [](const char* text, const Key& key, int steps) {
    KVStore kv = local();
    kv.set_optimizer(tutti::optimizer::create(text));
    kv.init(key, Tensor::zeros({kCount}, DType::float64));
    for (int step = 0; step < steps; ++step) kv.push(key, Tensor::zeros({kCount}, DType::float64));
    return test::to_doubles(kv.view(key));
  };
  const Doubles once = noise("sgld,learning_rate=0.04", 3, 1);
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  double neighbours = 0;
  for (std::size_t i = 0; i < once.size(); ++i) {
    const double value = once[i] / 0.2;
    sum += value;
    squares += value * value;
    fourths += value * value * value * value;
    if (i > 0) neighbours += value * once[i - 1] / 0.2;
  }
  CHECK(std::abs(sum / kCount) < 0.01);
  CHECK(std::abs(squares / kCount - 1) < 0.02);
  CHECK(std::abs(fourths / kCount - 3) < 0.15);
  CHECK(std::abs(neighbours / kCount) < 0.01);
  CHECK(noise("sgld,learning_rate=0.04", 3, 1) == once);
  const auto correlation = [&](const Doubles& other) {
    double product = 0;
    for (std::size_t i = 0; i < other.size(); ++i) product += other[i] * once[i];
    return std::abs(product / kCount / 0.04);
  };
  CHECK(correlation(noise("sgld,learning_rate=0.04,seed=1", 3, 1)) < 0.01);
  CHECK(correlation(noise("sgld,learning_rate=0.04", 4, 1)) < 0.01);
  Doubles second = noise("sgld,learning_rate=0.04", 3, 2);
  for (std::size_t i = 0; i < second.size(); ++i) second[i] -= once[i];
  CHECK(correlation(second) < 0.01);
}

TEST_CASE("sgld goes down the gradient") {
  KVStore kv = local();
  kv.set_optimizer(tutti::optimizer::sgld({.learning_rate = 1e-4, .weight_decay = 0.5}));
  kv.init(3, Tensor::full({10000}, 4.0, DType::float64));
  kv.push(3, Tensor::full({10000}, 1000.0, DType::float64));
  double mean = 0;
  for (const double value : test::to_doubles(kv.view(3))) mean += value / 10000;
  CHECK(mean == doctest::Approx(4 - 0.5e-4 * (1000 + 0.5 * 4)).epsilon(0.001));
}
