// SPDX-License-Identifier: Apache-2.0
// A job of which one rank, or each, ends in one of many ways, in the middle of one kind of work.
// edges_test.py starts it and looks at the end.
//
//   edge_worker KIND WAY one|all     KIND: a name of kKinds; WAY: a name of kWays
//   edge_worker KIND                 the work alone; rank 0 prints "right" if its result is
//   edge_worker save DIRECTORY       a checkpoint, saved and loaded
//   edge_worker save-async DIRECTORY three checkpoints; prints "right" if the last one is loaded
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tutti/mpi.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;

namespace {

constexpr int kSteps = 5;
constexpr int kCount = 100'000;

/// A step of one kind of work; a result that is wrong is an error.
class Work {
 public:
  explicit Work(const std::string& kind) : kind_(kind), world_(Communicator::world()) {
    if (kind == "communicator") return;
    store_.emplace(KVStore::create(world_));
    store_->init("a", value_);
  }

  void step() {
    if (kind_ == "store") {
      store_->push("a", value_);
      store_->pull("a", sum_);
    } else if (kind_ == "snapshots") {
      store_->push("a", value_);
      store_->pull("a", sum_);
      snapshot_when_due(*store_, "run", [] { return Metadata(); });
    } else if (kind_ == "async") {
      if (pending_) finish();
      pending_ = store_->push_async("a", value_);
    } else {
      world_.allreduce(value_, sum_);
    }
    if (kind_ != "async") check();
  }
  void finish() {
    if (!pending_) return;
    pending_->wait();
    pending_.reset();
    store_->pull("a", sum_);
    check();
  }
  [[nodiscard]] const Communicator& world() const { return world_; }

 private:
  void check() const {
    for (const float element : sum_.values<float>()) {
      if (element != static_cast<float>(world_.size())) throw std::runtime_error("a wrong sum");
    }
  }

  std::string kind_;
  Communicator world_;
  std::optional<KVStore> store_;
  std::optional<Pending> pending_;
  Tensor value_ = Tensor::ones({kCount});
  Tensor sum_ = Tensor::zeros({kCount});
};

[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

/// How a process ends, beside returning from main. None returns.
const std::map<std::string, std::function<void()>> kWays = {
    {"exit", [] { std::exit(0); }},
    {"exit_in_thread",
     [] {
       std::thread([] { std::exit(0); }).detach();
       wait_for_the_end();
     }},
    {"quick_exit", [] { std::quick_exit(0); }},
    {"_exit", [] { _exit(0); }},
    {"abort", [] { std::abort(); }},
    {"terminate",
     [] {
       std::thread([] { throw std::runtime_error("thrown in a thread"); }).detach();
       wait_for_the_end();
     }},
    {"throw", [] { throw std::runtime_error("thrown in the program"); }},
    {"throw_int", [] { throw 7; }},  // NOLINT: what a program may do
    {"sigterm", [] { std::raise(SIGTERM); }},
    {"sigint", [] { std::raise(SIGINT); }},
    {"sigsegv", [] { std::raise(SIGSEGV); }},
    {"sigkill", [] { std::raise(SIGKILL); }},
    {"exec", [] { execl("/bin/true", "true", nullptr); }},
    {"mpi_abort", [] { MPI_Abort(MPI_COMM_WORLD, 5); }},
};

int run(const std::string& kind, const std::string& way, bool all) {
  Work work(kind);
  for (int step = 0; step < kSteps; ++step) work.step();
  if (all || work.world().rank() == work.world().size() - 1) {
    std::cout << "ends" << std::endl;
    if (way == "return") return 0;
    if (way == "return_3") return 3;
    if (way == "finalize") {
      MPI_Finalize();
      return 0;
    }
    kWays.at(way)();
  }
  for (int step = 0; step < kSteps; ++step) work.step();
  work.finish();
  return 0;
}

int work_alone(const std::string& kind) {
  Work work(kind);
  for (int step = 0; step < kSteps; ++step) work.step();
  work.finish();
  if (work.world().rank() == 0) std::cout << "right" << std::endl;
  return 0;
}

int save(const std::string& directory) {
  KVStore kv = KVStore::create("dist");
  kv.init("a", Tensor::ones({kCount}));
  kv.save(directory);
  kv.load(directory);
  return 0;
}

int save_async(const std::string& directory) {
  constexpr int kSaves = 3;
  KVStore kv = KVStore::create("dist");
  kv.init("a", Tensor::zeros({kCount}));
  for (int save = 1; save <= kSaves; ++save) {
    kv.push("a", Tensor::full({kCount}, kv.rank() == 0 ? save : 0));
    kv.save_async(directory, {{"step", std::to_string(save)}});
  }
  const bool is_last = kv.load(directory).metadata.at("step") == std::to_string(kSaves);
  if (!is_last || kv.view("a").values<float>()[kCount - 1] != kSaves) return 3;
  if (kv.rank() == 0) std::cout << "right" << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("edge_worker", [&] {
    if (argc == 2) return work_alone(argv[1]);
    if (argc == 3 && std::string(argv[1]) == "save") return save(argv[2]);
    if (argc == 3 && std::string(argv[1]) == "save-async") return save_async(argv[2]);
    if (argc != 4) {
      throw Error(ErrorCode::invalid_argument,
                  "usage: edge_worker KIND [WAY one|all], save DIRECTORY or save-async DIRECTORY");
    }
    return run(argv[1], argv[2], std::string(argv[3]) == "all");
  });
}
