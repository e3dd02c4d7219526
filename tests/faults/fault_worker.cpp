// SPDX-License-Identifier: Apache-2.0
// A job in which one rank does something wrong, or which the machine does not give what it needs.
// faults_test.py starts it and looks at the end.
//
//   fault_worker FAULT VICTIM      what goes wrong in the middle of the run, and on which rank
//   fault_worker hangs VICTIM      MPI_Test does not return any more, on one rank
//   fault_worker stuck VICTIM      the same, on all ranks
//   fault_worker FAULT VICTIM async  the same, with pushes that each step waits for at its end
//   fault_worker FAULT VICTIM groups the same, with a store for each pair of ranks, and a barrier
//                                  of the job after each step
//   fault_worker receiver VICTIM message   this rank is killed when the first pieces of a message
//                                          have come to it
//   fault_worker sender VICTIM message     when those of its own message have come to another
//   fault_worker takes MIB         as much of node-shared memory, twice
//   fault_worker saves DIRECTORY   a checkpoint
//   fault_worker late VICTIM       this rank creates its store when nobody waits any more
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tutti/mpi.hpp"
#include "tutti/tutti.hpp"

#include "tests/faults/stuck_mpi.hpp"

using namespace tutti;

namespace {

constexpr int kSteps = 20;
constexpr int kStepOfFault = 7;
const Shape kShape{30, 40};

/// On the clock of the machine, so that the test knows how long the job went on.
void say_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::array<char, 64> line{};
  const int length = std::snprintf(line.data(), line.size(), "fault at %lld.%09ld\n",
                                   static_cast<long long>(now.tv_sec), now.tv_nsec);
  static_cast<void>(!write(STDOUT_FILENO, line.data(), static_cast<std::size_t>(length)));
}

/// A rank that is stopped is named by its own node. Others wait for that node's first rank, ask it
/// after their deadline, and name it if it does not answer for a second: they come later, so that
/// a node that has no core for a while is still the first to speak. So do ranks that would ask the
/// first one of their own node.
void leave_to_node_of(int victim, const Communicator& world) {
  const int node = victim / world.local_size();  // nodes are consecutive, and equal
  if (world.node() == node) return;
  if (victim % world.local_size() == 0 && world.local_rank() == 0) return;
  std::this_thread::sleep_for(std::chrono::seconds(2));
}

/// Ends this process or its part in the job.
void do_wrong(const std::string& fault) {
  if (fault == "killed") std::raise(SIGKILL);
  if (fault == "stopped") std::raise(SIGSTOP);
  if (fault == "aborts") std::abort();
  if (fault == "vanishes") _exit(0);
  if (fault == "hangs") test::let_mpi_hang();
  if (fault == "throws") throw std::runtime_error("the data loader has no more images");
}

/// One step's pushes, synchronous or not.
class Pushes {
 public:
  Pushes(KVStore& kv, bool is_async) : kv_(kv), is_async_(is_async) {}

  void push(const char* key, const Tensor& value) {
    if (is_async_) {
      pending_.push_back(kv_.push_async(key, value));
    } else {
      kv_.push(key, value);
    }
  }
  void wait() {
    for (const Pending& one : std::exchange(pending_, {})) one.wait();
  }

 private:
  KVStore& kv_;
  bool is_async_;
  std::vector<Pending> pending_;
};

/// The pushes of the rank with the fault, in its step.
void push_wrong(Pushes& pushes, const std::string& fault, const Tensor& value) {
  if (fault == "order") {
    pushes.push("b", value);
    pushes.push("a", value);
  } else if (fault == "shape") {
    pushes.push("a", Tensor::ones({40, 30}));
  } else if (fault == "dtype") {
    pushes.push("a", Tensor::ones(kShape, DType::float64));
  } else if (fault == "midway") {
    pushes.push("a", value);
    throw std::runtime_error("the data loader has no more images");
  } else if (fault == "quits") {
    pushes.push("c", value);  // as nobody else does
    std::exit(0);
  } else {
    if (fault != "skips") pushes.push("a", value);
    pushes.push("b", value);
  }
}

