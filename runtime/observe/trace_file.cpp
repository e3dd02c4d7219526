// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/trace_file.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "tutti/error.hpp"

#include "runtime/base/file.hpp"
#include "runtime/observe/text.hpp"

namespace tutti::observe {

namespace {

using checkpoint::File;

constexpr std::string_view kEnd = "\n]\n";
constexpr std::uint64_t kTailBytes = std::uint64_t{1} << 20;  // longer than any line

std::string head(std::uint64_t job) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(),
                R"([
{"ph":"M","name":"process_labels","pid":1,"tid":1,"args":{"labels":"job %016llx"}})",
                static_cast<unsigned long long>(job));
  return text.data();
}

std::string tail_of(const File& file, std::uint64_t from) {
  std::string text(file.size() - from, '\0');
  file.read(std::as_writable_bytes(std::span(text)), from);
  return text;
}

/// Where the last whole event ends.
std::uint64_t end_of_events(const std::string& path) {
  const File file = File::open(path);
  const std::uint64_t bytes = file.size();
  const std::uint64_t from = bytes - std::min(bytes, kTailBytes);
  const std::string tail = tail_of(file, from);
  if (tail.ends_with(kEnd)) return bytes - kEnd.size();
  for (std::size_t line = tail.rfind('\n'); line != std::string::npos && line > 1;
       line = tail.rfind('\n', line - 1)) {
    if (tail[line - 1] == '}') return from + line;
    if (tail[line - 1] == ',' && tail[line - 2] == '}') return from + line - 1;
  }
  throw Error(ErrorCode::io, path +
                                 " is no trace any more: no event was found in it; who else "
                                 "writes to it?");
}

void lock(File& file, std::chrono::duration<double> patience) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (!file.lock()) {
    if (std::chrono::steady_clock::now() > limit) {
      throw Error(ErrorCode::timeout, file.path().string() + " was locked by another process for " +
                                          seconds_to_string(patience.count()) +
                                          ", so this rank's events are not in it; is a rank "
                                          "stopped while it writes?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

void create_trace(const std::string& path, std::uint64_t job) {
  std::error_code absent;
  std::filesystem::remove(path, absent);
  File file = File::open_new(path);
  file.write(head(job) + std::string(kEnd), 0);
}

bool is_trace_of(const std::string& path, std::uint64_t job) noexcept {
  try {
    const std::string expected = head(job);
    std::string found(expected.size(), '\0');
    File::open(path).read(std::as_writable_bytes(std::span(found)), 0);
    return found == expected;
  } catch (const std::exception&) {
    return false;
  }
}

void append_trace(const std::string& path, const std::string& events,
                  std::chrono::duration<double> patience) {
  File file = File::open_to_write(path);
  lock(file, patience);
  const std::uint64_t end = end_of_events(path);
  if (end + kEnd.size() < file.size()) std::filesystem::resize_file(path, end);
  try {
    file.write(",\n" + events + std::string(kEnd), end);
  } catch (const Error&) {
    std::filesystem::resize_file(path, end);  // a full disk: the events before are worth keeping
    file.write(std::string(kEnd), end);
    throw;
  }
}

}  // namespace tutti::observe
