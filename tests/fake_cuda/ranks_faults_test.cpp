// SPDX-License-Identifier: Apache-2.0
// Ranks whose GPU, or whose NCCL, goes wrong, by the library's own NCCL code on the fake one.
#include <cstdlib>
#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/support/mpi_test.hpp"

using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::KVStore;
using tutti::Tensor;

namespace {

/// An environment variable of this process, as long as it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// NCCL wants a GPU per rank, and takes ranks for neighbours by this name of their host.
Variable host_of_its_own() { return {"NCCL_HOSTID", "rank" + std::to_string(test::rank())}; }

tutti::Settings by(const std::string& path, double timeout_s) {
  tutti::Settings settings = test::settings();
  settings.gpu_path = path;
  settings.timeout = std::chrono::duration<double>(timeout_s);
  return settings;
}

constexpr std::int64_t kCount = 100'000;

/// A store with a key that has been pushed once, so that NCCL is there.
KVStore begin(const tutti::Settings& settings) {
  auto kv = KVStore::create("dist", settings);
  kv.init(0, Tensor::zeros({kCount}, DType::float32, gpu(0)));
  kv.push(0, Tensor::ones({kCount}, DType::float32, gpu(0)));
  return kv;
}

void push(KVStore& kv) { kv.push(0, Tensor::ones({kCount}, DType::float32, gpu(0))); }

/// Whether a push ends on every rank with this error, after which the store is lost.
bool push_ends_on_all(KVStore& kv, ErrorCode code, const std::vector<std::string>& words) {
  const auto error = test::error_of([&] { push(kv); });
  bool is_right = error.has_value() && error->code() == code && !error->recoverable();
  for (const std::string& word : words) {
    is_right = is_right && std::string(error->what()).find(word) != std::string::npos;
  }
  if (!is_right && error.has_value()) MESSAGE("got: ", std::string(error->what()));
  return test::agree(is_right);
}

}  // namespace

TEST_CASE("a collective that NCCL gives up on one rank ends the push of all, with NCCL's words") {
  const auto host = host_of_its_own();
  KVStore kv = begin(by("nccl", 3600));  // beyond the test's own limit: it plays no part
  const Variable fault("FAKE_NCCL_FAIL", test::is_last() ? "1" : "0");
  for (int i = 0; i < 2; ++i) {
    CHECK(push_ends_on_all(kv, ErrorCode::communication, {test::last(), "remote process exited"}));
  }
}

TEST_CASE("a GPU that fails in a call of CUDA on one rank ends the push of all, with its name") {
  const auto host = host_of_its_own();
  for (const char* path : {"nccl", "host"}) {
    KVStore kv = begin(by(path, 3600));
    if (test::is_last()) fake_cuda::fail("cudaEventRecord", 1, cudaErrorIllegalAddress);
    CHECK(push_ends_on_all(kv, ErrorCode::communication,
                           {test::last(), "cudaEventRecord on gpu(0): cudaErrorIllegalAddress"}));
    fake_cuda::repair();
  }
}

/// With NCCL the GPUs of a node wait for each other, and each rank for its own.
TEST_CASE(
    "a GPU that hangs on one rank ends the push of all by the deadline, whatever an abort does") {
  const auto host = host_of_its_own();
  for (const std::string path : {"nccl", "host"}) {
    KVStore kv = begin(by(path, 1));
    if (test::is_last()) fake_cuda::hang(0);
    const std::string word = path == "nccl" ? "wait for each other" : test::last();
    CHECK(push_ends_on_all(kv, ErrorCode::timeout, {word}));
    fake_cuda::go_on(0);
  }
}