int run(const std::string& fault, int victim, const std::string& mode) {
  Communicator world = Communicator::world();
  const bool has_groups = mode == "groups";
  KVStore kv = KVStore::create(has_groups ? world.split(world.rank() / 2) : world);
  const bool is_victim = world.rank() == victim;
  kv.init({"a", "b", "c"}, {Tensor::zeros(kShape), Tensor::zeros(kShape), Tensor::zeros(kShape)});
  int step = 0;
  kv.set_updater([&](const Key&, ConstTensorView, TensorView) {
    if (fault == "updater" && is_victim && step == kStepOfFault) {
      throw std::runtime_error("the learning rate is not a number");
    }
  });
  const Tensor value = Tensor::ones(kShape);
  Pushes pushes(kv, mode == "async");
  for (; step < kSteps; ++step) {
    if (step == kStepOfFault && fault == "stuck") test::let_mpi_hang();
    if (step == kStepOfFault && fault == "stopped") leave_to_node_of(victim, world);
    if (step != kStepOfFault || !is_victim) {
      pushes.push("a", value);
      pushes.push("b", value);
      pushes.wait();
      if (has_groups) world.barrier();
      continue;
    }
    say_now();
    if (fault == "steps") break;
    if (fault == "exits" || fault == "finalizes") return 0;
    if (fault == "returns") {
      pushes.push("c", value);
      return 0;
    }
    if (fault == "creates") KVStore::create("dist");
    do_wrong(fault);
    push_wrong(pushes, fault, value);
    pushes.wait();
  }
  kv.barrier();
  return 0;
}

/// Kills a process as soon as the receiver's memory has more than the first MiB of a message.
void kill_in_message(std::atomic_ref<float> late_element, pid_t process) {
  while (late_element.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  say_now();
  kill(process, SIGKILL);
}

/// Large messages between two ranks, until one of them is killed; the others wait for both.
int exchange_messages(bool victim_sends, int victim) {
  constexpr std::int64_t kCount = std::int64_t{16} << 20;  // 64 MiB
  constexpr std::size_t kSeen = std::size_t{1} << 18;      // behind 1 MiB
  Communicator world = Communicator::world();
  const int other = (victim + world.size() / 2) % world.size();
  const int sender = victim_sends ? victim : other;
  const int receiver = victim_sends ? other : victim;
  const Tensor own = Tensor::from(std::vector<std::int64_t>{getpid()});
  Tensor processes = Tensor::zeros({world.size()}, DType::int64);
  world.allgather(own, processes);
  if (world.rank() == sender) {
    const Tensor data = Tensor::ones({kCount});
    for (;;) world.send(data, receiver);
  } else if (world.rank() == receiver) {
    Tensor data = Tensor::zeros({kCount});
    const std::atomic_ref<float> late(data.values<float>()[kSeen]);
    std::thread(
        kill_in_message, late,
        static_cast<pid_t>(processes.values<std::int64_t>()[static_cast<std::size_t>(victim)]))
        .detach();
    for (;;) world.receive(data, sender);
  }
  world.barrier();
  return 0;
}

int take(int mebibytes) {
  KVStore kv = KVStore::create("dist");
  const Shape shape{mebibytes, 1 << 18};
  kv.init("a", Tensor::ones(shape));
  kv.push("a", kv.allocate(shape));
  return 0;
}

int save(const std::string& directory) {
  KVStore kv = KVStore::create("dist");
  kv.init("a", Tensor::ones(kShape));
  kv.save(directory);
  return 0;
}

int come_late(int victim) {
  int rank = 0;
  MPI_Comm_rank(duplicate_world(), &rank);
  constexpr unsigned kLateS = 60;
  if (rank == victim) sleep(kLateS);
  KVStore::create("dist").barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("fault_worker", [&] {
    const std::string mode = argc == 4 ? argv[3] : "";
    if (argc != 3 && mode != "async" && mode != "groups" && mode != "message") {
      throw Error(ErrorCode::invalid_argument,
                  "usage: fault_worker FAULT VICTIM [async|groups|message]");
    }
    const std::string fault = argv[1];
    if (fault == "takes") return take(std::stoi(argv[2]));
    if (fault == "saves") return save(argv[2]);
    if (fault == "late") return come_late(std::stoi(argv[2]));
    if (mode == "message") return exchange_messages(fault == "sender", std::stoi(argv[2]));
    const int code = run(fault, std::stoi(argv[2]), mode);
    if (fault == "finalizes") MPI_Finalize();  // by itself, as a program of MPI does
    return code;
  });
}
