// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compression_reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "tutti/dtype.hpp"

namespace test {

template <class T>
void CompressionReference::append(T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  packed.insert(packed.end(), bytes, bytes + sizeof value);
}

template <class Half>
Floats CompressionReference::rounded(const Floats& gradient) {
  Floats sent;
  for (const float value : gradient) {
    const Half half(value);
    append(half);
    sent.push_back(static_cast<float>(half));
  }
  return sent;
}

Floats CompressionReference::quantised() {
  const std::size_t bits = name_ == "2bit" ? 2 : 1;
  const auto threshold = static_cast<float>(option_);
  Floats sent;
  std::size_t used = 0;  // bits of `packed` that are used
  for (const float r : residual) {
    unsigned code = 0;
    if (bits == 2) {
      code = r >= threshold ? 3 : r <= -threshold ? 2 : 0;
      sent.push_back(code == 3 ? threshold : code == 2 ? -threshold : 0.0f);
    } else {
      code = r > threshold ? 1 : 0;
      sent.push_back(code == 1 ? 1.0f : -1.0f);
    }
    if (used % 8 == 0) packed.push_back(std::byte{0});
    packed.back() |= static_cast<std::byte>(code << (8 - bits - used % 8));
    used += bits;
  }
  return sent;
}

Floats CompressionReference::largest() {
  std::vector<std::uint32_t> order(residual.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto wanted =
      std::min(order.size(), static_cast<std::size_t>(std::max(
                                 1.0, std::ceil(option_ * static_cast<double>(residual.size())))));
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(wanted);
  std::nth_element(order.begin(), end, order.end(), [&](std::uint32_t left, std::uint32_t right) {
    const float left_size = std::abs(residual[left]);
    const float right_size = std::abs(residual[right]);
    return left_size > right_size || (left_size == right_size && left < right);
  });
  order.resize(wanted);
  std::sort(order.begin(), order.end());
  Floats sent(residual.size(), 0.0f);
  for (const std::uint32_t index : order) {
    sent[index] = residual[index];
    append(index);
    append(residual[index]);
  }
  return sent;
}

Floats CompressionReference::step(const Floats& gradient) {
  packed.clear();
  if (name_ == "none") return gradient;
  if (name_ == "fp16") return rounded<tutti::Float16>(gradient);
  if (name_ == "bf16") return rounded<tutti::BFloat16>(gradient);
  for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += gradient[i];
  const Floats sent = name_ == "topk" ? largest() : quantised();
  for (std::size_t i = 0; i < residual.size(); ++i) residual[i] -= sent[i];
  return sent;
}

}  // namespace test
