// SPDX-License-Identifier: Apache-2.0
// Sizes, and every TUTTI_* variable: a line of the input is the value of each in turn.
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tutti/settings.hpp"

#include "fuzz/target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::expect_result_or_error([&] { tutti::parse_bytes(text); });
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t equals = line.find('=');
    const std::map<std::string, std::string> variables = {
        {"TUTTI_" + line.substr(0, equals),
         equals == line.npos ? std::string() : line.substr(equals + 1)}};
    std::vector<std::string> warnings;
    fuzz::expect_result_or_error([&] { tutti::Settings::from_variables(variables, warnings); });
  }
  return 0;
}
