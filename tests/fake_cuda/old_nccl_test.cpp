// SPDX-License-Identifier: Apache-2.0
// Sums by a version of NCCL that is too old, which the environment says that it is: a process looks
// at the library once.
#include <doctest/doctest.h>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/fake_cuda/variable.hpp"
#include "tests/support/mpi_test.hpp"

using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::KVStore;
using tutti::Tensor;

TEST_CASE("where NCCL is asked for, a version that is too old is an error that says which") {
  const test::Variable host = test::host_of_its_own();
  tutti::Settings settings = test::settings();
  settings.gpu_path = "nccl";
  auto kv = KVStore::create("dist", settings);
  kv.init(1, Tensor::zeros({10}, DType::float32, gpu(0)));
  const auto push = [&] { kv.push(1, Tensor::ones({10}, DType::float32, gpu(0))); };
  CHECK(test::throws_on_all(push, ErrorCode::invalid_argument,
                            {"NCCL 2.18.3", "2.19.0 or later is needed", "TUTTI_GPU_PATH=host"}));
}
