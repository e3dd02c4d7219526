// SPDX-License-Identifier: Apache-2.0
// A job that checkpoint_test.py starts, kills, and starts again with another number of ranks.
//
//   save DIR            trains, saves, trains on; prints the digest of what it has then
//   go-on DIR           loads, trains on; prints the same
//   load DIR            loads the values alone and prints which generation
//   loop DIR COUNT      goes on where the checkpoint ends and saves after each step, for ever
//   time DIR MIB        saves and loads that much, and prints the seconds
//   restart DIR MIB     goes on from what is there, with so much of values and of momentum, and
//                       pushes for ever; prints when it has got how far (restart_seconds.py)
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

#include "tests/support/oracle.hpp"

using namespace tutti;

namespace {

const std::vector<Shape> kShapes = {{2, 3}, {1}, {0}, {70001}, {1500000}};

/// Rank 0 alone has a gradient, so that any number of ranks sums to the same.
void train(KVStore& kv, int first, int last) {
  for (int step = first; step < last; ++step) {
    for (std::size_t key = 0; key < kShapes.size(); ++key) {
      if ((static_cast<std::size_t>(step) + key) % 3 == 0) continue;
      const auto seed = static_cast<std::uint64_t>(step) * 100 + key;
      kv.push("key" + std::to_string(key),
              kv.rank() == 0 ? test::random_tensor(kShapes[key], DType::float32, 0, seed)
                             : Tensor::zeros(kShapes[key]));
    }
  }
}

std::uint64_t digest(const KVStore& kv) {
  std::uint64_t digest = 0;
  for (std::size_t key = 0; key < kShapes.size(); ++key) {
    const ConstTensorView view = kv.view("key" + std::to_string(key));
    for (const float value : view.values<float>()) {
      digest = test::mix(digest ^ std::bit_cast<std::uint32_t>(value));
    }
  }
  return digest;
}

void go_on(KVStore& kv) {
  train(kv, 3, 5);
  if (kv.rank() == 0) std::cout << "digest " << digest(kv) << std::endl;
}

void save(KVStore& kv, const std::string& directory) {
  for (std::size_t key = 0; key < kShapes.size(); ++key) {
    kv.init("key" + std::to_string(key), test::random_tensor(kShapes[key], DType::float32, 0, key));
  }
  train(kv, 0, 3);
  kv.save(directory, {{"step", "3"}});
  kv.save_optimizer_states(directory + "/states");
  go_on(kv);
}

bool all_are(const ConstTensorView& view, float value) {
  return std::ranges::all_of(view.values<float>(), [=](float found) { return found == value; });
}

/// After step s every element of both keys is s.
int loop(KVStore& kv, const std::string& directory, std::int64_t count) {
  const LoadResult start = kv.load(directory, {.may_be_absent = true});
  if (!start) kv.init({"a", "b"}, {Tensor::zeros({count}), Tensor::zeros({3})});
  int step = start ? std::stoi(start.metadata.at("step")) : 0;
  const bool is_whole = all_are(kv.view("a"), static_cast<float>(step)) &&
                        all_are(kv.view("b"), static_cast<float>(step));
  if (!is_whole || !start.damaged.empty()) return 3;
  if (kv.rank() == 0) std::cout << "loaded " << step << std::endl;
  for (;;) {
    ++step;
    const double mine = kv.rank() == 0 ? step : 0;
    kv.push({"a", "b"}, {Tensor::full({count}, mine), Tensor::full({3}, mine)});
    kv.save(directory, {{"step", std::to_string(step)}});
    if (kv.rank() == 0) std::cout << "saved " << step << std::endl;
  }
}

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void time(KVStore& kv, const std::string& directory, std::int64_t mib) {
  kv.init("a", Tensor::full({mib, 1 << 18}, 1));
  const double saved = seconds([&] { kv.save(directory); });
  const double loaded = seconds([&] { kv.load(directory); });
  if (kv.rank() != 0) return;
  std::cout << "saved in " << saved << " s, loaded in " << loaded << " s" << std::endl;
}

/// Prints the system's time, which other processes know as well.
void tell(const KVStore* kv, const char* what) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  if (kv == nullptr || kv->rank() == 0)
    std::cout << what << ' ' << std::to_string(std::chrono::duration<double>(now).count())
              << std::endl;
}

int restart(const std::string& directory, std::int64_t mib) {
  tell(nullptr, "main");
  KVStore kv = KVStore::create("dist");
  kv.set_optimizer(optimizer::sgd({.learning_rate = 0.1, .momentum = 0.9}));
  tell(&kv, "store");
  const Shape shape{mib, 1 << 18};
  Tensor gradient = kv.allocate(shape, DType::float32);
  std::ranges::fill(gradient.values<float>(), 1.0F);
  tell(&kv, "buffers");
  if (!kv.load(directory, {.may_be_absent = true})) kv.init("a", Tensor::zeros(shape));
  tell(&kv, "loaded");
  for (;;) {
    kv.push("a", gradient);
    tell(&kv, "pushed");
    snapshot_when_due(kv, directory, [] { return Metadata(); });
  }
}

int run(const std::vector<std::string>& arguments) {
  const std::string& verb = arguments.at(0);
  const std::string& directory = arguments.at(1);
  if (verb == "restart") return restart(directory, std::stoi(arguments.at(2)));
  KVStore kv = KVStore::create(verb == "loop" ? arguments.at(3) : "dist");
  if (verb == "loop") return loop(kv, directory, std::stoi(arguments.at(2)));
  if (verb == "time") {
    time(kv, directory, std::stoi(arguments.at(2)));
  } else if (verb == "load") {
    const LoadResult result = kv.load(directory, {.weights_only = true});
    if (kv.rank() == 0) std::cout << "generation " << result.generation << std::endl;
  } else {
    kv.set_optimizer(optimizer::adam({.learning_rate = 0.05}));
    if (verb == "save") {
      save(kv, directory);
    } else {
      kv.load(directory);
      if (verb == "go-on-states") kv.load_optimizer_states(directory + "/states");
      go_on(kv);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("checkpoint_worker",
                     [&] { return run(std::vector<std::string>(argv + 1, argv + argc)); });
}
