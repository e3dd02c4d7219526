// SPDX-License-Identifier: Apache-2.0
// Sums in the canonical order, as kernels make them over the GPUs of a node.
#include <doctest/doctest.h>
#include <memory>
#include <vector>

#include "tests/gpu/rig.hpp"

using tutti::DType;
using tutti::Tensor;

namespace {

bool is_tree_sum(test::Rig& rig, DType dtype, std::int64_t count, int ranks, std::size_t offset) {
  std::vector<std::unique_ptr<test::DeviceTensor>> memory;
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    memory.push_back(std::make_unique<test::DeviceTensor>(
        rig, test::random_tensor({count}, dtype, rank, 7), offset));
    inputs.push_back(memory.back()->data());
  }
  const test::DeviceTensor output(rig, Tensor::zeros({count}, dtype));
  rig.kernels().tree_sum(nullptr, inputs, output.data(), dtype, static_cast<std::size_t>(count));
  return output.is_guarded() &&
         test::same_bytes(output.read(),
                          test::reduced_random(tutti::ReduceOp::sum, {count}, dtype, ranks, 7));
}

}  // namespace

TEST_CASE("sums over 1 to 8 ranks have the canonical order, of all types, sizes and alignments") {
  for (const DType dtype : test::all_dtypes()) {
    const auto rig = test::make_rig();
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const std::int64_t count : {0, 1, 33, 4096, 5003}) {
        const std::size_t offset = count == 33 ? 1 : 0;
        CAPTURE(std::string(to_string(dtype)));
        CAPTURE(ranks);
        CAPTURE(count);
        const bool is_right = is_tree_sum(*rig, dtype, count, ranks, offset);
        CHECK(is_right);
        if (!is_right) return;
      }
    }
  }
}
