// SPDX-License-Identifier: Apache-2.0
// What tutti-doctor --tuning measures on a node with GPUs; on fake ones the numbers say nothing.
#include "apps/doctor/tune_gpus.hpp"

#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fstream>
#include <string>

#include <tutti/kvstore.hpp>

#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/fake_cuda/variable.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/scratch_folder.hpp"

using tutti::Communicator;
using tutti::Tensor;

TEST_CASE("kernels sum up to the size from which on NCCL is no slower") {
  using apps::doctor::peers_limit;
  CHECK(peers_limit({}) == 0);
  CHECK(peers_limit({{1, 10, 10.4}, {2, 10, 30}}) == 0);
  CHECK(peers_limit({{1, 10, 30}, {2, 10, 20}, {4, 10, 10}, {8, 10, 90}}) == 2);
  CHECK(peers_limit({{1, 10, 30}, {2, 10, 20}}) == 2);
}

namespace {

/// All ranks name one file, which rank 0 has written.
std::string of_first_rank(Communicator& world, const std::string& own) {
  Tensor text = Tensor::zeros({1000}, tutti::DType::uint8);
  std::ranges::copy(own, text.values<std::uint8_t>().begin());
  world.broadcast(text, 0);
  return reinterpret_cast<const char*>(text.bytes());
}

}  // namespace

TEST_CASE("what was measured is a row that a job takes its sums by") {
  const auto host = test::host_of_its_own();
  Communicator world = Communicator::world(test::settings());
  const apps::doctor::GpuTuning tuned = apps::doctor::tune_gpus(world, test::settings(), 16 << 10);
  CAPTURE(tuned.line);
  const std::string begin = "ranks=" + std::to_string(test::size()) + " kind=sum-of-gpus peers=";
  REQUIRE(test::agree(tuned.row.starts_with(begin)));
  CHECK(test::agree(tuned.line.find("us by kernels, by NCCL: 4 KiB ") != std::string::npos));
  const test::ScratchFolder folder;
  tutti::Settings settings = test::settings();
  settings.gpu_path = "auto";
  settings.tuning = folder.path() / "tuning";
  std::ofstream(settings.tuning) << "# tutti tuning 1\n" << begin << "8192\n";
  settings.tuning = of_first_rank(world, settings.tuning);
  auto kv = tutti::KVStore::create("dist", settings);
  for (const std::int64_t count : {1000, 100'000}) {
    const int key = static_cast<int>(count);
    kv.init(key, Tensor::zeros({count}, tutti::DType::float32, tutti::gpu(0)));
    kv.push(key, Tensor::ones({count}, tutti::DType::float32, tutti::gpu(0)));
    Tensor out = Tensor::zeros({count});
    kv.pull(key, out);
    CHECK(test::agree(out.values<float>()[0] == static_cast<float>(test::size())));
  }
}

TEST_CASE("where kernels or NCCL cannot sum, nothing is tuned, and it is said why") {
  const auto host = test::host_of_its_own();
  Communicator world = Communicator::world(test::settings());
  if (test::is_last()) fake_cuda::fail("cudaIpcOpenMemHandle", 1, cudaErrorInvalidResourceHandle);
  const apps::doctor::GpuTuning tuned = apps::doctor::tune_gpus(world, test::settings());
  fake_cuda::repair();
  CHECK(test::agree(tuned.row.empty()));
  CHECK(test::agree(tuned.line.find("sums of GPUs were not tuned: rank ") == 0));
  CHECK(test::agree(tuned.line.find("cudaIpcOpenMemHandle on gpu(0)") != std::string::npos));
}
