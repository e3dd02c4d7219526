// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/tune_file.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

#include <tutti/error.hpp>

namespace apps::doctor {

namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const char* what) {
  throw tutti::Error(tutti::ErrorCode::io,
                     "--tuning " + file.string() + ": " + what + ": " + std::strerror(errno));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t start = line.find(": ");
    if (line.starts_with("model name") && start != std::string::npos) return line.substr(start + 2);
  }
  return "processor unknown";
}

}  // namespace

std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.front() != '#') rows.push_back(line);
  }
  return rows;
}

std::string value_in(const std::string& row, const std::string& name) {
  std::istringstream in(row);
  for (std::string word; in >> word;) {
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  }
  return {};
}

std::string merged(const std::string& old, const std::string& learnt, int ranks,
                   const std::string& comment) {
  std::string text = learnt.substr(0, learnt.find('\n')) + "\n# " + comment + "\n";
  std::istringstream in(old);
  std::string line;
  std::getline(in, line);  // every file has the same first line
  const std::string number = std::to_string(ranks);
  while (std::getline(in, line)) {
    const bool is_row = !line.empty() && line.front() != '#';
    if (is_row && value_in(line, "ranks") != number) text += line + "\n";
  }
  for (const std::string& row : rows_of(learnt)) text += row + "\n";
  return text;
}

std::string machine_text(const std::string& host, const std::string& mpi) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d", &parts);
  return processor_name() + ", host " + host + ", " + mpi + ", " + date.data();
}

std::string read_if_there(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  errno = EISDIR;
  if (std::filesystem::is_directory(file, ignored)) fail(file, "cannot be read");
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) fail(file, "cannot be read");
  return text;
}

}  // namespace apps::doctor
