// SPDX-License-Identifier: Apache-2.0
// Loss scaling and clipping by the global norm, against a plain reference in double precision.
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/optimizers/squares.hpp"
#include "tests/mpi/checkpoint_fixture.hpp"

using test::filled;
using tutti::DType;
using tutti::ErrorCode;
using tutti::GradientScaling;
using tutti::KVStore;
using tutti::LossScale;
using tutti::Tensor;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  tutti::Key key;
  tutti::Shape shape;
  DType dtype;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> kAll = {
      {1, {1027}, DType::float32},   {2, {0}, DType::float32},      {3, {1}, DType::float64},
      {5, {50003}, DType::bfloat16}, {8, {300, 7}, DType::float64}, {9, {20000}, DType::float16}};
  return kAll;
}

std::vector<double> to_doubles(const tutti::ConstTensorView& tensor) {
  Tensor wide = Tensor::empty(tensor.shape(), DType::float64);
  wide.view().copy_from(tensor);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

Tensor gradient_of(const Case& one, int owner, int step) {
  return test::random_tensor(one.shape, one.dtype, owner, 10 + static_cast<std::uint64_t>(step));
}

Tensor sum_of(const Case& one, int ranks, int step) {
  return test::reduced_random(tutti::ReduceOp::sum, one.shape, one.dtype, ranks,
                              10 + static_cast<std::uint64_t>(step));
}

void init_all(KVStore& kv) {
  for (const Case& one : cases()) kv.init(one.key, Tensor::full(one.shape, 0.5, one.dtype));
}

void push_all(KVStore& kv, int step, double factor = 1) {
  std::vector<tutti::Key> keys;
  std::vector<Tensor> tensors;
  for (const Case& one : cases()) {
    keys.push_back(one.key);
    tensors.push_back(gradient_of(one, kv.rank(), step));
    if (factor != 1) tensors.back().view() *= factor;
  }
  std::vector<tutti::ConstTensorView> values(tensors.begin(), tensors.end());
  kv.push(keys, values);
}

/// The bits that the norm of all keys' sums must have.
double norm_of_sums(int ranks, int step) {
  double squares = 0;
  for (const Case& one : cases()) {
    const Tensor sum = sum_of(one, ranks, step);
    std::vector<double> tiles(tutti::optimizer::squares_tiles(one.dtype, sum.count()));
    tutti::optimizer::add_squares(one.dtype, sum.bytes(), sum.count(), tiles);
    squares += tutti::optimizer::total_squares(tiles);
  }
  return std::sqrt(squares);
}

double plain_norm(int ranks, int step) {
  double squares = 0;
  for (const Case& one : cases()) {
    for (const double value : to_doubles(sum_of(one, ranks, step))) squares += value * value;
  }
  return std::sqrt(squares);
}

bool near(const tutti::ConstTensorView& found, const std::vector<double>& expected) {
  const double tolerance = found.dtype() == DType::float64   ? 1e-12
                           : found.dtype() == DType::float32 ? 1e-6
                                                             : 1e-2;
  const std::vector<double> values = to_doubles(found);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])))
      continue;
    MESSAGE("element ", i, ": expected ", expected[i], ", got ", values[i]);
    return false;
  }
  return true;
}

/// One sgd step of all keys from 0.5.
bool is_one_step(const KVStore& kv, int step, double rate) {
  bool all = true;
  for (const Case& one : cases()) {
    std::vector<double> expected = to_doubles(sum_of(one, kv.num_workers(), step));
    for (double& value : expected) value = 0.5 - rate * value;
    all = near(kv.view(one.key), expected) && all;
  }
  return all;
}

bool same_scaling(const GradientScaling& left, const GradientScaling& right) {
  return left.loss_scale == right.loss_scale && left.good_pushes == right.good_pushes &&
         left.skipped == right.skipped && left.norm == right.norm &&
         left.was_skipped == right.was_skipped;
}

bool is_same_on_all(const GradientScaling& scaling) {
  const double numbers[] = {scaling.loss_scale, static_cast<double>(scaling.good_pushes),
                            static_cast<double>(scaling.skipped), scaling.norm};
  return test::same_on_all(std::as_bytes(std::span(numbers)));
}

/// An optimizer of the program's, which knows nothing of scales.
class Plain final : public tutti::Optimizer {
 public:
  explicit Plain(const tutti::OptimizerOptions& options) : Optimizer("plain", options) {}
  int num_states() const override { return 0; }
  void update(const tutti::UpdateStep& step,
              const tutti::ElementRange<float>& range) const override {
    apply(step, range);
  }
  void update(const tutti::UpdateStep& step,
              const tutti::ElementRange<double>& range) const override {
    apply(step, range);
  }

