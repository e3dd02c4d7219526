// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over the files of folders, without a fuzzer: what once was a finding stays one
// that every build looks for. Each input is also cut short at every length up to 64 bytes.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "fuzz/target.hpp"

int main(int argc, char** argv) {
  int inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
      LLVMFuzzerTestOneInput(data, bytes.size());
      for (std::size_t size = 0; size < bytes.size() && size <= 64; ++size) {
        const std::vector<std::uint8_t> shorter(data, data + size);
        LLVMFuzzerTestOneInput(shorter.data(), shorter.size());
      }
      ++inputs;
    }
  }
  std::cout << inputs << " inputs\n";
  return inputs > 0 ? 0 : 1;
}
