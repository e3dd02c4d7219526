// SPDX-License-Identifier: Apache-2.0
// Tensors on fake GPUs: memory, copies, arithmetic, streams.
#include <chrono>
#include <doctest/doctest.h>
#include <numeric>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/gpu.hpp"
#include "tutti/tensor.hpp"

#include "runtime/gpu/gpus.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/unit/threads.hpp"

using tutti::cpu;
using tutti::DType;
using tutti::gpu;
using tutti::Tensor;

namespace {

void expect_error(tutti::ErrorCode code, const std::string& words,
                  const std::function<void()>& call) {
  test::expect_error(call, code, {words});
}

Tensor counted(std::int64_t count, float first = 0) {
  Tensor tensor = Tensor::empty({count});
  std::iota(tensor.values<float>().begin(), tensor.values<float>().end(), first);
  return tensor;
}

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

}  // namespace

TEST_CASE("without a GPU, a tensor on one is an error that says why") {
  tutti::gpus::replace_gpus(nullptr);
  CHECK(tutti::num_gpus() == 0);
  expect_error(test::kInvalid, "tensor: a tensor on gpu(0), but a test has taken them away",
               [] { static_cast<void>(Tensor::empty({2}, DType::float32, gpu(0))); });
}

TEST_CASE("a GPU that is not there is an error that says which are") {
  const test::FakeGpus gpus(2);
  CHECK(tutti::num_gpus() == 2);
  expect_error(test::kInvalid, "tensor: gpu(2) is not here; this process has gpu(0) to gpu(1)",
               [] { static_cast<void>(Tensor::empty({2}, DType::float32, gpu(2))); });
}

TEST_CASE("elements on a GPU are not handed out") {
  const test::FakeGpus gpus(1);
  const Tensor tensor = Tensor::zeros({2}, DType::float32, gpu(0));
  expect_error(test::kInvalid,
               "values: the elements are on gpu(0), where this program cannot read them; "
               "copy_from copies them to a tensor on the cpu",
               [&] { static_cast<void>(tensor.values<float>()); });
}

TEST_CASE("what is copied to a GPU and on to others comes back, whatever the order of streams") {
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    if (test::kFewCases && seed > 2) continue;
    const test::FakeGpus gpus(3, seed);
    for (const std::int64_t count : {0, 1, 7, 1000, 3'000'001}) {
      CAPTURE(seed);
      CAPTURE(count);
      Tensor source = counted(count, 1);
      Tensor first = Tensor::empty({count}, DType::float32, gpu(0));
      Tensor second = Tensor::empty({count}, DType::float32, gpu(2));
      first.view().copy_from(source);
      const std::vector<float> expected = values_of(source);
      source.fill(-1);  // it may be overwritten at once
      second.view().copy_from(first);
      first.fill(-2);  // so may this one, by work in its stream
      CHECK(test::on_host(second) == expected);
    }
  }
}

TEST_CASE("arithmetic on a GPU gives what it gives on the cpu") {
  const test::FakeGpus gpus(1);
  Tensor left = counted(1001, 3);
  Tensor right = counted(1001, -5);
  Tensor left_there = Tensor::empty({1001}, DType::float32, gpu(0));
  left_there.view().copy_from(left);
  Tensor right_there = Tensor::empty({1001}, DType::float32, gpu(0));
  right_there.view().copy_from(right);
  for (Tensor* target : {&left, &left_there}) {
    const Tensor& source = target == &left ? right : right_there;
    target->view() += 2 * source.view();
    target->view() -= source.view();
    target->view() *= 0.5;
  }
  CHECK(test::on_host(left_there) == values_of(left));
  expect_error(test::kInvalid,
               "tensor +=: expected a tensor on gpu(0) like the one written to, got one on "
               "cpu(0) (copy_from copies between devices)",
               [&] { left_there.view() += right; });
}

TEST_CASE("a copy between devices converts the elements") {
  const test::FakeGpus gpus(1);
  Tensor source = counted(100);
  Tensor there = Tensor::empty({100}, DType::int64, gpu(0));
  there.view().copy_from(source);
  Tensor back = Tensor::empty({100}, DType::float32);
  back.view().copy_from(there);
  CHECK(values_of(back) == values_of(source));
  CHECK(there.to_vector<float>() == values_of(source));
  CHECK(there.value<float>(99) == values_of(source)[99]);
}

