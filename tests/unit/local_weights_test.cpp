// SPDX-License-Identifier: Apache-2.0
// A rank's own copy of weights, beside a store that does the same.
#include "apps/support/local_weights.hpp"

#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

namespace {

using tutti::Tensor;

const std::vector<tutti::Key> kKeys{"weight", "bias"};

/// What is pushed to the first and to the second key; different for each step.
std::vector<Tensor> gradients(int step) {
  std::vector<Tensor> both;
  for (const std::int64_t count : {7, 3}) {
    both.push_back(Tensor::zeros({count}));
    for (float& element : both.back().values<float>()) {
      element = 0.125F * static_cast<float>(step + 1) - 0.25F * static_cast<float>(count);
      ++step;
    }
  }
  return both;
}

std::vector<Tensor> initial() {
  std::vector<Tensor> both;
  both.push_back(Tensor::full({7}, 0.5));
  both.push_back(Tensor::full({3}, -0.25));
  return both;
}

std::vector<tutti::ConstTensorView> views(const std::vector<Tensor>& tensors) {
  return {tensors.begin(), tensors.end()};
}

std::vector<float> values(const apps::LocalWeights& weights) {
  std::vector<float> all = weights.value(0).to_vector<float>();
  const std::vector<float> second = weights.value(1).to_vector<float>();
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

void train(apps::LocalWeights& weights, int first, int last) {
  for (int step = first; step < last; ++step) weights.update(gradients(step));
}

const char* const kScheduled = "sgd,momentum=0.9,schedule=factor,step=2,factor=0.5";

}  // namespace

TEST_CASE("local weights have the bits of a store with the same optimizer") {
  for (const char* const text :
       {"sgd", "nag,momentum=0.9", "adam", "lamb", "dcasgd,momentum=0.5", "sgld", kScheduled}) {
    CAPTURE(std::string(text));
    auto store = tutti::KVStore::create("local");
    store.set_optimizer(tutti::optimizer::create(text));
    store.init(kKeys, initial());
    apps::LocalWeights weights(kKeys, views(initial()), tutti::optimizer::create(text));
    for (int step = 0; step < 6; ++step) {
      store.push(kKeys, gradients(step));
      weights.update(gradients(step));
    }
    for (std::size_t index = 0; index < kKeys.size(); ++index) {
      CHECK(weights.value(index).to_vector<float>() == store.view(kKeys[index]).to_vector<float>());
    }
  }
}

TEST_CASE("assign replaces the weights and keeps the states") {
  apps::LocalWeights weights(kKeys, views(initial()), tutti::optimizer::create("sgd,momentum=0.9"));
  train(weights, 0, 2);
  const std::vector<float> before = values(weights);
  weights.assign(views(initial()));
  CHECK(weights.value(0).to_vector<float>() == std::vector<float>(7, 0.5F));
  weights.update(gradients(2));
  apps::LocalWeights anew(kKeys, views(initial()), tutti::optimizer::create("sgd,momentum=0.9"));
  anew.update(gradients(2));
  CHECK(values(weights) != values(anew));  // the momentum of two steps is there
  CHECK(values(weights) != before);
}

TEST_CASE("weights that begin anew have new states and a schedule that goes on") {
  apps::LocalWeights weights(kKeys, views(initial()), tutti::optimizer::create(kScheduled));
  train(weights, 0, 4);
  weights.assign(views(initial()));
  weights.begin_at(4);
  apps::LocalWeights anew(kKeys, views(initial()), tutti::optimizer::create(kScheduled));
  anew.begin_at(4);
  apps::LocalWeights first(kKeys, views(initial()), tutti::optimizer::create(kScheduled));
  train(weights, 4, 6);
  train(anew, 4, 6);
  train(first, 4, 6);
  CHECK(values(weights) == values(anew));
  CHECK(values(weights) != values(first));  // its rate has not decayed yet
}

TEST_CASE("states that begin as the weight begin as the assigned one") {
  const std::string text = "dcasgd,momentum=0.5,lambda=2";
  apps::LocalWeights weights(kKeys, views(initial()), tutti::optimizer::create(text));
  train(weights, 0, 3);
  weights.assign(views(initial()));
  weights.begin_at(0);
  apps::LocalWeights anew(kKeys, views(initial()), tutti::optimizer::create(text));
  train(weights, 3, 5);
  train(anew, 3, 5);
  CHECK(values(weights) == values(anew));
}

TEST_CASE("an optimizer without states goes on as if nothing had happened") {
  apps::LocalWeights whole(kKeys, views(initial()), tutti::optimizer::create("sgld"));
  apps::LocalWeights first(kKeys, views(initial()), tutti::optimizer::create("sgld"));
  apps::LocalWeights second(kKeys, views(initial()), tutti::optimizer::create("sgld"));
  train(whole, 0, 5);
  train(first, 0, 3);
  second.assign({first.value(0), first.value(1)});
  second.begin_at(3);
  train(second, 3, 5);
  CHECK(values(second) == values(whole));
}
