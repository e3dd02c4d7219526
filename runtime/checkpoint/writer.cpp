// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/writer.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <unistd.h>

#include "tutti/error.hpp"

namespace tutti::checkpoint {

namespace {

/// The second in which the machine started, as the kernel counts the ages of processes from it.
std::int64_t boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    std::int64_t seconds = 0;
    if (word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

/// When a process of this machine began, in seconds since 1970; nothing if it is not there.
std::optional<std::int64_t> begin_of(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');  // a name may have blanks and parentheses
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(name_end + 1));
  constexpr int kBefore = 19;  // fields between the name and the time
  std::string field;
  for (int i = 0; i < kBefore; ++i) rest >> field;
  std::int64_t ticks = 0;
  if (!(rest >> ticks)) return std::nullopt;
  return boot_time() + ticks / sysconf(_SC_CLK_TCK);
}

constexpr std::int64_t kClockError = 2;  // of sums of seconds, and between hosts of one cluster

bool are_near(std::int64_t one, std::int64_t other) { return std::abs(one - other) <= kClockError; }

bool is_alive(const Writer& writer) {
  const std::optional<std::int64_t> begun = begin_of(writer.process);
  return begun && are_near(*begun, writer.begun);
}

std::string name_of_job() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string array = variable("SLURM_ARRAY_JOB_ID");
  if (!array.empty()) return "Slurm job " + array + "_" + variable("SLURM_ARRAY_TASK_ID");
  if (const std::string job = variable("SLURM_JOB_ID"); !job.empty()) return "Slurm job " + job;
  if (const std::string job = variable("PBS_JOBID"); !job.empty()) return "PBS job " + job;
  return {};
}

std::string in_words(const Writer& writer) {
  return (writer.job.empty() ? "another job" : writer.job) + " (host " + writer.host + ", pid " +
         std::to_string(writer.process) + ")";
}

}  // namespace

Writer this_writer() {
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.job = name_of_job(),
          .host = host,
          .process = getpid(),
          .begun = begin_of(getpid()).value_or(0),
          .written = std::chrono::duration_cast<std::chrono::seconds>(now).count()};
}

void require_only_writer(const std::filesystem::path& directory, std::uint64_t generation,
                         const Writer& other, const Writer& own) {
  const bool is_same_host = other.host == own.host;
  const bool is_own =
      is_same_host && other.process == own.process && are_near(other.begun, own.begun);
  if (other.host.empty() || is_own || other.written <= own.begun + kClockError) return;
  const std::string text = "generation " + std::to_string(generation) + " in " +
                           directory.string() + " was written by " + in_words(other) +
                           " while this job was running; give each job a folder of its own";
  if (is_same_host && is_alive(other)) throw Error(ErrorCode::io, text);
  std::fprintf(stderr, "tutti: warning: %s\n", text.c_str());
}

}  // namespace tutti::checkpoint
