// SPDX-License-Identifier: Apache-2.0
// How many groups of calls a push makes of NCCL, which starts a thread for each: counted by the
// fake one.
#include <algorithm>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <nccl.h>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/fake_cuda/variable.hpp"
#include "tests/support/mpi_test.hpp"

using tutti::DType;
using tutti::gpu;
using tutti::Tensor;

namespace {

/// The counts of the fake NCCL that the library has loaded.
FakeNcclCounts counts() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return reinterpret_cast<decltype(&fake_nccl_counts)>(dlsym(library, "fake_nccl_counts"))();
}

}  // namespace

TEST_CASE("several large keys of a push are one group of NCCL's calls") {
  const test::Variable host = test::host_of_its_own();
  tutti::Settings settings = test::settings();
  settings.gpu_path = "nccl";
  auto kv = tutti::KVStore::create("dist", settings);
  constexpr std::int64_t kLarge = 300'000;  // NCCL sums it from where it is
  const std::vector<tutti::Key> keys = {1, 2, 3, 4};
  std::vector<Tensor> values;
  for (const tutti::Key& key : keys) {
    kv.init(key, Tensor::zeros({kLarge}, DType::float32, gpu(0)));
    values.push_back(Tensor::ones({kLarge}, DType::float32, gpu(0)));
  }
  kv.push(keys, values);
  const FakeNcclCounts before = counts();
  kv.push(keys, values);
  const FakeNcclCounts after = counts();
  CHECK(test::agree(after.collectives - before.collectives == 4));
  CHECK(test::agree(after.groups - before.groups == 1));
  for (const tutti::Key& key : keys) {
    Tensor out = Tensor::zeros({kLarge});
    kv.pull(key, out);
    const auto sum = static_cast<float>(kv.num_workers());
    CHECK(test::agree(std::ranges::count(out.values<float>(), sum) == kLarge));
  }
}
