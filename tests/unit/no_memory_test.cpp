// SPDX-License-Identifier: Apache-2.0
// A thread without memory: calls that must not throw do not, and no thread waits for ever.
#include <atomic>
#include <cstdlib>
#include <doctest/doctest.h>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/kvstore.hpp"
#include "tutti/program.hpp"

#include "tests/support/child.hpp"
#include "tests/support/standard_error.hpp"
#include "unit/threads.hpp"

namespace {

thread_local bool has_no_memory = false;

void* allocate(std::size_t bytes) {
  void* memory = has_no_memory ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// While an object lives, its thread gets no memory.
class NoMemory {
 public:
  NoMemory() { has_no_memory = true; }
  ~NoMemory() { has_no_memory = false; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

using namespace tutti;

TEST_CASE("who carries out asynchronous calls without memory fails them, and others wait no more") {
  std::atomic<int> failed{0};
  static_cast<void>(test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({5}, 0));
    kv.set_updater([&](const Key&, ConstTensorView, TensorView) {
      has_no_memory = true;  // from here on, on the thread that carries out calls
      throw std::bad_alloc();
    });
    const Pending sent = kv.push_async(1, Tensor::full({5}, 1));
    for (int i = 0; i < 2; ++i) {
      try {
        sent.wait();
        kv.barrier();
      } catch (const std::exception&) {
        has_no_memory = false;
        ++failed;
      }
    }
  }));
  CHECK(failed == 4);
}

TEST_CASE("the warning of a failed call that nobody has waited for may lack memory") {
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init({1, 2}, {Tensor::full({5}, 0), Tensor::full({5}, 0)});
    std::optional<Pending> sent = kv.push_async(1, Tensor::full({comm.rank() == 1 ? 6 : 5}, 1));
    kv.push_async(2, Tensor::full({5}, 1)).wait();
    while (!sent->ready()) std::this_thread::yield();
    kv.barrier();
    const NoMemory none;
    sent.reset();
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("stores, communicators and groups are destroyed without memory") {
  const auto outcomes = test::as_ranks({2}, {}, [&](Communicator& comm) {
    std::optional<Communicator> group = comm.split(0, comm.rank());
    std::optional<KVStore> kv = KVStore::create(*group);
    kv->init(1, Tensor::full({5}, 0));
    kv->push(1, Tensor::full({5}, 1));
    Tensor value = Tensor::full({5}, 1);
    if (comm.rank() == 0) group->send(value, 1);
    if (comm.rank() == 1) group->receive(value, 0);
    kv->push_async(1, Tensor::full({5}, 1)).wait();
    const NoMemory none;
    kv.reset();
    group.reset();
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a program that has no memory left says its error and ends with its code") {
  const std::string said = test::written_by([] {
    const test::ChildEnd end = test::in_child([]() -> std::string {
      has_no_memory = true;
      run_program("a_program", []() -> int { throw std::bad_alloc(); });
      return "";
    });
    CHECK(end.signal == 0);
    CHECK(end.code == 2);
  });
  CHECK(said.find("a_program: error: std::bad_alloc") != std::string::npos);
}

TEST_CASE("memory of the arena is given back without memory") {
  Communicator comm = Communicator::self();
  KVStore kv = KVStore::create(comm);
  std::vector<std::optional<Tensor>> tensors;
  for (int i = 0; i < 5; ++i) tensors.emplace_back(kv.allocate({1000}));
  const NoMemory none;
  tensors[1].reset();
  tensors[3].reset();
}
