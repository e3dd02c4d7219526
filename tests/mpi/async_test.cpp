// SPDX-License-Identifier: Apache-2.0
// Calls that go on while the program computes, between processes and over messages.
#include <algorithm>
#include <chrono>
#include <mpi.h>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::KVStore;
using tutti::Pending;
using tutti::Tensor;

namespace {

constexpr int kKeys = 30;
constexpr int kSteps = 4;

std::int64_t count_of(int key) {
  return key == 7 ? 200'003 : key == 8 ? 0 : 1 + (key * 131) % 5000;
}

Tensor gradient(int key, int step) {
  return test::random_tensor(
      {count_of(key)}, DType::float32, test::rank(),
      static_cast<std::uint64_t>(key) * kSteps + static_cast<std::uint64_t>(step));
}

KVStore new_store(const tutti::Settings& settings) {
  KVStore kv = KVStore::create("dist", settings);
  for (int key = 0; key < kKeys; ++key) kv.init(key, Tensor::full({count_of(key)}, 0.5));
  kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=0.1,momentum=0.9"));
  return kv;
}

/// The keys of a step in an order of this rank's own, at moments of its own.
std::vector<Pending> push_step(KVStore& kv, int step, std::mt19937& random) {
  std::vector<int> keys(kKeys);
  for (int key = 0; key < kKeys; ++key) keys[static_cast<std::size_t>(key)] = key;
  std::shuffle(keys.begin(), keys.end(), random);
  std::vector<Pending> pending;
  for (const int key : keys) {
    pending.push_back(kv.push_async(key, gradient(key, step), {.priority = -key}));
    if (random() % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  }
  return pending;
}

bool has_bits_of_synchronous_pushes(const tutti::Settings& settings) {
  KVStore kv = new_store(settings);
  std::mt19937 random(static_cast<unsigned>(test::rank()));
  std::vector<Pending> pending;
  for (int step = 0; step < kSteps; ++step) {
    for (const Pending& one : push_step(kv, step, random)) pending.push_back(one);
    Tensor pulled = Tensor::empty({count_of(7)}, DType::float32);
    kv.pull(7, pulled);
  }
  for (const Pending& one : pending) one.wait();
  KVStore expected = new_store(settings);
  for (int step = 0; step < kSteps; ++step) {
    for (int key = 0; key < kKeys; ++key) expected.push(key, gradient(key, step));
  }
  bool same = true;
  for (int key = 0; key < kKeys; ++key) {
    same = same && test::same_bits(kv.view(key), expected.view(key));
  }
  return same;
}

/// Where MPI is to be called by one thread alone, asynchronous calls are those of one node.
bool is_funneled() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level < MPI_THREAD_SERIALIZED;
}

std::vector<test::Layout> layouts() {
  return is_funneled() ? std::vector<test::Layout>{test::one_node()} : test::all_layouts();
}

}  // namespace

TEST_CASE("pushes in any order have the bits of synchronous ones in every layout") {
  for (const auto& layout : layouts()) {
    CAPTURE(test::to_string(layout));
    CHECK(test::agree(has_bits_of_synchronous_pushes(test::settings_for(layout))));
  }
}

TEST_CASE("allreduce_async gives the bits of allreduce in every layout") {
  for (const auto& layout : layouts()) {
    CAPTURE(test::to_string(layout));
    Communicator world = Communicator::world(test::settings_for(layout));
    bool same = true;
    for (const std::int64_t count : {0, 1, 300, 100'001}) {
      Tensor one = test::random_tensor({count}, DType::float32, test::rank());
      Tensor other = test::random_tensor({count}, DType::float32, test::rank());
      const Pending sent = world.allreduce_async(one);
      world.allreduce(other);
      same = same && sent.ready() && test::same_bits(one, other);
    }
    CHECK(test::agree(same));
  }
}

TEST_CASE("TUTTI_ASYNC=1 trains as without") {
  for (const auto& layout : layouts()) {
    CAPTURE(test::to_string(layout));
    tutti::Settings settings = test::settings_for(layout);
    KVStore expected = new_store(settings);
    settings.asynchronous = true;
    KVStore kv = new_store(settings);
    bool same = true;
    for (int step = 0; step < kSteps; ++step) {
      for (KVStore* store : {&kv, &expected}) {
        for (int key = 0; key < kKeys; ++key) store->push(key, gradient(key, step), -key);
      }
      for (int key = 0; key < kKeys; ++key) {
        same = same && test::same_bits(kv.view(key), expected.view(key));
      }
    }
    CHECK(test::agree(same));
  }
}

TEST_CASE("a message of the program moves while its thread waits for a push") {
  if (test::size() == 1) return;
  tutti::Settings settings = test::settings();
  settings.timeout = std::chrono::seconds(10);
  KVStore kv = KVStore::create("dist", settings);
  kv.init(1, Tensor::zeros({10}));
  std::vector<char> message(std::size_t{8} << 20);  // too large to go without its receiver
  const int count = static_cast<int>(message.size());
  MPI_Request received = MPI_REQUEST_NULL;
  if (test::rank() == 0) {
    MPI_Irecv(message.data(), count, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &received);
  } else if (test::rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    MPI_Send(message.data(), count, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
  }
  const Pending push = kv.push_async(1, Tensor::ones({10}));
  if (test::rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(test::agree(!test::error_of([&] { push.wait(); })));
  MPI_Wait(&received, MPI_STATUS_IGNORE);
}

TEST_CASE("between nodes asynchronous calls need MPI_THREAD_SERIALIZED, and say so") {
  if (test::size() == 1) return;  // one rank is one node
  tutti::Settings settings = test::settings();
  settings.ranks_per_node = {1};
  KVStore kv = KVStore::create("dist", settings);
  kv.init(1, Tensor::zeros({10}));
  const auto push = [&] { kv.push_async(1, Tensor::ones({10})).wait(); };
  if (!is_funneled()) {
    push();
    CHECK(test::agree(kv.view(1).value() == test::size()));
  } else {
    for (int rank = 0; rank < test::size(); ++rank) {
      CHECK(test::throws_on(rank, push, ErrorCode::invalid_argument,
                            {"asynchronous calls", "MPI_THREAD_SERIALIZED"}));
    }
    kv.push(1, Tensor::ones({10}));
    CHECK(test::agree(kv.view(1).value() == test::size()));
  }
}

TEST_CASE("between nodes several communicators of a process make asynchronous calls at once") {
  if (is_funneled()) return;
  tutti::Settings settings = test::settings();
  settings.ranks_per_node = {1};
  Communicator one = Communicator::world(settings);
  Communicator other = one.split(0);
  Tensor data = Tensor::full({20'000}, test::rank());
  Tensor more = Tensor::full({20'000}, 100 + test::rank());
  Tensor third = Tensor::full({5}, 200 + test::rank());
  for (int i = 0; i < 20; ++i) {
    const tutti::Pending first = one.allreduce_async(data, tutti::ReduceOp::max);
    const tutti::Pending second = other.allreduce_async(more, tutti::ReduceOp::max);
    if (i % 2 == 0) first.wait();
    second.wait();
    other.allreduce(third, tutti::ReduceOp::max);
    first.wait();
  }
  const auto last = static_cast<float>(test::size() - 1);
  CHECK(test::agree(data.values<float>()[19'999] == last && more.values<float>()[7] == 100 + last &&
                    third.values<float>()[4] == 200 + last));
}
