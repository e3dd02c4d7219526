// SPDX-License-Identifier: Apache-2.0
// Programs that capture streams into graphs beside a store whose sums are in flight, on the fake
// CUDA runtime: it ends a capture as CUDA does, by a call of a thread that has not said otherwise.
#include <array>
#include <chrono>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/communicator.hpp"
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

constexpr std::int64_t kCount = 1'000;

tutti::Settings by_nccl() {
  tutti::Settings settings = test::settings();
  settings.gpu_path = "nccl";
  settings.timeout = std::chrono::hours(1);  // beyond the test's own limit: it plays no part
  return settings;
}

Tensor ones() { return Tensor::ones({kCount}, DType::float32, gpu(0)); }

KVStore begin() {
  auto kv = KVStore::create("dist", by_nccl());
  kv.init(0, Tensor::zeros({kCount}, DType::float32, gpu(0)));
  kv.push(0, ones());  // joins NCCL
  tutti::synchronize(gpu(0));
  return kv;
}

/// A stream of the program's, captured for as long as this lives.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    fake_cuda::set_capturing(stream_, true);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { fake_cuda::set_capturing(stream_, false); }

 private:
  cudaStream_t stream_;
};

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  return stream;
}

}  // namespace

TEST_CASE("the thread that watches sums ends no capture of the program's") {
  const auto host = test::host_of_its_own();
  KVStore kv = begin();
  cudaStream_t const stream = new_stream();
  const Tensor value = ones();
  fake_cuda::hang(0);
  kv.push(0, value);
  {
    const Capture capture(stream);
    const int before = fake_cuda::calls("cudaEventQuery");
    while (fake_cuda::calls("cudaEventQuery") < before + 3 && !fake_cuda::is_capture_lost(stream)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(test::agree(!fake_cuda::is_capture_lost(stream)));
  }
  fake_cuda::go_on(0);
  tutti::synchronize(gpu(0));
  Tensor found = Tensor::zeros({kCount});
  kv.pull(0, found);
  CHECK(test::agree(found.values<float>()[kCount - 1] == static_cast<float>(test::size())));
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE(
    "calls on a stream that is captured since it was set are refused, and the store goes on") {
  const auto host = test::host_of_its_own();
  KVStore kv = begin();
  tutti::Communicator world = tutti::Communicator::world(by_nccl());
  cudaStream_t const stream = new_stream();
  tutti::set_stream(gpu(0), stream);
  const std::array<Tensor, 2> values = {ones(), ones()};
  for (int i = 0; i < 2; ++i) kv.push(0, values[0]);
  Tensor sums = ones();
  Tensor on_host = Tensor::zeros({kCount});
  world.allreduce(sums);
  tutti::synchronize(gpu(0));
  for (const Tensor& value : values) {  // as in the last push, and elsewhere
    if (test::is_last()) fake_cuda::set_capturing(stream, true);
    CHECK(test::throws_on_all([&] { kv.push(0, value); }, ErrorCode::invalid_argument,
                              {test::last(), "the stream is captured into a graph"}));
    CHECK(test::throws_on_all([&] { world.allreduce(sums); }, ErrorCode::invalid_argument,
                              {test::last(), "the stream is captured into a graph"}));
    if (test::is_last()) {  // local calls: no rank is told
      for (const auto& call : std::vector<std::function<void()>>{
               [&] { kv.pull(0, sums); }, [&] { kv.pull(0, on_host); },
               [&] { sums.view().copy_from(on_host); }, [] { tutti::synchronize(gpu(0)); }}) {
        const auto error = test::error_of(call);
        REQUIRE(error.has_value());
        CHECK(std::string(error->what()).find("the stream is captured into a graph") !=
              std::string::npos);
      }
      CHECK_FALSE(fake_cuda::is_capture_lost(stream));
    }
    fake_cuda::set_capturing(stream, false);
    kv.push(0, value);
    Tensor found = Tensor::zeros({kCount});
    kv.pull(0, found);
    CHECK(test::agree(found.values<float>()[kCount - 1] == static_cast<float>(test::size())));
  }
  tutti::set_stream(gpu(0), nullptr);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}
