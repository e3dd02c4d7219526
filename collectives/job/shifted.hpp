// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace tutti::collectives {

/// A list of addresses, each increased by the same number of bytes. A few of them need no
/// allocation.
template <class Address>
class Shifted {
 public:
  Shifted(std::span<const Address> addresses, std::size_t bytes) : size_(addresses.size()) {
    if (size_ > kFew) many_.resize(size_);
    std::transform(addresses.begin(), addresses.end(), data(),
                   [&](Address address) { return address + bytes; });
  }
  [[nodiscard]] std::span<const Address> all() { return {data(), size_}; }

 private:
  static constexpr std::size_t kFew = 16;
  [[nodiscard]] Address* data() { return size_ > kFew ? many_.data() : few_.data(); }

  std::size_t size_;
  std::array<Address, kFew> few_{};
  std::vector<Address> many_;
};

}  // namespace tutti::collectives
