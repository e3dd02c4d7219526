// SPDX-License-Identifier: Apache-2.0
// What the kernels' tests run on: a GPU, or the fake CUDA runtime (cuda_rig.cpp).
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "tutti/tutti.hpp"

#include "runtime/gpu/kernels.hpp"
#include "tests/support/oracle.hpp"

namespace test {

class Rig {
 public:
  virtual ~Rig() = default;
  virtual tutti::gpus::Kernels& kernels() = 0;
  /// Aligned to 256 bytes.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  /// To and from the device; both wait for all work before.
  virtual void write(std::byte* to, const void* from, std::size_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, std::size_t bytes) = 0;
};

/// The program's rig.
std::unique_ptr<Rig> make_rig();

/// A tensor on the device, `offset` elements behind an aligned address, with a guard behind it.
class DeviceTensor {
 public:
  DeviceTensor(Rig& rig, const tutti::Tensor& values, std::size_t offset = 0)
      : rig_(rig),
        dtype_(values.dtype()),
        count_(values.count()),
        skipped_(offset * tutti::size_of(dtype_)),
        memory_(rig.allocate(skipped_ + bytes() + kGuard)) {
    const std::vector<std::byte> guard(skipped_ + bytes() + kGuard, std::byte{0x5A});
    rig_.write(memory_, guard.data(), guard.size());
    rig_.write(data(), values.view().bytes(), bytes());
  }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  ~DeviceTensor() { rig_.release(memory_); }

  [[nodiscard]] std::byte* data() const { return memory_ + skipped_; }

  [[nodiscard]] tutti::Tensor read() const {
    auto values = tutti::Tensor::empty({static_cast<std::int64_t>(count_)}, dtype_);
    rig_.read(values.view().bytes(), data(), bytes());
    return values;
  }

  /// True if nothing was written before or behind it.
  [[nodiscard]] bool is_guarded() const {
    std::vector<std::byte> all(skipped_ + bytes() + kGuard);
    rig_.read(all.data(), memory_, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((i < skipped_ || i >= skipped_ + bytes()) && all[i] != std::byte{0x5A}) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  [[nodiscard]] std::size_t bytes() const { return count_ * tutti::size_of(dtype_); }

  Rig& rig_;
  tutti::DType dtype_;
  std::size_t count_;
  std::size_t skipped_;
  std::byte* memory_;
};

inline bool same_bytes(const tutti::ConstTensorView& left, const tutti::ConstTensorView& right) {
  return left.size_bytes() == right.size_bytes() &&
         (left.size_bytes() == 0 ||
          std::memcmp(left.bytes(), right.bytes(), left.size_bytes()) == 0);
}

inline const std::vector<tutti::DType>& all_dtypes() {
  using enum tutti::DType;
  static const std::vector<tutti::DType> kAll = {float16, bfloat16, float32, float64,
                                                 int8,    uint8,    int32,   int64};
  return kAll;
}

/// The sum from left to right, in float32 for 16-bit floats, and every NaN as the library has it.
template <class T>
std::vector<T> sum_in_order(const std::vector<std::vector<T>>& inputs) {
  if (inputs.size() == 1) return inputs[0];
  std::vector<T> sums(inputs[0].size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      std::uint64_t sum = 0;
      for (const auto& input : inputs) sum += static_cast<std::uint64_t>(input[i]);
      sums[i] = static_cast<T>(sum);
    } else {
      using Wide = std::conditional_t<is_half<T>, float, T>;
      Wide sum = static_cast<Wide>(inputs[0][i]);
      for (std::size_t k = 1; k < inputs.size(); ++k) sum += static_cast<Wide>(inputs[k][i]);
      sums[i] = static_cast<T>(std::isnan(sum) ? std::numeric_limits<Wide>::quiet_NaN() : sum);
    }
  }
  return sums;
}

/// sum(values of each input) of tensors of one dtype.
template <class Sum>
tutti::Tensor summed_by(const std::vector<tutti::Tensor>& inputs, Sum sum) {
  tutti::Tensor result = inputs[0].clone();
  tutti::visit(result.dtype(), [&]<class T>(T) {
    std::vector<std::vector<T>> values;
    for (const tutti::Tensor& input : inputs) {
      values.emplace_back(input.values<T>().begin(), input.values<T>().end());
    }
    std::ranges::copy(sum(values), result.values<T>().begin());
  });
  return result;
}
inline tutti::Tensor sum_in_order(const std::vector<tutti::Tensor>& inputs) {
  return summed_by(inputs, [](const auto& values) { return sum_in_order(values); });
}
/// Along the canonical tree.
inline tutti::Tensor sum_in_tree(const std::vector<tutti::Tensor>& inputs) {
  return summed_by(inputs,
                   [](const auto& values) { return reduced(tutti::ReduceOp::sum, values); });
}

}  // namespace test
