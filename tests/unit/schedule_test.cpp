// SPDX-License-Identifier: Apache-2.0
// Learning rates over thousands of updates, compared with loops and formulas of the tests' own.
#include "tutti/schedule.hpp"

#include <cmath>
#include <doctest/doctest.h>
#include <functional>
#include <numbers>

#include "tutti/tutti.hpp"

#include "tests/support/checks.hpp"

using tutti::KVStore;
using tutti::Schedule;
using tutti::Tensor;
namespace schedule = tutti::schedule;

namespace {

constexpr double kBase = 0.4;
constexpr std::uint64_t kUpdates = 5000;
using Warmup = schedule::Warmup;

/// Compares a schedule with `expected`, which is asked once per update, in order.
void check(const Schedule& asked, const std::function<double(std::uint64_t u)>& expected) {
  for (std::uint64_t u = 0; u <= kUpdates; ++u) {
    const double found = tutti::learning_rate_at(asked, kBase, u);
    const double right = expected(u);
    CAPTURE(u);
    REQUIRE(std::abs(found - right) <= 1e-12 * std::abs(right));
  }
}

}  // namespace

TEST_CASE("factor multiplies each time u > count + step, down to stop_factor_lr") {
  for (const std::uint64_t step : {1, 7, 100, 9999}) {
    for (const double factor : {0.5, 0.9, 1.0}) {
      double rate = kBase;
      std::uint64_t count = 0;
      check({schedule::Factor{step, factor, 1e-3}}, [&](std::uint64_t u) {
        while (u > count + step) {
          count += step;
          rate = std::max(rate * factor, 1e-3);
        }
        return rate;
      });
    }
  }
}

TEST_CASE("multifactor multiplies after each of its steps") {
  const std::vector<std::uint64_t> steps = {1, 10, 11, 500, 4999, 70000};
  double rate = kBase;
  std::size_t passed = 0;
  check({schedule::MultiFactor{steps, 0.3}}, [&](std::uint64_t u) {
    while (passed < steps.size() && u > steps[passed]) {
      rate *= 0.3;
      ++passed;
    }
    return rate;
  });
}

TEST_CASE("poly falls to final_lr at max_update with any power, and stays") {
  for (const double power : {1.0, 2.0, 0.5, 3.7}) {
    check({schedule::Poly{3000, power, 0.01}}, [&](std::uint64_t u) {
      const double done = std::min(1.0, static_cast<double>(u) / 3000);
      return 0.01 + (kBase - 0.01) * std::pow(1 - done, power);
    });
  }
}

TEST_CASE("cosine falls to final_lr at max_update, and stays") {
  check({schedule::Cosine{4000, 0.02}}, [&](std::uint64_t u) {
    const double done = std::min(1.0, static_cast<double>(u) / 4000);
    return 0.02 + (kBase - 0.02) * (1 + std::cos(std::numbers::pi * done)) / 2;
  });
}

TEST_CASE("warm-up comes before every kind, and poly and cosine begin after it") {
  const auto with = [](auto decay, Warmup warmup) { return Schedule{decay, warmup}; };
  const Warmup linear{.steps = 300, .begin_lr = 0.1};
  const Warmup constant{.steps = 300, .begin_lr = 0.1, .mode = Warmup::Mode::constant};
  const auto warm = [](std::uint64_t u) {
    return 0.1 + (kBase - 0.1) * static_cast<double>(u) / 300;
  };
  const auto part = [](std::uint64_t u) {
    return std::min(1.0, static_cast<double>(u - 300) / 1700);
  };
  const auto cosine = [&](std::uint64_t u) {
    return kBase * (1 + std::cos(std::numbers::pi * part(u))) / 2 + 1e-300;
  };
  check(with(schedule::Poly{2000, 2}, linear),
        [&](std::uint64_t u) { return u < 300 ? warm(u) : kBase * std::pow(1 - part(u), 2); });
  for (std::uint64_t u = 0; u < 1999; ++u) {
    CAPTURE(u);
    const double found = tutti::learning_rate_at(with(schedule::Cosine{2000}, linear), kBase, u);
    REQUIRE(std::abs(found - (u < 300 ? warm(u) : cosine(u))) < 1e-14);
  }
  check(with(schedule::Factor{1000, 0.5}, constant), [&](std::uint64_t u) {
    return u < 300 ? 0.1 : kBase * std::pow(0.5, static_cast<double>(u == 0 ? 0 : (u - 1) / 1000));
  });
  check(with(schedule::MultiFactor{{100, 400}, 0.1}, constant), [&](std::uint64_t u) {
    return u < 300 ? 0.1 : u <= 400 ? kBase * 0.1 : kBase * 0.1 * 0.1;
  });
}

TEST_CASE("a store's schedule sees the largest update count of its keys") {
  KVStore kv = KVStore::create("local", tutti::Settings());
  kv.set_optimizer(tutti::optimizer::sgd(
      {.learning_rate = 1, .schedule = Schedule{schedule::MultiFactor{{2, 3}, 0.5}}}));
  kv.init({1, 2}, {Tensor::zeros({1}), Tensor::zeros({1})});
  const auto push = [&](const tutti::Keys& keys, const tutti::Values& values) {
    kv.push(keys, values);
  };
  const Tensor down = Tensor::full({1}, -1);
  const auto weight = [&](int key) { return kv.view(key).values<float>()[0]; };
  push(1, down);
  push(1, down);
  CHECK(weight(1) == 2.0f);  // updates 1 and 2, at rate 1
  push(2, down);
  CHECK(weight(2) == 1.0f);  // key 2's first, but 2 is the largest count
  push(1, down);
  CHECK(weight(1) == 2.5f);
  push({1, 2}, {down, down});  // update 4 for both
  CHECK(weight(1) == 2.75f);
  CHECK(weight(2) == 1.25f);
  push(2, down);
  CHECK(weight(2) == 1.5f);
}

