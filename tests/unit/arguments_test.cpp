// SPDX-License-Identifier: Apache-2.0
// Every form in which a call takes keys and values compiles and means what it says.
#include <array>
#include <deque>
#include <doctest/doctest.h>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/tutti.hpp"

using namespace tutti;

namespace {

std::vector<Key> list_of(const Keys& keys) { return {keys.list().begin(), keys.list().end()}; }
bool is_single(const Keys& keys) { return keys.is_single(); }

std::vector<std::size_t> groups_of(const Values& values) {
  return {values.groups().begin(), values.groups().end()};
}
std::size_t count_of(const Values& values) { return values.flat().size(); }
std::size_t count_of_outputs(const Outputs& outputs) { return outputs.flat().size(); }
bool is_nested(const Values& values) { return values.is_nested(); }
const std::byte* address(const Values& values, std::size_t i) { return values.flat()[i].bytes(); }

float first(const KVStore& kv, const Key& key) { return kv.view(key).values<float>()[0]; }
Tensor filled(double value) { return Tensor::full({2, 3}, value); }

KVStore store_with(const Keys& keys) {
  KVStore kv = KVStore::create("local");
  for (const Key& key : keys.list()) kv.init(key, filled(0));
  return kv;
}

}  // namespace

TEST_CASE("one key is single: integers of any width, 0, and text of any kind") {
  CHECK(list_of(0) == std::vector<Key>{0});
  CHECK(list_of(std::size_t{7}) == std::vector<Key>{7});
  CHECK(list_of("weight") == std::vector<Key>{"weight"});
  CHECK(list_of(std::string("weight")) == std::vector<Key>{"weight"});
  CHECK(list_of(std::string_view("weight")) == std::vector<Key>{"weight"});
  CHECK(list_of(Key(3)) == std::vector<Key>{3});
  CHECK(is_single(3));
  CHECK(is_single("weight"));
  CHECK(!is_single({3}));
}

TEST_CASE("key lists: braces, vectors, arrays and spans of keys, numbers or text") {
  CHECK(list_of({5, 7, 9}) == std::vector<Key>{5, 7, 9});
  CHECK(list_of({"a", "b"}) == std::vector<Key>{"a", "b"});
  CHECK(list_of(std::vector<int>{5, 7}) == std::vector<Key>{5, 7});
  CHECK(list_of(std::vector<std::string>{"a", "b", "c"}) == std::vector<Key>{"a", "b", "c"});
  CHECK(list_of(std::vector<Key>{1, 2}) == std::vector<Key>{1, 2});
  CHECK(list_of(std::array<std::int64_t, 2>{1, 2}) == std::vector<Key>{1, 2});
  CHECK(list_of(std::deque<const char*>{"x"}) == std::vector<Key>{"x"});
  const std::vector<Key> keys = {3, 4};
  CHECK(list_of(std::span<const Key>(keys)) == keys);
  CHECK(list_of(std::vector<Key>{}).empty());
  CHECK(!is_single(std::vector<int>{3}));
}

TEST_CASE("values: one tensor, const or not, a view, a temporary") {
  Tensor tensor = filled(1);
  const Tensor constant = filled(1);
  CHECK(address(tensor, 0) == tensor.bytes());
  CHECK(address(constant, 0) == constant.bytes());
  CHECK(address(tensor.view(), 0) == tensor.bytes());
  CHECK(address(constant.view(), 0) == constant.bytes());
  CHECK(count_of(filled(1)) == 1);
  CHECK(!is_nested(tensor));
}

TEST_CASE("values: flat lists in braces and containers keep the order and the memory") {
  Tensor a = filled(1);
  const Tensor b = filled(2);
  CHECK(count_of({a, b, a}) == 3);
  CHECK(address({a, b}, 1) == b.bytes());
  std::vector<Tensor> tensors;
  tensors.push_back(filled(1));
  tensors.push_back(filled(2));
  CHECK(address(tensors, 1) == tensors[1].bytes());
  const std::vector<Tensor>& constants = tensors;
  CHECK(address(constants, 1) == tensors[1].bytes());
  const std::vector<ConstTensorView> views = {a, b};
  CHECK(address(views, 1) == b.bytes());
  const std::vector<TensorView> writable = {a, tensors[0]};
  CHECK(address(writable, 0) == a.bytes());
  CHECK(count_of(std::vector<Tensor>{}) == 0);
  CHECK(!is_nested(tensors));
}

