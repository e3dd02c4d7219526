// SPDX-License-Identifier: Apache-2.0
// Child processes, in which a test changes limits, signals, the user or locked memory.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

/// True under a sanitizer, which takes terabytes of addresses, and memory of its own.
constexpr bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

/// The end of a child.
struct ChildEnd {
  int signal = 0;  ///< signal that ended it; 0 for none
  int code = 0;    ///< its exit code, if no signal ended it
  bool threw = false;
  std::string text;  ///< text of the exception, or the body's result
};

/// Runs the body in a child of this process, so that its changes end with it. The child has no
/// other thread of this process.
inline ChildEnd in_child(const std::function<std::string()>& body) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) return {.signal = -1, .threw = true, .text = "pipe"};
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    int code = 0;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = error.what();
      code = 1;
    }
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written < 0 ? 2 : code);
  }
  close(ends[1]);
  ChildEnd end;
  char block[1024];
  for (ssize_t got = 0; (got = read(ends[0], block, sizeof block)) > 0;) {
    end.text.append(block, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  end.threw = !WIFEXITED(status) || end.code != 0;
  return end;
}

/// Runs the body in a child under a limit, as a shell's ulimit sets it.
inline ChildEnd in_child_with(__rlimit_resource resource, rlim_t limit,
                              const std::function<std::string()>& body) {
  return in_child([&]() -> std::string {
    const rlimit both{limit, limit};
    if (setrlimit(resource, &both) != 0) return "no limit could be set";
    return body();
  });
}

}  // namespace test