TEST_CASE("another stream goes on where the one before it stopped") {
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u}) {
    const test::FakeGpus gpus(1, seed);
    void* stream = gpus->create_stream(0);
    Tensor tensor = Tensor::zeros({100}, DType::float32, gpu(0));
    tensor.view() += Tensor::ones({100}, DType::float32, gpu(0));
    tutti::set_stream(gpu(0), stream);
    CHECK(tutti::stream_of(gpu(0)) == stream);
    tensor.view() *= 3;
    tutti::set_stream(gpu(0), nullptr);
    tensor.view() += Tensor::ones({100}, DType::float32, gpu(0));
    CHECK(test::on_host(tensor) == std::vector<float>(100, 4));
  }
}

TEST_CASE("a stream whose order nobody knows is refused, and the one before it stays") {
  const test::FakeGpus gpus(1);
  void* stream = gpus->create_stream(0);
  gpus->capture(stream);
  CHECK_THROWS_WITH_AS(tutti::set_stream(gpu(0), stream),
                       "set_stream of gpu(0): the stream is captured into a graph", tutti::Error);
  CHECK(tutti::stream_of(gpu(0)) == nullptr);
}

TEST_CASE("a copy that could not begin leaves nothing half made to the next one") {
  const test::FakeGpus gpus(1);
  const Tensor source = counted(100);
  Tensor there = Tensor::empty({100}, DType::float32, gpu(0));
  gpus->lack_an_event();
  CHECK_THROWS_AS(there.view().copy_from(source), tutti::Error);
  for (int i = 0; i < 8; ++i) there.view().copy_from(source);
  CHECK(test::on_host(there) == values_of(source));
}

TEST_CASE("a program in its rhythm allocates nothing from the device") {
  const test::FakeGpus gpus(1);
  const auto step = [] {
    for (const std::int64_t count : {1, 100, 70'000, 3'000'000}) {
      const Tensor tensor = Tensor::zeros({count}, DType::float32, gpu(0));
    }
  };
  step();
  const std::size_t before = tutti::gpus::find_gpus()->allocations();
  for (int i = 0; i < 20; ++i) step();
  CHECK(tutti::gpus::find_gpus()->allocations() == before);
}

TEST_CASE("too little memory is an error that names device and shape") {
  const test::FakeGpus gpus(1, 1, std::size_t{16} << 20);
  { const Tensor tensor = Tensor::empty({3'000'000}, DType::float32, gpu(0)); }
  // Takes the place of the first.
  const Tensor other = Tensor::empty({3'900'000}, DType::float32, gpu(0));
  expect_error(tutti::ErrorCode::out_of_memory,
               "tensor: gpu(0) (fake GPU) has no memory for shape (3000000) of float32",
               [] { static_cast<void>(Tensor::empty({3'000'000}, DType::float32, gpu(0))); });
}

namespace {

/// Sets the timeout of GPUs for the life of the object.
class TimeoutOfGpus {
 public:
  explicit TimeoutOfGpus(double seconds) {
    tutti::gpus::set_timeout(tutti::gpus::Timeout(seconds));
  }
  ~TimeoutOfGpus() { tutti::gpus::set_timeout(usual_); }
  TimeoutOfGpus(const TimeoutOfGpus&) = delete;
  TimeoutOfGpus& operator=(const TimeoutOfGpus&) = delete;

 private:
  tutti::gpus::Timeout usual_ = tutti::gpus::timeout();
};

}  // namespace

TEST_CASE("a copy from a device that hangs waits as long as the group made last") {
  const test::FakeGpus gpus(1);
  const TimeoutOfGpus usual(300);
  const Tensor tensor = Tensor::zeros({10}, DType::float32, gpu(0));
  Tensor here = Tensor::zeros({10});
  tutti::Settings settings;
  settings.timeout = std::chrono::duration<double>(0.05);
  const auto group = tutti::Communicator::self(settings);
  gpus->hang(0);
  expect_error(tutti::ErrorCode::timeout, "a copy from gpu(0) has not ended after",
               [&] { here.view().copy_from(tensor); });
}

TEST_CASE("a device that hangs is an error, not a hang") {
  const test::FakeGpus gpus(1);
  Tensor tensor = Tensor::zeros({10}, DType::float32, gpu(0));
  gpus->hang(0);
  try {
    const TimeoutOfGpus brief(0.05);
    tutti::synchronize(gpu(0));
    FAIL("returned");
  } catch (const tutti::Error& error) {
    CHECK(error.code() == tutti::ErrorCode::timeout);
    CHECK(std::string(error.what()).find("the work in the stream of gpu(0) has not ended after") ==
          0);
  }
}
