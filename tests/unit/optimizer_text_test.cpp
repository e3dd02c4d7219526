// SPDX-License-Identifier: Apache-2.0
// Optimizers from text: every option reaches its field, and every mistake its error.
#include <doctest/doctest.h>
#include <set>

#include "tests/support/checks.hpp"
#include "tests/support/optimizer_options.hpp"

using tutti::Schedule;
using tutti::optimizer::create;

namespace {

void check_refused(const std::string& text, const std::vector<std::string>& words,
                   const std::string& defaults = "") {
  CAPTURE(text);
  test::expect_error([&] { (void)create(text, defaults); }, tutti::ErrorCode::invalid_argument,
                     words);
}

}  // namespace

TEST_CASE("a text gives the optimizer that its options struct gives") {
  namespace o = tutti::optimizer;
  const auto same = [](const std::string& text, const std::shared_ptr<tutti::Optimizer>& typed) {
    CAPTURE(text);
    CHECK(create(text)->fingerprint() == typed->fingerprint());
    CHECK(create(text)->describe() == typed->describe());
  };
  same("sgd", o::sgd());
  same("sgd,momentum=0.9,learning_rate=0.1", o::sgd({.learning_rate = 0.1, .momentum = 0.9}));
  same("adam,clip_gradient=5,multi_precision=true,rescale_grad=0.125",
       o::adam({.rescale_grad = 0.125, .clip_gradient = 5, .multi_precision = true}));
  same("rmsprop,centered=1,rho=0.5", o::rmsprop({.rho = 0.5, .centered = true}));
  same("sgld,seed=18446744073709551615", o::sgld({.seed = ~std::uint64_t{0}}));
  same("lamb,bias_correction=false", o::lamb({.bias_correction = false}));
  same("sgd,schedule=none", o::sgd());
  same("adam,schedule=cosine,max_update=10000,warmup_steps=100",
       o::adam(
           {.schedule = Schedule{tutti::schedule::Cosine{.max_update = 10000}, {.steps = 100}}}));
  same(
      "nag,schedule=multifactor,steps=10:200:3000,factor=0.1,warmup_mode=constant,"
      "warmup_begin_lr=1e-3,warmup_steps=5",
      o::nag({.schedule = Schedule{tutti::schedule::MultiFactor{{10, 200, 3000}, 0.1},
                                   {5, 1e-3, tutti::schedule::Warmup::Mode::constant}}}));
}

TEST_CASE("defaults hold unless the text gives the option") {
  CHECK(create("sgd,momentum=0.5", "momentum=0.9,learning_rate=0.05")->describe() ==
        "sgd,learning_rate=0.05,momentum=0.5");
  CHECK(create("adam", "rescale_grad=0.5")->describe() ==
        "adam,learning_rate=0.001,rescale_grad=0.5");
  check_refused("adam", {"optimizer adam", "'momentum'"}, "momentum=0.9");
}

TEST_CASE("describe is a text that gives the same optimizer again") {
  test::RandomOptions random(7);
  for (const std::string& name : test::optimizer_names()) {
    for (int round = 0; round < 5; ++round) {
      const auto optimizer = create(test::text_of(name, random.of(name)));
      CHECK(create(optimizer->describe())->fingerprint() == optimizer->fingerprint());
    }
    const auto scheduled = create(name + ",schedule=poly,max_update=77,power=1.5,warmup_steps=3");
    CHECK(scheduled->describe().ends_with("schedule=poly,max_update=77,power=1.5,warmup_steps=3"));
    CHECK(create(scheduled->describe())->fingerprint() == scheduled->fingerprint());
    for (const char* scale :
         {",loss_scale=1024", ",loss_scale=dynamic,growth_interval=3", ",clip_global_norm=0.75"}) {
      const auto scaled = create(name + scale);
      CHECK(scaled->describe().ends_with(scale));
      CHECK(create(scaled->describe())->fingerprint() == scaled->fingerprint());
    }
  }
}

