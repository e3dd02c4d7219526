// SPDX-License-Identifier: Apache-2.0
// Ranks whose GPU, or whose NCCL, goes wrong, by the library's own NCCL code on the fake one.
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <string>
#include <utility>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/fake_cuda/variable.hpp"
#include "tests/support/mpi_test.hpp"

using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::KVStore;
using tutti::Tensor;

namespace {

tutti::Settings by(const std::string& path, double timeout_s) {
  tutti::Settings settings = test::settings();
  settings.gpu_path = path;
  settings.timeout = std::chrono::duration<double>(timeout_s);
  return settings;
}

constexpr std::int64_t kCount = 100'000;

void push(KVStore& kv) { kv.push(0, Tensor::ones({kCount}, DType::float32, gpu(0))); }

/// A store with a key that has been pushed: once, so that NCCL is there, and once in its way.
KVStore begin(const tutti::Settings& settings) {
  auto kv = KVStore::create("dist", settings);
  kv.init(0, Tensor::zeros({kCount}, DType::float32, gpu(0)));
  for (int i = 0; i < 2; ++i) push(kv);
  tutti::synchronize(gpu(0));
  return kv;
}

/// Whether a push, or what waits for it, ends on every rank with this error, after which the store
/// is lost.
bool push_ends_on_all(KVStore& kv, ErrorCode code, const std::vector<std::string>& words) {
  const auto error = test::error_of([&] {
    push(kv);
    tutti::synchronize(gpu(0));
  });
  bool is_right = error.has_value() && error->code() == code && !error->recoverable();
  for (const std::string& word : words) {
    is_right = is_right && std::string(error->what()).find(word) != std::string::npos;
  }
  if (!is_right && error.has_value()) MESSAGE("got: ", std::string(error->what()));
  return test::agree(is_right);
}

}  // namespace

TEST_CASE("a collective that NCCL gives up on one rank ends the push of all, with NCCL's words") {
  const auto host = test::host_of_its_own();
  KVStore kv = begin(by("nccl", 3600));  // beyond the test's own limit: it plays no part
  const test::Variable fault("FAKE_NCCL_FAIL", test::is_last() ? "1" : "0");
  for (int i = 0; i < 2; ++i) {
    CHECK(push_ends_on_all(kv, ErrorCode::communication, {test::last(), "remote process exited"}));
  }
}

/// The ways to sum that this job's layout allows.
std::vector<std::string> paths() {
  std::vector<std::string> all = {"nccl", "host"};
  if (test::settings().ranks_per_node.empty()) all.emplace_back("peers");
  return all;
}

TEST_CASE("a GPU that fails in a call of CUDA on one rank ends the push of all, with its name") {
  const auto host = test::host_of_its_own();
  for (const std::string& path : paths()) {
    KVStore kv = begin(by(path, 3600));
    if (test::is_last()) fake_cuda::fail("cudaEventRecord", 1, cudaErrorIllegalAddress);
    CHECK(push_ends_on_all(kv, ErrorCode::communication,
                           {test::last(), "cudaEventRecord on gpu(0): cudaErrorIllegalAddress"}));
    fake_cuda::repair();
  }
}

/// Between nodes the hosts wait for GPUs that wait for each other.
TEST_CASE(
    "a GPU that hangs on one rank ends the push of all by the deadline, whatever an abort does") {
  const auto host = test::host_of_its_own();
  for (const std::string& path : paths()) {
    KVStore kv = begin(by(path, 4));  // no rank that is there misses it before
    if (test::is_last()) fake_cuda::hang(0);
    const bool has_nodes = std::getenv("TUTTI_RANKS_PER_NODE") != nullptr;
    const std::string word = path == "nccl" && has_nodes ? "wait for each other"
                             : path == "peers"           ? "read each other's memory"
                                                         : test::last();
    CHECK(push_ends_on_all(kv, ErrorCode::timeout, {word}));
    fake_cuda::go_on(0);
  }
}

TEST_CASE("large values that are assigned are summed from where they are, without a launch") {
  const auto host = test::host_of_its_own();
  if (std::getenv("TUTTI_RANKS_PER_NODE") != nullptr) return;  // hosts want them in a bucket
  auto kv = KVStore::create("dist", by("nccl", 60));
  constexpr std::int64_t kLarge = 300'000;
  kv.init(0, Tensor::zeros({kLarge}, DType::float32, gpu(0)));
  const Tensor value = Tensor::ones({kLarge}, DType::float32, gpu(0));
  for (int i = 0; i < 2; ++i) kv.push(0, value);  // the first joins NCCL
  const int launches = fake_cuda::calls("cudaLaunchKernelEx");
  const int copies = fake_cuda::calls("cudaMemcpyAsync");
  kv.push(0, value);
  CHECK(test::agree(fake_cuda::calls("cudaLaunchKernelEx") == launches));
  CHECK(test::agree(fake_cuda::calls("cudaMemcpyAsync") == copies));
  Tensor out = Tensor::zeros({kLarge});
  kv.pull(0, out);
  const auto sum = static_cast<float>(kv.num_workers());
  CHECK(test::agree(std::ranges::count(out.values<float>(), sum) == kLarge));
}

