// SPDX-License-Identifier: Apache-2.0
// Sums in memory that NCCL has registered (TUTTI_NCCL_WINDOWS), on the fake one: it ends a rank
// that sums in another place of a window than the others, frees what is registered, or leaves a
// window behind.
#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <functional>
#include <nccl.h>
#include <string>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/fake_cuda/variable.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/standard_error.hpp"

using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::KVStore;
using tutti::Tensor;

namespace {

/// The functions of the fake NCCL that the library has loaded; null for one that is not there.
template <class Function>
Function find(const char* name) {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

FakeNcclCounts counts() { return find<decltype(&fake_nccl_counts)>("fake_nccl_counts")(); }
/// TEST_WINDOWS=0 is for the NCCL that has none: another one in its place would skip most cases.
bool has_windows() {
  const bool has = find<decltype(&ncclCommWindowRegister)>("ncclCommWindowRegister") != nullptr;
  REQUIRE(has == (std::getenv("TEST_WINDOWS") == nullptr));
  return has;
}
bool has_nodes() { return std::getenv("TUTTI_RANKS_PER_NODE") != nullptr; }

tutti::Settings with_windows() {
  tutti::Settings settings = test::settings();
  settings.gpu_path = "nccl";
  settings.nccl_windows = true;
  settings.log = tutti::LogLevel::warning;
  settings.timeout = std::chrono::hours(1);  // beyond the test's own limit: it plays no part
  return settings;
}

constexpr std::int64_t kSmall = 1'000;
constexpr std::int64_t kMedium = 200'000;  // of which several are more than a window's first size
constexpr std::int64_t kLarge = 300'000;   // NCCL alone sums it from where it is
const std::vector<tutti::Key> kMany = {1, 2, 3, 4};

Tensor ones(std::int64_t count) { return Tensor::ones({count}, DType::float32, gpu(0)); }

/// A store whose keys are 0 (small), 1 to 4 (medium) and 5 (large). The first push joins NCCL.
KVStore begin() {
  auto kv = KVStore::create("dist", with_windows());
  kv.init(0, Tensor::zeros({kSmall}, DType::float32, gpu(0)));
  for (const tutti::Key& key : kMany)
    kv.init(key, Tensor::zeros({kMedium}, DType::float32, gpu(0)));
  kv.init(5, Tensor::zeros({kLarge}, DType::float32, gpu(0)));
  kv.push(0, ones(kSmall));
  return kv;
}

void push_many(KVStore& kv) {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < kMany.size(); ++i) values.push_back(ones(kMedium));
  kv.push(kMany, values);
}

bool is_summed(const KVStore& kv, const tutti::Key& key, std::int64_t count) {
  Tensor out = Tensor::zeros({count});
  kv.pull(key, out);
  const auto sum = static_cast<float>(kv.num_workers());
  return test::agree(std::ranges::count(out.values<float>(), sum) == count);
}

/// Windows and blocks that came since it was made. A failed store leaves its own behind.
class Since {
 public:
  [[nodiscard]] bool has(int windows, int blocks) const {
    const FakeNcclCounts now = counts();
    return test::agree(now.windows - before_.windows == windows &&
                       now.blocks - before_.blocks == blocks);
  }
  [[nodiscard]] int collectives() const { return counts().collectives - before_.collectives; }
  [[nodiscard]] int groups() const { return counts().groups - before_.groups; }
  [[nodiscard]] int in_windows() const { return counts().in_windows - before_.in_windows; }

 private:
  FakeNcclCounts before_ = counts();
};

/// Whether the call ends on every rank with a communication error of these words, and the store.
bool ends_on_all(const std::function<void()>& call, const std::vector<std::string>& words) {
  const auto error = test::error_of(call);
  bool is_right =
      error.has_value() && error->code() == ErrorCode::communication && !error->recoverable();
  for (const std::string& word : words) {
    is_right = is_right && std::string(error->what()).find(word) != std::string::npos;
  }
  if (!is_right && error.has_value()) MESSAGE("got: ", std::string(error->what()));
  return test::agree(is_right);
}

}  // namespace

