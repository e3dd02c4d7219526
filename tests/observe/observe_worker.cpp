// SPDX-License-Identifier: Apache-2.0
// A job whose reports observe_test.py reads.
//
//   observe_worker sleepy RANK    ten steps, of two keys; RANK sleeps 50 ms before each
//   observe_worker killed RANK    the same; RANK kills itself before the last
//   observe_worker throws RANK    the same; RANK throws before the last
//   observe_worker large          pushes of 4 MB with an updater, and of rows
//   observe_worker two            two stores, one after the other
//   observe_worker remove FOLDER  one store; FOLDER is gone when it ends
//   observe_worker moves FOLDER   one store; FOLDER becomes the process's before its calls
//   observe_worker many           more calls than a rank keeps
//   observe_worker async RANK     five steps, of two keys, which RANK pushes 50 ms after the others
#include <chrono>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

#include "tutti/tutti.hpp"

using namespace tutti;

namespace {

constexpr int kSteps = 10;
constexpr auto kSleep = std::chrono::milliseconds(50);

void do_wrong(const std::string& what) {
  if (what == "killed") std::raise(SIGKILL);
  if (what == "throws") throw std::runtime_error("the data loader has no more images");
}

int steps(const std::string& what, int victim) {
  auto kv = KVStore::create("dist");
  const Tensor value = Tensor::ones({1000});
  Tensor pulled = Tensor::zeros({1000});
  kv.init({"weight", "bias"}, {value, value});
  for (int step = 0; step < kSteps; ++step) {
    if (kv.rank() == victim && what == "sleepy") std::this_thread::sleep_for(kSleep);
    if (kv.rank() == victim && step == kSteps - 1) do_wrong(what);
    kv.push({"weight", "bias"}, {value, value});
    kv.pull("weight", pulled);
  }
  kv.barrier();
  return 0;
}

int large() {
  auto kv = KVStore::create("dist");
  const Tensor value = Tensor::ones({1 << 20});
  kv.init(7, value);
  kv.set_optimizer(optimizer::sgd({.learning_rate = 0.1}));
  for (int step = 0; step < 3; ++step) kv.push(7, value);
  kv.init_row_sparse(9, {1000, 16});
  const Tensor rows = Tensor::ones({2, 16});
  const std::vector<std::int64_t> ids = {7, 999};
  kv.push(9, row_sparse(view(ids.data(), {2}), rows));
  return 0;
}

int two() {
  for (int store = 0; store < 2; ++store) {
    auto kv = KVStore::create("dist");
    kv.init(store, Tensor::ones({10}));
    kv.push(store, Tensor::ones({10}));
  }
  return 0;
}

int remove_folder(const char* folder) {
  auto kv = KVStore::create("dist");
  if (kv.rank() == 0) std::filesystem::remove_all(folder);
  kv.barrier();
  return 0;
}

int move_to(const char* folder) {
  auto kv = KVStore::create("dist");
  std::filesystem::current_path(folder);
  kv.init(1, Tensor::ones({10}));
  kv.push(1, Tensor::ones({10}));
  return 0;
}

int many() {
  constexpr int kCalls = (1 << 20) + 1000;
  auto kv = KVStore::create("dist");
  kv.init(1, Tensor::ones({1}));
  Tensor pulled = Tensor::ones({1});
  for (int i = 0; i < kCalls; ++i) kv.pull(1, pulled);
  return 0;
}

int async(int late) {
  Communicator world = Communicator::world();
  auto kv = KVStore::create(world);
  const Tensor value = Tensor::ones({1000});
  kv.init({"weight", "bias"}, {value, value});
  for (int step = 0; step < 5; ++step) {
    if (kv.rank() == late) std::this_thread::sleep_for(kSleep);
    Pending sent = kv.push_async({"weight", "bias"}, {value, value});
    if (kv.rank() != late) std::this_thread::sleep_for(2 * kSleep);
    sent.wait();
    Tensor sum = Tensor::ones({10});
    world.allreduce_async(sum).wait();
  }
  const std::uint64_t rounds = kv.statistics().total("async_agreement").calls;
  if (rounds >= 5) return 0;
  throw std::runtime_error("5 steps took " + std::to_string(rounds) + " rounds");
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("observe_worker", [&] {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "large") return large();
    if (what == "two") return two();
    if (what == "many") return many();
    if (what == "moves" && argc == 3) return move_to(argv[2]);
    if (what == "remove" && argc == 3) return remove_folder(argv[2]);
    if (argc != 3) throw Error(ErrorCode::invalid_argument, "usage: observe_worker WHAT [RANK]");
    if (what == "async") return async(std::stoi(argv[2]));
    return steps(what, std::stoi(argv[2]));
  });
}