 private:
  template <class Real>
  static void apply(const tutti::UpdateStep& step, const tutti::ElementRange<Real>& range) {
    for (std::size_t i = 0; i < range.weight.size(); ++i) {
      range.weight[i] -= static_cast<Real>(step.learning_rate) * range.gradient[i];
    }
  }
};

}  // namespace

TEST_CASE("gradients of one push are clipped by the norm over all of its keys") {
  for (const double rescale : {1.0, 0.125}) {
    for (const double most : {0.75, 1e9}) {
      CAPTURE(rescale);
      CAPTURE(most);
      KVStore kv = test::dist();
      init_all(kv);
      kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.1,
                                              .rescale_grad = rescale,
                                              .multi_precision = true,
                                              .clip_global_norm = most}));
      push_all(kv, 1);
      const GradientScaling scaling = kv.gradient_scaling();
      const double norm = rescale * plain_norm(kv.num_workers(), 1);
      CHECK(test::agree(std::abs(scaling.norm / norm - 1) < 1e-12));
      CHECK(is_same_on_all(scaling));
      CHECK(test::agree(scaling.skipped == 0 && !scaling.was_skipped && scaling.loss_scale == 1));
      const double factor = std::min(1.0, most / (norm + 1e-6));
      CHECK(test::agree(is_one_step(kv, 1, 0.1 * rescale * factor)));
    }
  }
}

TEST_CASE("the norm has the same bits in every layout with equal sums, and so have the weights") {
  const double expected = norm_of_sums(test::size(), 2);
  for (const test::Layout& layout : test::equal_blocks()) {
    for (const std::size_t chunk : {std::size_t{4} << 10, std::size_t{256} << 10}) {
      CAPTURE(test::to_string(layout));
      CAPTURE(chunk);
      tutti::Settings settings = test::settings_for(layout, /*reproducible=*/true);
      settings.chunk_bytes = chunk;
      KVStore kv = KVStore::create("dist", settings);
      init_all(kv);
      kv.set_optimizer(tutti::optimizer::create(
          "sgd,multi_precision=true,clip_global_norm=1,learning_rate=0.1"));
      push_all(kv, 2);
      CHECK(test::agree(kv.gradient_scaling().norm == expected));
    }
  }
}

TEST_CASE("a constant loss scale that is a power of two changes no bit of the weights") {
  for (const char* optimizer : {"sgd,momentum=0.9", "adam", "lars", "nag,weight_decay=0.1"}) {
    CAPTURE(optimizer);
    KVStore plain = test::dist();
    KVStore scaled = test::dist();
    plain.set_optimizer(tutti::optimizer::create(optimizer));
    scaled.set_optimizer(tutti::optimizer::create(std::string(optimizer) + ",loss_scale=1024"));
    CHECK(test::agree(plain.loss_scale() == 1 && scaled.loss_scale() == 1024));
    plain.init(3, filled(1, {5001}));
    scaled.init(3, filled(1, {5001}));
    for (int step = 0; step < 3; ++step) {
      Tensor gradient = test::random_tensor({5001}, DType::float32, test::rank(),
                                            static_cast<std::uint64_t>(step));
      plain.push(3, gradient);
      gradient.view() *= scaled.loss_scale();
      scaled.push(3, gradient);
    }
    CHECK(test::agree(test::same_bits(plain.view(3), scaled.view(3))));
    CHECK(test::agree(scaled.loss_scale() == 1024));
  }
}

TEST_CASE("a push with a gradient that is not finite on one rank is skipped by all") {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    CAPTURE(bad);
    test::for_each_type([&](KVStore& kv, float pushed) {
      kv.init({1, 2}, {filled(1), filled(1, {4099})});
      const std::string schedule = ",schedule=factor,step=1,factor=0.5";
      kv.set_optimizer(tutti::optimizer::create(
          "sgd,learning_rate=1,momentum=0.5,loss_scale=dynamic,init_scale=8,growth_interval=2" +
          schedule));
      const auto push = [&](bool is_good) {
        Tensor gradient = filled(kv.loss_scale(), {4099});
        if (!is_good && test::is_last()) gradient.values<float>()[4098] = bad;
        if (!is_good && std::string_view(kv.type()) != "dist") {
          gradient.values<float>()[4098] = bad;
        }
        kv.push({1, 2}, {filled(kv.loss_scale()), gradient});
      };
      push(false);
      CHECK(test::all_are(kv.view(1), 1));
      CHECK(test::all_are(kv.view(2), 1));
      CHECK(test::agree(kv.loss_scale() == 4 && kv.gradient_scaling().skipped == 1));
      CHECK(test::agree(kv.gradient_scaling().was_skipped));
      CHECK(test::agree(kv.statistics().total("skipped_push").calls >= 1));
      push(true);  // the first update, with the first rate: the skipped push counts nowhere
      const float first = kv.optimizer().options().schedule ? -pushed : 0;
      CHECK(test::all_near(kv.view(1), 1 + first));
      CHECK(test::all_near(kv.view(2), 1 + first));
      CHECK(test::agree(kv.loss_scale() == 4 && kv.gradient_scaling().good_pushes == 1));
      push(true);
      CHECK(test::agree(kv.loss_scale() == 8 && kv.gradient_scaling().good_pushes == 0));
      push(true);
      push(false);
      CHECK(test::agree(kv.loss_scale() == 4 && kv.gradient_scaling().good_pushes == 0));
      CHECK(test::agree(kv.gradient_scaling().skipped == 2));
    });
  }
}

