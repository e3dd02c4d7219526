// SPDX-License-Identifier: Apache-2.0
// Rows that a program in C pulls into the memory of a GPU, on the fake one.
#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "tutti/error.hpp"
#include "tutti/gpu.hpp"
#include "tutti/tensor.hpp"
#include "tutti/tutti.h"

#include "tests/fake_cuda/fake_cuda.hpp"

namespace {

constexpr std::int64_t kTable[] = {5, 2};

/// A store with a table whose row i holds i, on the host or on the GPU.
tutti_kvstore* store_with_table(int device_kind) {
  tutti_kvstore* kv = nullptr;
  REQUIRE(tutti_kvstore_create("local", nullptr, &kv) == 0);
  tutti::Tensor table = tutti::Tensor::empty({5, 2});
  for (std::size_t i = 0; i < 10; ++i) table.values<float>()[i] = static_cast<float>(i / 2);
  tutti::Tensor there = tutti::Tensor::empty({5, 2}, tutti::DType::float32,
                                             {static_cast<tutti::DeviceKind>(device_kind), 0});
  there.view().copy_from(table);
  const tutti_tensor value = {there.bytes(), kTable, 2, TUTTI_FLOAT32, device_kind, 0};
  tutti_item item{};
  item.key.number = 3;
  item.values = &value;
  item.num_values = 1;
  REQUIRE(tutti_kvstore_init_row_sparse(kv, &item, 1) == 0);
  return kv;
}

tutti_row_pull pull_of(const tutti_tensor& row_ids, int device_kind) {
  tutti_row_pull pull{};
  pull.key.number = 3;
  pull.row_ids = row_ids;
  pull.device_kind = device_kind;
  return pull;
}

}  // namespace

TEST_CASE("C pulls rows of a table anywhere into memory anywhere") {
  std::int32_t asked[] = {4, 1, 4};
  const std::int64_t three[] = {3};
  const tutti_tensor row_ids = {asked, three, 1, TUTTI_INT32, TUTTI_CPU, 0};
  for (const int home : {TUTTI_CPU, TUTTI_GPU}) {
    for (const int to : {TUTTI_CPU, TUTTI_GPU}) {
      CAPTURE(home);
      CAPTURE(to);
      tutti_kvstore* kv = store_with_table(home);
      const tutti_row_pull pull = pull_of(row_ids, to);
      tutti_buffer* ids = nullptr;
      tutti_buffer* rows = nullptr;
      REQUIRE(tutti_kvstore_row_sparse_pull_with(kv, &pull, &ids, &rows) == 0);
      tutti_tensor found{};
      REQUIRE(tutti_buffer_tensor(rows, &found) == 0);
      CHECK(found.device_kind == to);
      REQUIRE(found.shape[0] == 2);
      tutti::Tensor here = tutti::Tensor::empty({2, 2});
      here.view().copy_from(tutti::ConstTensorView(static_cast<const std::byte*>(found.data),
                                                   {2, 2}, tutti::DType::float32,
                                                   {static_cast<tutti::DeviceKind>(to), 0}));
      CHECK(here.values<float>()[1] == 1);
      CHECK(here.values<float>()[2] == 4);
      REQUIRE(tutti_buffer_tensor(ids, &found) == 0);
      CHECK(found.device_kind == TUTTI_CPU);
      CHECK(static_cast<const std::int64_t*>(found.data)[1] == 4);
      for (tutti_buffer* buffer : {ids, rows}) CHECK(tutti_buffer_destroy(buffer) == 0);
      CHECK(tutti_kvstore_destroy(kv) == 0);
    }
  }
}

TEST_CASE("a lack of memory for pulled rows makes no buffer") {
  tutti_kvstore* kv = store_with_table(TUTTI_CPU);
  std::int32_t asked[] = {4};
  const std::int64_t one[] = {1};
  const tutti_row_pull pull = pull_of({asked, one, 1, TUTTI_INT32, TUTTI_CPU, 0}, TUTTI_GPU);
  std::vector<tutti::Tensor> taken;  // what the pool has left
  fake_cuda::fail("cudaMalloc", 0, cudaErrorMemoryAllocation);
  try {
    for (;;) taken.push_back(tutti::Tensor::empty({1}, tutti::DType::float32, tutti::gpu(0)));
  } catch (const tutti::Error& error) {
    REQUIRE(error.code() == tutti::ErrorCode::out_of_memory);
  }
  tutti_buffer* ids = nullptr;
  tutti_buffer* rows = nullptr;
  CHECK(tutti_kvstore_row_sparse_pull_with(kv, &pull, &ids, &rows) == TUTTI_ERROR_OUT_OF_MEMORY);
  fake_cuda::repair();
  CHECK(ids == nullptr);
  CHECK(rows == nullptr);
  CHECK(tutti_kvstore_row_sparse_pull_with(kv, &pull, &ids, &rows) == 0);
  for (tutti_buffer* buffer : {ids, rows}) CHECK(tutti_buffer_destroy(buffer) == 0);
  CHECK(tutti_kvstore_destroy(kv) == 0);
}

TEST_CASE("C orders another stream before and after the library's work, unless it is captured") {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  for (auto* const order : {tutti_gpu_wait_for_stream, tutti_gpu_let_stream_wait}) {
    CHECK(order(0, stream) == TUTTI_OK);
    fake_cuda::set_capturing(stream, true);
    CHECK(order(0, stream) == TUTTI_ERROR_INVALID_ARGUMENT);
    CHECK(std::string(tutti_last_error()).find("captured") != std::string::npos);
    fake_cuda::set_capturing(stream, false);
  }
  CHECK(tutti_gpu_synchronize(0) == TUTTI_OK);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}
