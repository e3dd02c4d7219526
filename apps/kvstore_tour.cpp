// SPDX-License-Identifier: Apache-2.0
// A walk through the store, call by call, for each type of store. Every value is checked.
//
// In a "dist" store all ranks push, and a push sums over them: where a value depends on the number
// of workers, the comment beside it gives it for one.
#include <iostream>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "support/tour.hpp"

namespace {

using apps::filled;
using apps::Narrator;
using apps::on_devices;
using apps::on_devices_per_key;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

void pull_and_show(const KVStore& kv, Narrator& tell, double expected) {
  Tensor a = Tensor::zeros(apps::kTourShape);
  kv.pull(3, a);
  tell.value(a, expected);
}

void set_updater(KVStore& kv, Narrator& tell, double factor) {
  kv.set_updater(
      [&tell, factor](const Key& key, tutti::ConstTensorView input, tutti::TensorView stored) {
        tell.update(key);
        stored += factor * input;
      });
}

void one_key(KVStore& kv, Narrator& tell) {
  const double workers = kv.num_workers();
  tell.call("init(3, 2 * ones); pull(3, a)");
  kv.init(3, filled(2));
  pull_and_show(kv, tell, 2);

  tell.call("push(3, 8 * ones); pull(3, a)");
  kv.push(3, filled(8));
  pull_and_show(kv, tell, 8 * workers);  // 8: without an updater the sum replaces the value

  tell.call("push(3, [ones on cpu(0) .. cpu(3)]); pull(3, a)");
  kv.push(3, on_devices(4, 1));
  pull_and_show(kv, tell, 4 * workers);  // 4: a list is summed first

  tell.call("set_updater(stored += 2 * input); pull(3, a)");
  set_updater(kv, tell, 2);
  pull_and_show(kv, tell, 4 * workers);  // 4: nothing changes until the next push
  tell.expect_updates({});

  tell.call("push(3, ones); pull(3, a)");
  kv.push(3, filled(1));
  pull_and_show(kv, tell, 6 * workers);  // 6 = 4 + 2 * 1
  tell.expect_updates({3});

  tell.call("pull(3, [b[0] on cpu(0) .. b[3] on cpu(3)])");
  std::vector<Tensor> b = on_devices(4, 1);
  kv.pull(3, b);
  tell.one_of(b, 1, 6 * workers);
}

// Continues one_key: the updater is still set.
void lists_of_keys(KVStore& kv, Narrator& tell) {
  const double workers = kv.num_workers();
  const std::vector<Key> keys{5, 7, 9};
  tell.call("init([5, 7, 9], ones each); push([5, 7, 9], ones each); pull([5, 7, 9], b)");
  std::vector<Tensor> b = on_devices(3, 0);
  kv.init(keys, on_devices(3, 1));
  kv.push(keys, on_devices(3, 1));
  kv.pull(keys, b);
  tell.one_of(b, 1, 1 + 2 * workers);  // 3 = 1 + 2 * 1
  tell.expect_updates(keys);

  tell.call("push([5, 7, 9], [ones on cpu(0) .. cpu(3)] each); pull([5, 7, 9], b)");
  auto lists = on_devices_per_key(keys.size(), 4, 1);
  kv.push(keys, lists);
  kv.pull(keys, lists);
  tell.one_of(lists, 1, 1 + 10 * workers);  // 11 = 3 + 2 * 4
  tell.expect_updates(keys);
}

void several_devices(KVStore& kv, Narrator& tell) {
  const double workers = kv.num_workers();
  tell.call("init(3, -2 * ones); pull(3, a)");
  kv.init(3, filled(-2));
  pull_and_show(kv, tell, -2);

  tell.call("push(3, -7 * ones); pull(3, a)");
  kv.push(3, filled(-7));
  pull_and_show(kv, tell, -7 * workers);

  tell.call("push(3, [ones on cpu(0) .. cpu(2)]); pull(3, a)");
  kv.push(3, on_devices(3, 1));
  pull_and_show(kv, tell, 3 * workers);

  const std::vector<Key> keys{7, 11, 13, 17};
  std::vector<Tensor> c = on_devices(4, 0);
  tell.call("init([7, 11, 13, 17], -3 * ones each); pull([7, 11, 13, 17], c)");
  kv.init(keys, on_devices(4, -3));
  kv.pull(keys, c);
  tell.one_of(c, 0, -3);

  tell.call("push([7, 11, 13, 17], [-0.1 * ones on cpu(0) .. cpu(2)] each); pull(.., c)");
  kv.push(keys, on_devices_per_key(keys.size(), 3, -0.1));
  kv.pull(keys, c);
  tell.one_of(c, 0, -0.3 * workers);

  tell.call("set_updater(stored += 0.01 * input); pull(3, a)");
  set_updater(kv, tell, 0.01);
  pull_and_show(kv, tell, 3 * workers);

  tell.call("push(3, 5 * ones); pull(3, a)");
  kv.push(3, filled(5));
  pull_and_show(kv, tell, 3.05 * workers);  // 3.05 = 3 + 0.01 * 5
  tell.expect_updates({3});
}

int tour(int argc, char** argv) {
  tutti::Communicator world = tutti::Communicator::world();
  std::string text;
  world.agree([&] { text = apps::tour_text(argc, argv); });
  if (!text.empty()) {
    if (world.rank() == 0) std::cout << text;
    return 0;
  }
  Narrator tell(world.rank() == 0);
  for (const std::string type : {"local", "device", "dist"}) {
    KVStore first = KVStore::create(type);
    tell.heading(first);
    one_key(first, tell);
    lists_of_keys(first, tell);
    KVStore second = KVStore::create(type);
    tell.heading(second);
    several_devices(second, tell);
  }
  return tell.verdict(world);
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("kvstore-tour", [&] { return tour(argc, argv); });
}
