// SPDX-License-Identifier: Apache-2.0
// The texts that choose an optimizer and a compression. What is accepted says itself in words.
#include <string>

#include "tutti/compression.hpp"
#include "tutti/optimizers.hpp"

#include "fuzz/target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::expect_result_or_error([&] {
    const auto made = tutti::optimizer::create(text);
    if (made == nullptr || made->describe().empty()) __builtin_trap();
  });
  fuzz::expect_result_or_error([&] { tutti::optimizer::create("sgd", text); });
  fuzz::expect_result_or_error([&] { tutti::compression::create(text); });
  return 0;
}
