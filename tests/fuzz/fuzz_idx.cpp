// SPDX-License-Identifier: Apache-2.0
// A file of images or labels, plain or compressed.
#include <cstdio>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/target.hpp"
#include "support/fashion_mnist.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = memfd_create("idx", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return 0;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  for (const std::size_t rank : {1, 3}) {
    fuzz::expect_result_or_error([&] {
      const apps::IdxArray array = apps::read_idx(path, rank);
      std::size_t count = 1;
      for (const std::uint32_t extent : array.extents) count *= extent;
      if (array.extents.size() != rank || array.bytes.size() != count) __builtin_trap();
    });
  }
  close(file);
  return 0;
}
