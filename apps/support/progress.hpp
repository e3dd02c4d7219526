// SPDX-License-Identifier: Apache-2.0
// The progress of a training job: a bar that is redrawn on a terminal, plain lines in a batch log.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace apps {

/// True if standard output ends at a terminal. Open MPI gives programs a pseudo-terminal even when
/// its own output goes to a file, so that under mpirun the launcher's output decides.
bool stdout_is_watched();

/// Columns of the terminal at standard output; 80 if they are unknown.
int terminal_columns();

/// A watch that runs from its construction.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Progress {
  int epoch = 1;  ///< from 1
  int epochs = 1;
  std::size_t images_done = 0;  ///< in this epoch
  std::size_t images_total = 0;
  double images_per_second = 0.0;
  double loss = 0.0;
};

struct EpochResult {
  int epoch = 1;  ///< from 1
  int epochs = 1;
  double loss = 0.0;
  double accuracy = 0.0;
  double images_per_second = 0.0;
  double store_seconds = 0.0;  ///< so far, in the store, waiting for other ranks included
  double store_share = 0.0;    ///< that part of the training time, 0 to 1
};

/// The line of an epoch under way, without a line end, shorter than `columns`: "epoch 3/10
/// [#####-----]  50 %  31245 images/s  loss 0.3421  ETA 0:12"
std::string bar_line(const Progress& progress, int columns);

/// A bar for any work: "HEAD [#####-----]TAIL", of which `part`, 0 to 1, is done.
std::string bar_line(const std::string& head, double part, const std::string& tail, int columns);

/// The line of an epoch: "epoch 3/10  loss 0.3421  test accuracy 0.8712  31245 images/s  store 4.2
/// %"
std::string epoch_line(const EpochResult& result);

/// The last line: "test accuracy 0.8712  31245 images/s  store 0.83 s (4.2 %)"
std::string summary_line(const EpochResult& last);

/// The last line of a run that was complete already: "test accuracy 0.8712  nothing was left to
/// train"
std::string done_already_line(double accuracy);

/// A duration as text: "0:07", "12:34", "1:02:03".
std::string duration_text(double seconds);

/// A line that is redrawn. Draws nothing unless `enabled`.
class ProgressBar {
 public:
  explicit ProgressBar(bool enabled) : enabled_(enabled) {}

  /// True at most ten times a second. Ask it before gathering the facts for show().
  [[nodiscard]] bool due();
  void show(const Progress& progress);
  void show(const std::string& line);
  /// Removes the line, so that something else can be printed.
  void clear();

 private:
  bool enabled_;
  bool visible_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace apps