TEST_CASE("values: lists of lists keep their groups, empty ones too") {
  Tensor a = filled(1);
  Tensor b = filled(2);
  CHECK(groups_of({{a, b}, {b}, {a, a, a}}) == std::vector<std::size_t>{2, 1, 3});
  std::vector<std::vector<Tensor>> lists(3);
  lists[0].push_back(filled(1));
  lists[2].push_back(filled(2));
  CHECK(groups_of(lists) == std::vector<std::size_t>{1, 0, 1});
  CHECK(address(lists, 1) == lists[2][0].bytes());
  const std::vector<std::vector<ConstTensorView>> views = {{a}, {b, a}};
  CHECK(groups_of(views) == std::vector<std::size_t>{1, 2});
  CHECK(is_nested(lists));
}

TEST_CASE("outputs: one, braces, containers, lists of lists") {
  Tensor a = filled(1);
  Tensor b = filled(2);
  std::vector<Tensor> tensors;
  tensors.push_back(filled(1));
  std::vector<std::vector<Tensor>> lists(1);
  lists[0].push_back(filled(1));
  CHECK(count_of_outputs(a) == 1);
  CHECK(count_of_outputs(a.view()) == 1);
  CHECK(count_of_outputs({a, b, a}) == 3);
  CHECK(count_of_outputs(tensors) == 1);
  CHECK(count_of_outputs(lists) == 1);
  CHECK(count_of_outputs(std::vector<TensorView>{a, b}) == 2);
  static_assert(!std::is_convertible_v<const Tensor&, Outputs>);
  static_assert(!std::is_convertible_v<ConstTensorView, Outputs>);
}

TEST_CASE("the calls of the documentation compile and run: init, push, pull, view") {
  auto kv = KVStore::create("local");
  kv.init(3, Tensor::full({2, 3}, 2.0f));
  kv.push(3, Tensor::full({2, 3}, 8.0f));
  Tensor a = Tensor::zeros({2, 3});
  kv.pull(3, a);
  auto w = kv.view(3);
  CHECK(w.values<float>()[5] == 8);
  const Tensor g0 = filled(1);
  Tensor g1 = filled(1);
  Tensor g2 = filled(1);
  Tensor g3 = filled(1);
  kv.push(3, {g0, g1, g2, g3});
  CHECK(first(kv, 3) == 4);
}

TEST_CASE("the calls of the documentation compile and run: lists, pushpull, broadcast") {
  KVStore kv = store_with({5, 7, 9});
  const Tensor a5 = filled(5);
  const Tensor a7 = filled(7);
  const Tensor a9 = filled(9);
  kv.push({5, 7, 9}, {a5, a7, a9});
  CHECK(first(kv, 7) == 7);
  const std::vector<int> keys = {5, 7, 9};
  std::vector<Tensor> grads;
  std::vector<Tensor> outs;
  for (int i = 0; i < 3; ++i) {
    grads.push_back(filled(i));
    outs.push_back(filled(0));
  }
  kv.pushpull(keys, grads, outs);
  CHECK(outs[2].values<float>()[0] == 2);
  kv.pushpull(keys, grads);
  const std::vector<int> new_keys = {1, 2, 4};
  kv.broadcast(new_keys, grads, outs);
  CHECK(first(kv, 4) == 2);
}

TEST_CASE("the calls of the documentation compile and run: updater, optimizer, allocate") {
  KVStore kv = store_with(3);
  kv.set_updater([](const Key& key, ConstTensorView input, TensorView stored) {
    CHECK(key == Key(3));
    stored += 2 * input;
  });
  kv.push(3, filled(1));
  CHECK(first(kv, 3) == 2);
  kv.set_optimizer(optimizer::sgd({.learning_rate = 0.1, .momentum = 0.9}));
  kv.push(3, filled(10));
  CHECK(first(kv, 3) == doctest::Approx(1));
  Tensor g = kv.allocate({1 << 20});
  kv.init(4, g);
  kv.push(4, g);
  CHECK(kv.rank() == 0);
  CHECK(kv.num_workers() == 1);
  kv.barrier();
  CHECK(kv.type() == "local");
}

TEST_CASE("key 0 is a key and no null pointer, also beside priority") {
  KVStore kv = store_with(0);
  const Tensor value = filled(3);
  kv.push(0, value);
  kv.push(0, value, 0);
  kv.push({0}, {value}, -1);
  Tensor out = filled(0);
  kv.pushpull(0, value, out, 0);
  kv.pull(0, out);
  CHECK(out.values<float>()[0] == 3);
}