TEST_CASE("a dynamic scale stays a normal number of float32") {
  KVStore kv = test::dist();
  kv.init(1, filled(0));
  kv.set_optimizer(tutti::optimizer::sgd(
      {.loss_scale = LossScale{.growth_factor = 1e30, .growth_interval = 1}}));
  for (int i = 0; i < 3; ++i) kv.push(1, filled(0));
  CHECK(test::agree(kv.loss_scale() == std::numeric_limits<float>::max()));
  kv.set_optimizer(tutti::optimizer::sgd({.loss_scale = LossScale{.backoff_factor = 1e-30}}));
  CHECK(test::agree(kv.loss_scale() == 65536));
  for (int i = 0; i < 3; ++i) kv.push(1, filled(kInfinity));
  CHECK(test::agree(kv.loss_scale() == std::numeric_limits<float>::min()));
  CHECK(test::all_are(kv.view(1), 0));
}

TEST_CASE("clipping alone skips what is not finite, too, and elements within range are not") {
  KVStore kv = test::dist();
  kv.init({1, 2}, {filled(0), Tensor::zeros({3}, DType::float64)});
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1, .clip_global_norm = 1}));
  kv.push({1, 2}, {filled(3e37), Tensor::zeros({3}, DType::float64)});
  CHECK(test::agree(!kv.gradient_scaling().was_skipped));
  const tutti::ConstTensorView weight = kv.view(1);
  CHECK(test::agree(std::abs(weight.values<float>()[0] + 1 / std::sqrt(6.0)) < 1e-6));
  kv.push({1, 2}, {filled(0), Tensor::full({3}, 1e200, DType::float64)});
  CHECK(test::agree(kv.gradient_scaling().was_skipped && kv.gradient_scaling().skipped == 1));
}

TEST_CASE("an optimizer of the program's gets gradients that are scaled already") {
  KVStore kv = test::dist();
  init_all(kv);
  kv.set_optimizer(
      std::make_shared<Plain>(tutti::OptimizerOptions{.learning_rate = 0.1,
                                                      .multi_precision = true,
                                                      .clip_global_norm = 2.0,
                                                      .loss_scale = LossScale{.init_scale = 16}}));
  push_all(kv, 3, kv.loss_scale());
  const double norm = plain_norm(kv.num_workers(), 3);
  CHECK(test::agree(std::abs(kv.gradient_scaling().norm / norm - 1) < 1e-12));
  CHECK(test::agree(is_one_step(kv, 3, 0.1 * std::min(1.0, 2 / (norm + 1e-6)))));
}

TEST_CASE("a checkpoint keeps the scale and its counters: training goes on with the same bits") {
  test::with_folder([](const test::fs::path& folder) {
    const auto start = [](const std::string& more) {
      KVStore kv = test::dist();
      kv.set_optimizer(tutti::optimizer::create(
          "adam,multi_precision=true,loss_scale=dynamic,init_scale=64,growth_interval=3" + more));
      return kv;
    };
    const auto train = [](KVStore& kv, int first, int last) {
      for (int step = first; step < last; ++step) {
        push_all(kv, step, step == 2 ? 1e300 : kv.loss_scale());
      }
    };
    KVStore whole = start(",clip_global_norm=1");
    init_all(whole);
    train(whole, 0, 4);
    CHECK(test::agree(whole.gradient_scaling().skipped == 1 && whole.loss_scale() == 32));
    whole.save(folder / "all");
    whole.save_optimizer_states(folder / "states");
    train(whole, 4, 8);

    KVStore resumed = start(",clip_global_norm=1");
    resumed.load(folder / "all");
    CHECK(test::agree(resumed.gradient_scaling().skipped == 1));
    train(resumed, 4, 8);
    for (const Case& one : cases()) {
      CHECK(test::agree(test::same_bits(whole.view(one.key), resumed.view(one.key))));
    }
    CHECK(test::agree(same_scaling(whole.gradient_scaling(), resumed.gradient_scaling())));
    resumed.load_optimizer_states(folder / "states");
    CHECK(test::agree(resumed.loss_scale() == 32 && resumed.gradient_scaling().good_pushes == 1));
    resumed.load(folder / "all", {.weights_only = true});
    CHECK(test::agree(resumed.loss_scale() == 64 && resumed.gradient_scaling().skipped == 0));

    KVStore other = start("");
    CHECK(test::throws_on_all([&] { other.load(folder / "all"); }, ErrorCode::invalid_argument,
                              {"clip_global_norm=1", "other_options"}));
    other.load(folder / "all", {.other_options = true});
    CHECK(test::agree(other.loss_scale() == 32));
    KVStore clipped = test::dist();
    clipped.set_optimizer(tutti::optimizer::create("adam,multi_precision=true,clip_global_norm=1"));
    clipped.load(folder / "all", {.other_options = true});
    CHECK(test::agree(clipped.loss_scale() == 1 && clipped.gradient_scaling().skipped == 1));
    KVStore constant = test::dist();
    constant.set_optimizer(tutti::optimizer::create("adam,multi_precision=true,loss_scale=8"));
    constant.load(folder / "all", {.other_options = true});
    CHECK(test::agree(constant.loss_scale() == 8));
    KVStore without = test::dist();
    without.set_optimizer(tutti::optimizer::create("adam,multi_precision=true"));
    without.load(folder / "all", {.other_options = true});
    CHECK(test::agree(without.loss_scale() == 1));
    without.save(folder / "without");
    KVStore again = start("");
    again.load(folder / "without", {.other_options = true});
    CHECK(test::agree(again.loss_scale() == 64));
  });
}