TEST_CASE("set_learning_rate is refused while a schedule decides; set_schedule replaces it") {
  const auto optimizer = tutti::optimizer::create("sgd,schedule=cosine,max_update=10");
  test::expect_error([&] { optimizer->set_learning_rate(0.5); }, test::kInvalid,
                     {"optimizer sgd: set_learning_rate", "schedule cosine", "set_schedule"});
  CHECK(optimizer->learning_rate() == 0.1);
  optimizer->set_schedule(std::nullopt);
  optimizer->set_learning_rate(0.5);
  CHECK(optimizer->step(3, 1, 9).learning_rate == 0.5);
  optimizer->set_schedule(Schedule{schedule::Factor{.step = 1, .factor = 0.5}});
  CHECK(optimizer->step(3, 1, 1).learning_rate == 0.5);
  CHECK(optimizer->step(3, 1, 3).learning_rate == 0.125);
  optimizer->set_lr_mult(3, 2.0);
  CHECK(optimizer->step(3, 1, 3).learning_rate == 0.25);
}

TEST_CASE("a schedule is made from text, as an optimizer's is") {
  const auto optimizer = tutti::optimizer::sgd();
  const auto same = [&](const std::string& text) {
    optimizer->set_schedule(schedule::create(text));
    const auto made = tutti::optimizer::create("sgd,schedule=" + text);
    return optimizer->fingerprint() == made->fingerprint();
  };
  CHECK(same("cosine,max_update=100,warmup_steps=10,warmup_begin_lr=0.01,warmup_mode=constant"));
  CHECK(same("multifactor,steps=10:20,factor=0.1"));
  CHECK(same("poly,max_update=100,power=3,final_lr=0.01"));
  CHECK(same("factor,step=5,factor=0.5,stop_factor_lr=0.001"));
  CHECK(same("none"));
  CHECK_FALSE(schedule::create("none"));
  const auto refused = [](const char* text, const std::vector<std::string>& words) {
    test::expect_error([&] { (void)schedule::create(text); }, test::kInvalid, words);
  };
  refused("", {"unknown schedule ''", "cosine", "none"});
  refused("cosin", {"unknown schedule 'cosin', did you mean cosine?"});
  refused("cosine,power=2", {"schedule cosine", "power", "max_update"});
  refused("cosine,max_update=x", {"schedule cosine", "max_update=x"});
  refused("cosine,max_update=1,max_update=2", {"schedule cosine", "max_update", "twice"});
  refused("none,max_update=1", {"schedule none", "max_update"});
}

TEST_CASE(
    "a warm-up may begin at the base rate, and where it has no steps its rate is not looked at") {
  for (const char* warmup : {"warmup_steps=2,warmup_begin_lr=0.1", "warmup_begin_lr=0.5"}) {
    const std::string text = std::string("sgd,schedule=cosine,max_update=10,") + warmup;
    CHECK(tutti::optimizer::create(text)->step(3, 1, 2).learning_rate <= 0.1);
  }
  test::expect_error(
      [] {
        (void)tutti::optimizer::create(
            "sgd,schedule=factor,step=3,warmup_steps=2,"
            "warmup_begin_lr=0.4,learning_rate=0.3");
      },
      test::kInvalid,
      {"optimizer sgd, schedule factor: warmup_begin_lr=0.4: expected at most learning_rate, which "
       "is 0.3"});
}

TEST_CASE("schedules with values that cannot be are refused with the value and what is expected") {
  const auto refused = [](const Schedule& wrong, const std::string& word) {
    const auto sgd = tutti::optimizer::sgd();
    test::expect_error([&] { sgd->set_schedule(wrong); }, test::kInvalid, {"optimizer sgd", word});
    test::expect_error([&] { (void)tutti::optimizer::adam({.schedule = wrong}); }, test::kInvalid,
                       {"optimizer adam", word});
  };
  refused({schedule::Factor{}}, "schedule factor: step=0: expected a whole number of at least 1");
  refused({schedule::Factor{10, 1.5}}, "factor=1.5: expected a number above 0, at most 1");
  refused({schedule::Factor{10, 0.0}}, "factor=0: expected");
  refused({schedule::Factor{10, 0.5, -1}}, "stop_factor_lr=-1: expected a number of at least 0");
  refused({schedule::MultiFactor{}}, "steps=: expected ascending whole numbers above 0");
  refused({schedule::MultiFactor{{0, 1}}}, "steps=0:1: expected ascending");
  refused({schedule::MultiFactor{{5, 5}}}, "steps=5:5: expected ascending");
  refused({schedule::Poly{}}, "max_update=0: expected");
  refused({schedule::Poly{10, 0}}, "power=0: expected a number above 0");
  refused({schedule::Poly{10, 2, -0.1}}, "final_lr=-0.1: expected a number of at least 0");
  refused({schedule::Cosine{10}, {.steps = 10}},
          "max_update=10: expected more than warmup_steps, which is 10");
  refused({schedule::Factor{10}, {.steps = 5, .begin_lr = 0.5}},
          "schedule factor: warmup_begin_lr=0.5: expected at most learning_rate, which is 0.");
  refused({schedule::Cosine{10}, {.steps = 5, .begin_lr = 0.2, .mode = Warmup::Mode::constant}},
          "schedule cosine: warmup_begin_lr=0.2: expected at most learning_rate, which is 0.");
  refused({schedule::Cosine{10}, {.steps = 1, .begin_lr = -1}}, "warmup_begin_lr=-1: expected");
}
