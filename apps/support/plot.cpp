// SPDX-License-Identifier: Apache-2.0
#include "support/plot.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <tutti/error.hpp>

#include "support/command_line.hpp"
#include "support/output_file.hpp"

namespace apps {
namespace {

std::filesystem::path script() {
  std::error_code unknown;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  auto installed = program.parent_path().parent_path() / "share/tutti/mpirun/plot.py";
  return std::filesystem::exists(installed, unknown) ? installed : APPS_PLOT_SCRIPT;
}

/// The text quoted for the shell, which takes it as one word.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? "'\\''" : std::string(1, letter);
  return text + "'";
}

struct Ending {
  bool is_good;
  std::string said;
};

Ending run_script(const std::vector<std::string>& arguments) {
  std::string command = "python3 " + quoted(script().string());
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen((command + " 2>&1").c_str(), "r"),
                                                       pclose);
  if (!pipe) return {false, "no process for " + command};
  std::string said;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), pipe.get()) != nullptr) said += part.data();
  while (said.ends_with('\n')) said.pop_back();
  return {pclose(pipe.release()) == 0, said};
}

/// Where the script finds what it draws: beside the picture, but never beside a device.
std::filesystem::path results_of(const std::filesystem::path& picture) {
  std::error_code unknown;
  const auto found = std::filesystem::status(picture, unknown);
  if (!std::filesystem::exists(found) || std::filesystem::is_regular_file(found)) {
    return picture.string() + ".json";
  }
  std::string name = std::filesystem::temp_directory_path() / "tutti-plot.XXXXXX";
  const int handle = mkstemp(name.data());
  if (handle < 0) throw tutti::Error(tutti::ErrorCode::io, "--plot: no file can be made: " + name);
  close(handle);
  return name;
}

}  // namespace

void check_plot(const std::filesystem::path& picture) {
  if (picture.empty()) return;
  check_output_file(picture);
  const Ending ending = run_script({"--check"});
  if (!ending.is_good) throw_usage_error("--plot: " + ending.said);
}

void draw_plot(const std::filesystem::path& picture, const std::string& json) {
  if (picture.empty()) return;
  const std::filesystem::path results = results_of(picture);
  write_file(results, json);
  const Ending ending = run_script({results.string(), picture.string()});
  if (ending.is_good) {
    std::filesystem::remove(results);
    return;
  }
  throw tutti::Error(tutti::ErrorCode::io,
                     "--plot: " + ending.said + "; the results are in " + results.string());
}

}  // namespace apps