TEST_CASE("what cannot be scaled or clipped is refused on every rank, and changes nothing") {
  KVStore kv = test::dist();
  kv.init(1, filled(1));
  kv.init_row_sparse(2, tutti::Shape{4, 3});
  kv.set_optimizer(tutti::optimizer::sgd({.clip_global_norm = 1}));
  CHECK(test::throws_on_all(
      [&] {
        const Tensor ids = Tensor::from(std::vector<std::int64_t>{1});
        const Tensor rows = filled(1, {1, 3});
        kv.push(2, tutti::row_sparse(ids, rows));
      },
      ErrorCode::invalid_argument,
      {"key 2 (4, 3) float32, row-sparse: the optimizer's options clip_global_norm and loss_scale "
       "are for dense keys; keep row-sparse keys in a store of their own"}));
  CHECK(test::throws_on_all(
      [&] { kv.push_async(1, filled(1)).wait(); }, ErrorCode::invalid_argument,
      {"push_async: the optimizer's options clip_global_norm and loss_scale are for all keys of a "
       "push together, and an asynchronous push goes key by key; call push() with the whole "
       "list"}));
  for (const char* compression : {"2bit,threshold=0.5", "1bit", "2bit,threshold=0.5,leg=between"}) {
    kv.set_gradient_compression(compression);
    CHECK(test::throws_on_all(
        [&] { kv.push(1, filled(1)); }, ErrorCode::invalid_argument,
        {"clip_global_norm and loss_scale are for gradients without compression, whose residuals "
         "would keep what is not finite; set no compression, or no such option"}));
  }
  kv.set_gradient_compression("none");
  CHECK(test::all_are(kv.view(1), 1));
  CHECK(test::agree(kv.gradient_scaling().norm == 0));
  kv.push(1, filled(0));
  CHECK(test::all_are(kv.view(1), 1));
}

TEST_CASE("TUTTI_ASYNC=1 trains as without, by pushes that block") {
  tutti::Settings settings = test::settings();
  settings.asynchronous = true;
  KVStore blocking = test::dist();
  KVStore other = KVStore::create("dist", settings);
  for (KVStore* kv : {&blocking, &other}) {
    init_all(*kv);
    kv->set_optimizer(tutti::optimizer::create(
        "adam,multi_precision=true,clip_global_norm=1,loss_scale=dynamic"));
    for (int step = 0; step < 3; ++step) push_all(*kv, step);
  }
  for (const Case& one : cases()) {
    CHECK(test::agree(test::same_bits(blocking.view(one.key), other.view(one.key))));
  }
  CHECK(test::agree(same_scaling(blocking.gradient_scaling(), other.gradient_scaling())));
}

TEST_CASE("ranks whose scales differ learn of it at their next push") {
  if (test::size() == 1) return;
  KVStore kv = test::dist();
  kv.init(1, filled(1));
  kv.set_optimizer(tutti::optimizer::sgd(
      {.loss_scale = LossScale{.init_scale = test::is_last() ? 2.0 : 4.0, .is_dynamic = false}}));
  CHECK(test::throws_on_all([&] { kv.push(1, filled(1)); }, ErrorCode::mismatch,
                            {"loss_scale=2", "loss_scale=4"}));
  CHECK(test::all_are(kv.view(1), 1));
}