TEST_CASE("stores that come and go leave few communicators of NCCL behind") {
  const auto host = test::host_of_its_own();
  const test::Variable most("FAKE_NCCL_MOST", "6");
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    KVStore kv = begin(by("nccl", 60));
    push(kv);
  }
}

TEST_CASE(
    "a lack of memory for a launch over rows is refused on all ranks, and the store goes on") {
  auto kv = KVStore::create("dist", by("host", 60));
  kv.init_row_sparse(0, {20'000, 4}, DType::float32, gpu(0));
  const Tensor rows = Tensor::ones({5'000, 4});
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 5'000; ++i) ids.push_back(3 * i);
  const auto push_rows = [&](std::int64_t count) {
    kv.push(0, row_sparse(tutti::view(ids.data(), {count}),
                          tutti::ConstTensorView(rows.bytes(), {count, 4}, DType::float32)));
  };
  push_rows(1);
  for (const char* call : {"cudaMalloc", "cudaHostAlloc"}) {
    CAPTURE(call);
    if (test::is_last()) fake_cuda::fail(call, 1, cudaErrorMemoryAllocation);
    const auto error = test::error_of([&] { push_rows(5'000); });
    fake_cuda::repair();
    CHECK(test::agree(error.has_value() && error->code() == ErrorCode::out_of_memory &&
                      error->recoverable()));
    CHECK(test::agree(error.has_value() &&
                      std::string(error->what()).find(test::last()) != std::string::npos));
    push_rows(1);
  }
  push_rows(5'000);
  const auto sum = static_cast<float>(kv.num_workers());
  CHECK(test::agree(kv.view(0).value<float>(4 * 14'997) == sum));
  CHECK(test::agree(kv.view(0).value<float>(4 * 14'998) == 0));
}

TEST_CASE("a launch over rows that fails ends the push of all ranks, and the store") {
  tutti::Settings settings = by("host", 3600);  // beyond the test's own limit: it plays no part
  settings.verify = tutti::Verify::off;
  auto kv = KVStore::create("dist", settings);
  kv.init_row_sparse(0, {20, 4}, DType::float32, gpu(0));
  const auto push_row = [&] { kv.push(0, tutti::RowSparse::from({3}, Tensor::ones({1, 4}))); };
  push_row();
  if (test::is_last()) fake_cuda::fail("cudaLaunchKernelEx", 1, cudaErrorIllegalAddress);
  const auto error = test::error_of([&] {
    push_row();
    kv.barrier();
  });
  fake_cuda::repair();
  CHECK(test::agree(error.has_value() && !error->recoverable()));
  const std::string text = error.has_value() ? error->what() : "";
  CHECK(test::agree(text.find(test::last()) != std::string::npos));
  CHECK(test::agree(text.find("gpu(0)") != std::string::npos));
}

/// Stores that have all memory that earlier ones have opened for peers, `most` at the most, so that
/// the next one opens its own.
std::vector<KVStore> hold_opened_memory(int most) {
  std::vector<KVStore> stores;
  for (int i = 0; i < most; ++i) stores.push_back(begin(by("peers", 3600)));
  return stores;
}

TEST_CASE("a GPU that cannot reach another's memory is an error of all ranks, and none is lost") {
  if (!test::settings().ranks_per_node.empty()) return;
  std::vector<KVStore> others = hold_opened_memory(1);
  for (const char* call : {"cudaIpcGetMemHandle", "cudaIpcOpenMemHandle", "cudaIpcGetEventHandle",
                           "cudaIpcOpenEventHandle"}) {
    CAPTURE(call);
    auto kv = KVStore::create("dist", by("peers", 3600));
    kv.init(0, Tensor::zeros({kCount}, DType::float32, gpu(0)));
    if (test::is_last()) fake_cuda::fail(call, 1, cudaErrorInvalidResourceHandle);
    CHECK(test::throws_on_all([&] { push(kv); }, ErrorCode::communication,
                              {std::string(call) + " on gpu(0): cudaErrorInvalidResourceHandle"}));
    fake_cuda::repair();
    push(kv);
    Tensor found = Tensor::zeros({kCount});
    kv.pull(0, found);
    CHECK(test::agree(found.values<float>()[kCount - 1] == static_cast<float>(test::size())));
    others.push_back(std::move(kv));
  }
}

TEST_CASE("a GPU that reads other bytes in another's memory than were written is an error of all") {
  if (!test::settings().ranks_per_node.empty()) return;
  const std::vector<KVStore> others = hold_opened_memory(8);
  auto kv = KVStore::create("dist", by("peers", 3600));
  kv.init(0, Tensor::zeros({kCount}, DType::float32, gpu(0)));
  fake_cuda::set_blind_to_peers(test::is_last());
  CHECK(test::throws_on_all([&] { push(kv); }, ErrorCode::communication,
                            {test::last(), "gpu(0) reads other bytes in the memory of rank "}));
  fake_cuda::set_blind_to_peers(false);
  push(kv);
  Tensor found = Tensor::zeros({kCount});
  kv.pull(0, found);
  CHECK(test::agree(found.values<float>()[kCount - 1] == static_cast<float>(test::size())));
}
