// SPDX-License-Identifier: Apache-2.0
// What calls of a local store cost in C++, for costs.py: a line each, name and microseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using namespace tutti;

/// The median of 31 batches, in microseconds a call.
template <class Call>
void measure(const char* name, int calls, Call&& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> batches(31);
  for (double& batch : batches) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    batch = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
  }
  std::ranges::sort(batches);
  std::printf("%s %.3f\n", name, batches[batches.size() / 2]);
}

int run() {
  KVStore kv = KVStore::create("local");
  const Tensor one = Tensor::zeros({8});
  kv.init(1000, one);
  measure("push", 2000, [&] { kv.push(1000, one); });

  std::vector<Key> keys;
  std::vector<Tensor> arrays;
  std::vector<ConstTensorView> values;
  for (int i = 0; i < 161; ++i) {
    keys.emplace_back(i);
    values.emplace_back(arrays.emplace_back(Tensor::zeros({64})));
  }
  kv.init(keys, values);
  measure("list", 200, [&] { kv.push(keys, values); });

  kv.init(2000, Tensor::zeros({25'000'000}));
  measure("view", 2000, [&] { static_cast<void>(kv.view(2000)); });
  return 0;
}

}  // namespace

int main() { return run_program("costs", run); }
