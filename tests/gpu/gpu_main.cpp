// SPDX-License-Identifier: Apache-2.0
// Runs the tests on the first GPU; where there is none, says so and ends with 77: skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <doctest/doctest.h>

#include "runtime/cuda/devices.hpp"

int main(int argc, char** argv) {
  const tutti::cuda::Devices devices = tutti::cuda::find_devices();
  if (devices.count == 0) {
    std::printf("no GPU: %s\n", devices.why_none.c_str());
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
