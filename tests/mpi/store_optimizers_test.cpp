// SPDX-License-Identifier: Apache-2.0
// Every optimizer over the ranks of a job: the sum that it sees, and what all ranks must share.
#include "tests/mpi/store_fixture.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/optimizer_options.hpp"
#include "tests/support/oracle.hpp"

using test::Doubles;
using tutti::DType;
using tutti::KVStore;
using tutti::Tensor;

namespace {

constexpr int kSteps = 4;

Tensor gradient_of(int owner, int step, std::int64_t count, DType dtype) {
  return test::random_tensor({count}, dtype, owner, 100 + static_cast<std::uint64_t>(step));
}

Doubles summed(int step, std::int64_t count, DType dtype) {
  Doubles sum(static_cast<std::size_t>(count), 0.0);
  for (int owner = 0; owner < test::size(); ++owner) {
    test::add_to(sum, test::to_doubles(gradient_of(owner, step, count, dtype)));
  }
  return sum;
}

/// Pushes random gradients of every rank; the weight after each step, equal on all ranks.
std::vector<Tensor> run(KVStore& kv, const std::string& text, std::int64_t count, DType dtype) {
  kv.set_optimizer(tutti::optimizer::create(text));
  kv.init("weight", test::random_tensor({count}, dtype, 0));
  std::vector<Tensor> weights;
  for (int step = 0; step < kSteps; ++step) {
    kv.push("weight", gradient_of(test::rank(), step, count, dtype));
    weights.push_back(test::stored(kv, "weight"));
    REQUIRE(test::same_on_all(test::bytes_of(weights.back())));
  }
  return weights;
}

/// Of large keys, where the layout and the optimizer allow it.
tutti::Settings sharing_updates() {
  tutti::Settings settings = test::settings();
  settings.verify = tutti::Verify::off;
  settings.algorithms = "results=updated";
  return settings;
}

void check_shared(const std::string& text, std::int64_t count, DType dtype) {
  KVStore kv = test::dist();
  const auto expected = run(kv, text, count, dtype);
  KVStore shared = KVStore::create("dist", sharing_updates());
  const auto found = run(shared, text, count, dtype);
  CHECK(test::agree(shared.verify().healed == 0));  // the states, too
  for (int step = 0; step < kSteps; ++step) {
    REQUIRE(test::agree(test::same_bits(found[step], expected[step])));
  }
}

}  // namespace

TEST_CASE("every optimizer sees the sum over the ranks, and all ranks get the same weights") {
  test::RandomOptions random(99);
  for (const std::string& name : test::optimizer_names()) {
    for (const std::int64_t count : {0, 1, 67, 30001}) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        const test::Numbers options = random.of(name);
        CAPTURE(test::text_of(name, options));
        CAPTURE(count);
        KVStore kv = test::dist();
        const auto weights = run(kv, test::text_of(name, options), count, dtype);
        if (name == "sgld") continue;  // its noise is not in the reference
        test::Reference reference(name, options);
        Doubles expected = test::to_doubles(test::random_tensor({count}, dtype, 0));
        const double tolerance = dtype == DType::float64 ? 1e-9 : 5e-4;
        for (int step = 0; step < kSteps; ++step) {
          reference.step(summed(step, count, dtype), expected);
          REQUIRE(test::agree(test::near(weights[step], expected, tolerance)));
        }
      }
    }
  }
}

TEST_CASE("16-bit weights with multi_precision are the same on all ranks, with every optimizer") {
  for (const std::string& name : test::optimizer_names()) {
    CAPTURE(name);
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      KVStore kv = test::dist();
      run(kv, name + ",multi_precision=true", 10007, dtype);
    }
  }
}

TEST_CASE("every optimizer gives the same bits where ranks share its updates, if they can") {
  for (const std::string& name : test::optimizer_names()) {
    for (const std::int64_t count : {67, 30001}) {  // a small key is not shared
      for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
        CAPTURE(name);
        CAPTURE(count);
        check_shared(name + ",multi_precision=true", count, dtype);
      }
    }
  }
}

TEST_CASE("ranks that cannot share updates say what differs, as others do") {
  if (test::size() < 2) return;
  KVStore kv = KVStore::create("dist", sharing_updates());
  kv.set_optimizer(tutti::optimizer::create("adam"));
  const tutti::Shape shape = {30001};
  kv.init({1, 2}, {test::filled(1, shape), test::filled(1, shape)});
  CHECK(test::throws_on_all([&] { kv.push(test::rank() == 0 ? 1 : 2, test::filled(1, shape)); },
                            tutti::ErrorCode::mismatch, {"key 1", "key 2"}));
  kv.push({1, 2}, {test::filled(1, shape), test::filled(1, shape)});
  CHECK(test::same_on_all(test::bytes_of(test::stored(kv, 1))));
  CHECK(test::same_on_all(test::bytes_of(test::stored(kv, 2))));
}

TEST_CASE("virtual nodes of equal powers of two give the weights of one node") {
  for (const char* name : {"adam", "sgld", "lars", "lamb", "lans"}) {
    CAPTURE(std::string(name));
    std::optional<Tensor> expected;
    for (const test::Layout& layout : test::equal_blocks()) {
      KVStore kv = KVStore::create("dist", test::settings_for(layout));
      Tensor found = std::move(run(kv, name, 5003, DType::float32).back());
      if (!expected) expected = found.clone();
      CHECK(test::agree(test::same_bits(found, *expected)));
    }
  }
}

TEST_CASE("a whole-tensor optimizer and a pushpull of several keys go together") {
  KVStore kv = test::dist();
  kv.set_optimizer(tutti::optimizer::lars({.learning_rate = 0.5, .eta = 1.0}));
  kv.init({1, 2}, {test::filled(1), test::filled(2, {3})});
  Tensor first = test::filled(0);
  Tensor second = test::filled(0, {3});
  kv.pushpull({1, 2}, {test::filled(4), test::filled(8, {3})}, {first, second});
  CHECK(test::all_near(first, 0.5f));  // the step is half of the weight's norm
  CHECK(test::all_near(second, 1.0f));
}

TEST_CASE("the schedule goes on with the pushes, alike on all ranks") {
  KVStore kv = test::dist();
  kv.set_optimizer(
      tutti::optimizer::create("sgd,learning_rate=8,schedule=factor,step=1,factor=0.5"));
  kv.init(3, test::filled(0));
  float expected = 0;
  for (float rate = 8; rate > 0.1f; rate /= 2) {
    kv.push(3, test::filled(-1));
    expected += rate * static_cast<float>(test::size());
    CHECK(test::all_near(kv.view(3), expected));
  }
}