TEST_CASE("every option, common or not, and every part of a schedule changes the fingerprint") {
  for (const std::string& name : test::optimizer_names()) {
    std::vector<std::string> texts = {name,
                                      name + ",weight_decay=0.5",
                                      name + ",rescale_grad=0.5",
                                      name + ",clip_gradient=0.5",
                                      name + ",multi_precision=true",
                                      name + ",clip_global_norm=0.5",
                                      name + ",clip_global_norm=0.25",
                                      name + ",loss_scale=65536",
                                      name + ",loss_scale=2",
                                      name + ",loss_scale=dynamic",
                                      name + ",loss_scale=dynamic,init_scale=2",
                                      name + ",loss_scale=dynamic,growth_factor=3",
                                      name + ",loss_scale=dynamic,backoff_factor=0.25",
                                      name + ",loss_scale=dynamic,growth_interval=5",
                                      name + ",schedule=factor,step=5",
                                      name + ",schedule=factor,step=6",
                                      name + ",schedule=factor,step=5,factor=0.5",
                                      name + ",schedule=factor,step=5,stop_factor_lr=0.5",
                                      name + ",schedule=multifactor,steps=5:6",
                                      name + ",schedule=multifactor,steps=5:7",
                                      name + ",schedule=poly,max_update=5",
                                      name + ",schedule=cosine,max_update=5",
                                      name + ",schedule=cosine,max_update=5,final_lr=0.5",
                                      name + ",schedule=cosine,max_update=5,warmup_steps=1",
                                      name + ",schedule=cosine,max_update=5,warmup_begin_lr=0.5",
                                      name + ",schedule=cosine,max_update=5,warmup_mode=constant"};
    for (const auto& [option, value] : test::reference_defaults().at(name)) {
      const char* other = value == 0 && option != "momentum" ? "1" : value == 1 ? "0" : "0.51";
      const bool is_number = option != "bias_correction" && value == 1;
      texts.push_back(name + "," + option + "=" + (is_number ? "0.51" : other));
    }
    std::set<std::uint64_t> fingerprints;
    for (const std::string& text : texts) fingerprints.insert(create(text)->fingerprint());
    CAPTURE(name);
    CHECK(fingerprints.size() == texts.size());
  }
}

TEST_CASE("multipliers change the fingerprint, whatever the order they were set in") {
  const auto one = tutti::optimizer::sgd();
  const auto other = tutti::optimizer::sgd();
  const std::uint64_t before = one->fingerprint();
  one->set_lr_mult("a", 2);
  CHECK(one->fingerprint() != before);
  one->set_wd_mult("b", 3);
  other->set_wd_mult("b", 3);
  CHECK(one->fingerprint() != other->fingerprint());
  other->set_lr_mult("a", 5);
  CHECK(one->fingerprint() != other->fingerprint());
  other->set_lr_mult("a", 2);
  CHECK(one->fingerprint() == other->fingerprint());
  one->set_lr_mult("a", 1);
  one->set_wd_mult("b", 1);
  CHECK(one->fingerprint() == before);
  test::expect_error([&] { one->set_lr_mult(3, NAN); }, tutti::ErrorCode::invalid_argument,
                     {"optimizer sgd: lr_mult of key 3: expected a finite number, got nan"});
  test::expect_error([&] { one->set_wd_mult(3, INFINITY); }, tutti::ErrorCode::invalid_argument,
                     {"wd_mult of key 3", "inf"});
}