TEST_CASE("keys are summed in one window, which grows, and goes with the store") {
  const auto host = test::host_of_its_own();
  if (!has_windows()) return;
  const Since begun;
  {
    KVStore kv = begin();
    CHECK(begun.has(0, 0));
    for (int i = 0; i < 2; ++i) kv.push(0, ones(kSmall));
    CHECK(begun.has(1, 1));
    CHECK(test::agree(begun.in_windows() > 0));
    CHECK(is_summed(kv, 0, kSmall));
    const Since grown;
    for (int i = 0; i < 2; ++i) push_many(kv);
    CHECK(begun.has(1, 1));
    CHECK(test::agree(grown.in_windows() > 0));
    for (const tutti::Key& key : kMany) CHECK(is_summed(kv, key, kMedium));
    kv.push(0, ones(kSmall));
    CHECK(is_summed(kv, 0, kSmall));
  }
  CHECK(begun.has(0, 0));
}

TEST_CASE("large keys that NCCL sums from where they are lie in no window") {
  const auto host = test::host_of_its_own();
  if (!has_windows() || has_nodes()) return;
  KVStore kv = begin();
  kv.push(0, ones(kSmall));
  const Since begun;
  for (int i = 0; i < 2; ++i) kv.push(5, ones(kLarge));
  CHECK(test::agree(begun.in_windows() == 0));
  CHECK(is_summed(kv, 5, kLarge));
}

TEST_CASE("several large keys of a push are one group of NCCL's calls") {
  const auto host = test::host_of_its_own();
  if (has_nodes()) return;  // then each chunk is a call
  tutti::Settings settings = test::settings();
  settings.gpu_path = "nccl";
  auto kv = KVStore::create("dist", settings);
  std::vector<Tensor> values;
  for (const tutti::Key& key : kMany) {
    kv.init(key, Tensor::zeros({kLarge}, DType::float32, gpu(0)));
    values.push_back(ones(kLarge));
  }
  kv.push(kMany, values);
  const Since begun;
  kv.push(kMany, values);
  CHECK(test::agree(begun.collectives() == 4 && begun.groups() == 1));
  for (const tutti::Key& key : kMany) CHECK(is_summed(kv, key, kLarge));
}

TEST_CASE("ranks with different numbers of values sum in the same places") {
  const auto host = test::host_of_its_own();
  if (!has_windows()) return;
  auto kv = KVStore::create("dist", with_windows());
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1}));
  const std::vector<tutti::Key> keys = {0, 1, 2};
  const std::vector<std::int64_t> sizes = {kLarge, kSmall, kLarge};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    kv.init(keys[i], Tensor::zeros({sizes[i]}, DType::float32, gpu(0)));
  }
  std::vector<std::vector<Tensor>> values;
  for (const std::int64_t size : sizes) {
    values.emplace_back();
    for (int i = 0; i < (test::is_last() ? 2 : 1); ++i) values.back().push_back(ones(size));
  }
  for (int step = 0; step < 4; ++step) kv.push(keys, values);
  Tensor out = Tensor::zeros({kSmall});
  kv.pull(1, out);
  CHECK(test::agree(out.values<float>()[0] == static_cast<float>(-4 * (kv.num_workers() + 1))));
}

TEST_CASE("a registration that fails on one rank ends the push of all, with NCCL's words") {
  const auto host = test::host_of_its_own();
  if (!has_windows()) return;
  KVStore kv = begin();
  const test::Variable fault("FAKE_NCCL_WINDOWS", test::is_last() ? "fail" : "");
  CHECK(ends_on_all([&] { kv.push(0, ones(kSmall)); }, {test::last(), "ncclCommWindowRegister: "}));
}

