// SPDX-License-Identifier: Apache-2.0
// A second implementation of gradient compression, for comparison: one element at a time, by its
// definition.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace test {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

/// One sender of one key: the values that each step sends, as numbers and as bytes.
class CompressionReference {
 public:
  /// `name` is a name of compression::create; `option` is its threshold or ratio.
  CompressionReference(std::string name, double option, std::size_t count)
      : residual(count, 0.0f), name_(std::move(name)), option_(option) {}

  Floats residual;
  Bytes packed;

  /// The values that are sent of this gradient; the residual keeps the rest.
  Floats step(const Floats& gradient);

 private:
  template <class Half>
  Floats rounded(const Floats& gradient);
  Floats quantised();
  Floats largest();
  template <class T>
  void append(T value);

  std::string name_;
  double option_;
};

}  // namespace test