TEST_CASE("unknown names and options are refused with the nearest and all known ones") {
  check_refused("adm",
                {"unknown optimizer 'adm'", "did you mean adam?", "adabelief, adadelta", "signum"});
  check_refused("", {"unknown optimizer ''"});
  check_refused("momentum=0.9", {"unknown optimizer 'momentum=0.9'"});
  check_refused("sgd,momentun=0.9",
                {"optimizer sgd: unknown option 'momentun'", "did you mean momentum?",
                 "learning_rate, weight_decay, rescale_grad, clip_gradient, multi_precision, "
                 "clip_global_norm, momentum, schedule, loss_scale"});
  check_refused("sgd,lr=0.1", {"unknown option 'lr'", "did you mean learning_rate?"});
  check_refused("signum,wd=0.1", {"unknown option 'wd'", "did you mean weight_decay?"});
  check_refused("adam,eps=0.1", {"unknown option 'eps'", "did you mean epsilon?"});
  check_refused("sgd,schedule=cosin,max_update=3",
                {"unknown schedule 'cosin', did you mean cosine?", "factor, multifactor, poly"});
  check_refused("sgd,max_update=3", {"'max_update' belongs to a schedule; add schedule=NAME",
                                     "factor, multifactor, poly, cosine"});
  check_refused("sgd,growth_interval=3", {"'growth_interval' belongs to a dynamic loss scale; add "
                                          "loss_scale=dynamic"});
  check_refused("sgd,loss_scale=8,init_scale=3", {"'init_scale' belongs to a dynamic loss scale"});
  check_refused("sgd,schedule=poly,max_update=3,step=1", {"unknown option 'step'", "warmup_steps"});
}

TEST_CASE("texts that are not name,option=value,... are refused") {
  for (const char* text :
       {"sgd,", "sgd,,momentum=0.9", "sgd,momentum", "sgd,=3", "sgd,momentum=1,"}) {
    check_refused(text, {"optimizer sgd: expected option=value between commas, found '"});
  }
  check_refused("sgd,momentum=0.5,momentum=0.5", {"the option 'momentum' is given twice"});
}

TEST_CASE("values that cannot be read or are out of range are refused with what is expected") {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"learning_rate=fast", "learning_rate=fast: expected a number of at least 0"},
      {"learning_rate=", "learning_rate=: expected"},
      {"learning_rate=0.1x", "learning_rate=0.1x: expected"},
      {"learning_rate= 1", "learning_rate= 1: expected"},
      {"learning_rate=-1", "learning_rate=-1: expected a number of at least 0"},
      {"learning_rate=nan", "learning_rate=nan: expected a number of at least 0"},
      {"learning_rate=inf", "learning_rate=inf: expected a number of at least 0"},
      {"weight_decay=-0.1", "weight_decay=-0.1: expected a number of at least 0"},
      {"rescale_grad=inf", "rescale_grad=inf: expected a finite number"},
      {"clip_gradient=0", "clip_gradient=0: expected a number above 0, or none"},
      {"clip_gradient=few", "clip_gradient=few: expected a number above 0, or none"},
      {"clip_global_norm=0", "clip_global_norm=0: expected a number above 0, or none"},
      {"clip_global_norm=-1", "clip_global_norm=-1: expected a number above 0, or none"},
      {"loss_scale=static", "loss_scale=static: expected dynamic, none or a number above 0"},
      {"loss_scale=0", "loss_scale=0: expected dynamic, none or a number above 0"},
      {"loss_scale=inf", "loss_scale=inf: expected dynamic, none or a number above 0"},
      {"loss_scale=2x", "loss_scale=2x: expected dynamic, none or a number above 0"},
      {"loss_scale=dynamic,init_scale=-1", "init_scale=-1: expected a number above 0"},
      {"loss_scale=dynamic,init_scale=1e39", "init_scale=1e+39: expected a number above 0, from 1"},
      {"loss_scale=1e-39", "loss_scale=1e-39: expected dynamic, none or a number above 0, from 1"},
      {"loss_scale=dynamic,growth_factor=0.5", "growth_factor=0.5: expected a number of at least"},
      {"loss_scale=dynamic,backoff_factor=1.5",
       "backoff_factor=1.5: expected a number above 0, at"},
      {"loss_scale=dynamic,growth_interval=0", "growth_interval=0: expected a whole number of at"},
      {"multi_precision=yes", "multi_precision=yes: expected true or false"},
      {"schedule=multifactor,steps=3:", "steps=3:: expected ascending whole numbers"},
      {"schedule=multifactor,steps=3:2", "steps=3:2: expected ascending whole numbers"},
      {"schedule=factor,step=-1", "step=-1: expected a whole number of at least 1"},
      {"schedule=factor,step=1.5", "step=1.5: expected a whole number of at least 1"},
      {"schedule=factor,step=1,warmup_steps=x", "warmup_steps=x: expected a whole number"},
      {"schedule=factor,step=1,warmup_mode=fast", "expected linear or constant"}};
  for (const std::string& name : test::optimizer_names()) {
    for (const auto& [options, words] : wrong) {
      check_refused(name + "," + options, {"optimizer " + name, words});
    }
  }
  check_refused("sgd,momentum=1",
                {"optimizer sgd: momentum=1: expected a number from 0 to below 1"});
  check_refused("sgld,seed=-1", {"seed=-1: expected a whole number"});
  check_refused("adam,epsilon=0", {"epsilon=0: expected a number above 0"});
  check_refused("adam,beta1=1", {"beta1=1: expected a number from 0 to below 1"});
  check_refused("ftrl,beta=0", {"beta=0: expected a number above 0"});
  CHECK(create("sgd,clip_gradient=none")->fingerprint() == create("sgd")->fingerprint());
}

