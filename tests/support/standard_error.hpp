// SPDX-License-Identifier: Apache-2.0
// Captures the messages that a call prints for its user.
#pragma once

#include <cstdio>
#include <string>
#include <unistd.h>

namespace test {

/// Runs the body, which must not throw; returns the text that this process writes to standard error
/// meanwhile.
template <class Body>
std::string written_by(Body body) {
  std::FILE* file = std::tmpfile();
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  body();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace test
