// SPDX-License-Identifier: Apache-2.0
// manifest.json, as it is read. The seal hides everything behind it from a fuzzer, so the input is
// also taken as the metadata of a manifest that is written and read back.
#include "fuzz/target.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/safetensors.hpp"

using namespace tutti;
using namespace tutti::checkpoint;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::expect_result_or_error([&] { parse_manifest(text); });
  fuzz::expect_result_or_error([&] {
    require_utf8(text, "metadata");
    const std::size_t half = text.find('\n');
    Manifest manifest{.generation = size, .files = {}, .metadata = {}};
    manifest.metadata[text.substr(0, half)] = half == text.npos ? "" : text.substr(half + 1);
    manifest.files["weights.safetensors"] = {size, std::string(16, 'a')};
    const Manifest again = parse_manifest(to_text(manifest));
    if (again.metadata != manifest.metadata || again.files != manifest.files) __builtin_trap();
  });
  return 0;
}
