// SPDX-License-Identifier: Apache-2.0
// The header of a data file: the length in the first bytes, then JSON. What is accepted must lie in
// the file, and must be accepted again when it is written.
#include "fuzz/target.hpp"
#include "runtime/checkpoint/safetensors.hpp"

using namespace tutti;
using namespace tutti::checkpoint;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file = fuzz::text_of(data, size);
  constexpr std::uint64_t kDataBytes = 4096;
  fuzz::expect_result_or_error([&] {
    if (size < kLengthBytes) return;
    const std::uint64_t length = header_length(file.substr(0, kLengthBytes), size);
    if (length > size - kLengthBytes) __builtin_trap();
  });
  fuzz::expect_result_or_error([&] {
    Header header = parse_header(file, kDataBytes);
    for (const TensorInfo& tensor : header.tensors) {
      if (tensor.end > kDataBytes || tensor.begin > tensor.end) __builtin_trap();
    }
    const std::string written = to_text(header);
    const Header again =
        parse_header(std::string_view(written).substr(kLengthBytes), header.data_bytes());
    if (again.tensors.size() != header.tensors.size()) __builtin_trap();
  });
  return 0;
}