TEST_CASE("typed options out of range are refused alike") {
  namespace o = tutti::optimizer;
  const auto refused = [](const std::function<void()>& make, const char* words) {
    test::expect_error(make, tutti::ErrorCode::invalid_argument, {words});
  };
  refused([] { (void)o::adam({.beta1 = -0.5}); }, "optimizer adam: beta1=-0.5: expected");
  refused([] { (void)o::sgd({.clip_gradient = -1}); }, "optimizer sgd: clip_gradient=-1: expected");
  refused([] { (void)o::sgd({.clip_global_norm = 0}); },
          "optimizer sgd: clip_global_norm=0: expected");
  refused([] { (void)o::sgd({.loss_scale = tutti::LossScale{.init_scale = 0}}); },
          "optimizer sgd, loss_scale: init_scale=0: expected a number above 0");
  refused([] { (void)o::sgd({.loss_scale = tutti::LossScale{.growth_factor = 0.5}}); },
          "optimizer sgd, loss_scale: growth_factor=0.5: expected a number of at least 1");
  refused([] { o::sgd()->set_learning_rate(-1); }, "optimizer sgd: learning_rate=-1: expected");
  refused([] { o::sgd()->set_learning_rate(NAN); }, "optimizer sgd: learning_rate=nan: expected");
}

TEST_CASE("the help lists every optimizer and schedule with options and defaults") {
  const std::string help = tutti::optimizer::help();
  const auto has_line = [&](const std::string& line) {
    CAPTURE(line);
    CHECK(help.find("\n  " + line) != std::string::npos);
  };
  for (const std::string& name : test::optimizer_names()) has_line(name + ",learning_rate=");
  has_line("adam,learning_rate=0.001,beta1=0.9,beta2=0.999,epsilon=1e-08\n");
  has_line(
      ",weight_decay=0,rescale_grad=1,clip_gradient=none,multi_precision=false,"
      "clip_global_norm=none,loss_scale=none\n");
  has_line(
      ",loss_scale=dynamic,init_scale=65536,growth_factor=2,backoff_factor=0.5,"
      "growth_interval=2000\n");
  has_line(",schedule=multifactor,steps=...,factor=1\n");
  has_line(",schedule=cosine,max_update=...,final_lr=0\n");
  has_line(",warmup_steps=0,warmup_begin_lr=0,warmup_mode=linear\n");
}
