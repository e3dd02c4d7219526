// SPDX-License-Identifier: Apache-2.0
#include "support/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

#include "support/text.hpp"

namespace apps {

namespace {

constexpr int kDefaultColumns = 80;

// The target of a process's standard output: "/dev/pts/3", "/home/me/log.txt", "pipe:[4711]"; "" if
// that is unknown.
std::string stdout_of(pid_t process) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/fd/1", error);
}

// The parent of a process; 0 if it is unknown.
pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
  }
  return 0;
}

// True if the launcher's output is a terminal. Shells and tools between the launcher and this
// program have the same output as this program; the first ancestor that has another one is the
// launcher.
bool launcher_is_watched() {
  const std::string own = stdout_of(getpid());
  for (pid_t ancestor = getppid(); ancestor > 0; ancestor = parent_of(ancestor)) {
    const std::string output = stdout_of(ancestor);
    if (output == own) continue;
    return output.starts_with("/dev/pts/") || output.starts_with("/dev/tty");
  }
  return false;
}

}  // namespace

bool stdout_is_watched() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  const char* const terminal = std::getenv("TERM");
  if (terminal != nullptr && std::string_view(terminal) == "dumb") return false;
  return std::getenv("OMPI_COMM_WORLD_RANK") == nullptr || launcher_is_watched();
}

int terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

namespace {

constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr int kMinBar = 5;  // cells; a narrower terminal shows the text alone
constexpr int kMaxBar = 40;

double seconds_left(const Progress& progress) {
  if (!(progress.images_per_second > 0.0)) return 0.0;
  const auto epochs_left = static_cast<std::size_t>(progress.epochs - progress.epoch);
  const std::size_t images =
      progress.images_total - progress.images_done + epochs_left * progress.images_total;
  return static_cast<double>(images) / progress.images_per_second;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = std::llround(std::clamp(seconds, 0.0, 1e9));
  const long long hours = whole / 3600;
  const long long minutes = whole / 60 % 60;
  if (hours > 0) return format("%lld:%02lld:%02lld", hours, minutes, whole % 60);
  return format("%lld:%02lld", minutes, whole % 60);
}

std::string bar_line(const Progress& progress, int columns) {
  const double part = progress.images_total == 0 ? 0.0
                                                 : static_cast<double>(progress.images_done) /
                                                       static_cast<double>(progress.images_total);
  const std::string head = format("epoch %d/%d", progress.epoch, progress.epochs);
  const std::string tail =
      format("  %3.0f %%  %.0f images/s  loss %.4f  ETA ", std::floor(part * 100.0),
             progress.images_per_second, progress.loss) +
      duration_text(seconds_left(progress));
  return bar_line(head, part, tail, columns);
}

std::string bar_line(const std::string& head, double part, const std::string& tail, int columns) {
  const auto room = static_cast<std::ptrdiff_t>(std::max(columns - 1, 0));  // the cursor's cell
  const auto cells = std::min<std::ptrdiff_t>(
      room - static_cast<std::ptrdiff_t>(head.size() + tail.size()) - 3, kMaxBar);
  std::string line = head;
  if (cells >= kMinBar) {
    const auto full = static_cast<std::size_t>(part * static_cast<double>(cells));
    line += " [" + std::string(full, '#') +
            std::string(static_cast<std::size_t>(cells) - full, '-') + "]";
  }
  line += tail;
  return line.substr(0, static_cast<std::size_t>(room));
}

std::string epoch_line(const EpochResult& result) {
  return format("epoch %d/%d  loss %.4f  test accuracy %.4f  %.0f images/s  store %.1f %%",
                result.epoch, result.epochs, result.loss, result.accuracy, result.images_per_second,
                result.store_share * 100.0);
}

std::string summary_line(const EpochResult& last) {
  return format("test accuracy %.4f  %.0f images/s  store %.2f s (%.1f %%)", last.accuracy,
                last.images_per_second, last.store_seconds, last.store_share * 100.0);
}

std::string done_already_line(double accuracy) {
  return format("test accuracy %.4f  nothing was left to train", accuracy);
}

bool ProgressBar::due() {
  if (!enabled_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + kRedrawInterval;
  return true;
}

void ProgressBar::show(const Progress& progress) { show(bar_line(progress, terminal_columns())); }

void ProgressBar::show(const std::string& line) {
  if (!enabled_) return;
  std::printf("\r%s\x1b[K", line.c_str());
  std::fflush(stdout);
  visible_ = true;
}

void ProgressBar::clear() {
  if (!visible_) return;
  std::printf("\r\x1b[K");
  std::fflush(stdout);
  visible_ = false;
}

}  // namespace apps