TEST_CASE("an NCCL that registers nothing is told of, and sums go on") {
  const auto host = test::host_of_its_own();
  if (!has_windows()) return;
  const Since begun;
  KVStore kv = begin();
  const test::Variable none("FAKE_NCCL_WINDOWS", "none");
  const std::string said = test::written_by([&] { kv.push(0, ones(kSmall)); });
  const bool is_told = said.find("NCCL registers no memory here") != std::string::npos;
  CHECK(test::agree(is_told == (test::rank() == 0)));
  CHECK(begun.has(0, 1));
  CHECK(is_summed(kv, 0, kSmall));
}

TEST_CASE("an NCCL that registers nothing on one of two nodes is an error of all") {
  const auto host = test::host_of_its_own();
  if (!has_windows() || !has_nodes()) return;  // within a node the others would wait for it
  KVStore kv = begin();
  const test::Variable none("FAKE_NCCL_WINDOWS", test::rank() >= 2 ? "none" : "");
  CHECK(ends_on_all([&] { kv.push(0, ones(kSmall)); },
                    {"NCCL has registered memory for sums on rank 0", "and none on rank 2",
                     "TUTTI_NCCL_WINDOWS=0"}));
}

TEST_CASE("too little memory for a window on one rank is refused by all, and the store goes on") {
  const auto host = test::host_of_its_own();
  if (!has_windows()) return;
  const Since begun;
  KVStore kv = begin();
  Tensor small = ones(kSmall);
  if (test::is_last()) fake_cuda::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  CHECK(test::throws_on_all([&] { kv.push(0, small); }, ErrorCode::out_of_memory,
                            {test::last(), "ncclMemAlloc: "}));
  fake_cuda::repair();
  for (int i = 0; i < 2; ++i) push_many(kv);
  kv.push(0, small);
  CHECK(is_summed(kv, 0, kSmall));
  CHECK(is_summed(kv, 1, kMedium));
  CHECK(begun.has(1, 1));
}

namespace {

/// A store with a window, whose NCCL fails on one rank.
void lose_a_store() {
  KVStore kv = begin();
  kv.push(0, ones(kSmall));
  const test::Variable fault("FAKE_NCCL_FAIL", test::is_last() ? "1" : "0");
  const auto push_and_wait = [&] {
    kv.push(0, ones(kSmall));
    tutti::synchronize(gpu(0));
  };
  CHECK(ends_on_all(push_and_wait, {test::last(), "remote process exited"}));
}

}  // namespace

TEST_CASE("after an abort nothing is taken from NCCL, whose GPUs may still read it") {
  const auto host = test::host_of_its_own();
  if (!has_windows()) return;
  const Since begun;
  lose_a_store();
  CHECK(begun.has(1, 1));
}

// With the fake NCCL as it was before windows, where the cases above have nothing to test, too.
TEST_CASE("an NCCL without windows, and a sum by way of the host, are told of") {
  const auto host = test::host_of_its_own();
  for (const std::string path : {"nccl", "host"}) {
    tutti::Settings settings = with_windows();
    settings.gpu_path = path;
    auto kv = KVStore::create("dist", settings);
    kv.init(0, Tensor::zeros({kSmall}, DType::float32, gpu(0)));
    const std::string said = test::written_by([&] {
      for (int i = 0; i < 2; ++i) kv.push(0, ones(kSmall));
    });
    CHECK(is_summed(kv, 0, kSmall));
    const bool is_told = said.find("TUTTI_NCCL_WINDOWS=1 changes nothing: ") != std::string::npos;
    const bool is_old = said.find("NCCL 2.28.9 has no ncclMemAlloc") != std::string::npos;
    const bool speaks = test::rank() == 0 && (path == "host" || !has_windows());
    CHECK(test::agree(is_told == speaks));
    CHECK(test::agree(is_old == (speaks && path == "nccl")));
  }
}
