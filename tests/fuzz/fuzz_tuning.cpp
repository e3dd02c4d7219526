// SPDX-License-Identifier: Apache-2.0
// A file of TUTTI_TUNING. What can be read is written and read again alike.
#include <string>

#include "fuzz/target.hpp"
#include "runtime/job/tuning_file.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::expect_result_or_error([&] {
    const auto rows = tutti::parse_tuning(fuzz::text_of(data, size), "input");
    const auto again = tutti::parse_tuning(tutti::tuning_text(rows, "again"), "again");
    if (again.size() != rows.size()) __builtin_trap();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool is_same = again[i].ranks == rows[i].ranks &&
                           again[i].learnt.call == rows[i].learnt.call &&
                           again[i].learnt.path == rows[i].learnt.path;
      if (!is_same) __builtin_trap();
    }
  });
  return 0;
}
