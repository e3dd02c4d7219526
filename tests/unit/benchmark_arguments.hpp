// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <vector>

#include "apps/benchmark/options.hpp"

namespace test {

/// The options of the command line "collective-benchmark ARGUMENTS...".
inline apps::benchmark::Options parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> words{"collective-benchmark"};
  words.insert(words.end(), arguments);
  return apps::benchmark::parse_options(static_cast<int>(words.size()), words.data());
}

}  // namespace test
