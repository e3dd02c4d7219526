// SPDX-License-Identifier: Apache-2.0
#include "apps/support/progress.hpp"

#include <doctest/doctest.h>
#include <string>

namespace {

apps::Progress half_of_epoch_three() {
  return {.epoch = 3,
          .epochs = 10,
          .images_done = 30000,
          .images_total = 60000,
          .images_per_second = 30000.0,
          .loss = 0.34214};
}

}  // namespace

TEST_CASE("bar_line shows epoch, bar, images/s, loss and the time left of all epochs") {
  // 30000 images of this epoch and 7 * 60000 of the others: 15 s.
  CHECK(apps::bar_line(half_of_epoch_three(), 80) ==
        "epoch 3/10 [##########----------]   50 %  30000 images/s  loss 0.3421  ETA 0:15");
}

TEST_CASE("bar_line is shorter than the terminal, whatever its width") {
  for (int columns = 0; columns < 300; ++columns) {
    CAPTURE(columns);
    const std::string line = apps::bar_line(half_of_epoch_three(), columns);
    CHECK(static_cast<int>(line.size()) <= (columns > 0 ? columns - 1 : 0));
  }
}

TEST_CASE("bar_line leaves the bar away where there is no room for it") {
  CHECK(apps::bar_line(half_of_epoch_three(), 64) ==
        "epoch 3/10   50 %  30000 images/s  loss 0.3421  ETA 0:15");
}

TEST_CASE("bar_line fills the bar at the end of an epoch and not before") {
  apps::Progress progress = half_of_epoch_three();
  progress.images_done = 59999;
  CHECK(apps::bar_line(progress, 80).find("#-]") != std::string::npos);
  CHECK(apps::bar_line(progress, 80).find(" 99 %") != std::string::npos);
  progress.images_done = 60000;
  CHECK(apps::bar_line(progress, 80).find("##]  100 %") != std::string::npos);
}

TEST_CASE("bar_line of a job that has not measured anything yet is well formed") {
  CHECK(apps::bar_line({}, 52) == "epoch 1/1    0 %  0 images/s  loss 0.0000  ETA 0:00");
}

TEST_CASE("epoch_line is the line of a batch log") {
  CHECK(apps::epoch_line({.epoch = 3,
                          .epochs = 10,
                          .loss = 0.34214,
                          .accuracy = 0.8712,
                          .images_per_second = 31244.6,
                          .store_share = 0.0417}) ==
        "epoch 3/10  loss 0.3421  test accuracy 0.8712  31245 images/s  store 4.2 %");
}

TEST_CASE("summary_line has accuracy, speed and the time in the store") {
  CHECK(apps::summary_line({.accuracy = 0.8951,
                            .images_per_second = 31244.6,
                            .store_seconds = 0.834,
                            .store_share = 0.0417}) ==
        "test accuracy 0.8951  31245 images/s  store 0.83 s (4.2 %)");
}

TEST_CASE("duration_text has hours only where there are any") {
  CHECK(apps::duration_text(0.0) == "0:00");
  CHECK(apps::duration_text(7.4) == "0:07");
  CHECK(apps::duration_text(59.6) == "1:00");
  CHECK(apps::duration_text(754.0) == "12:34");
  CHECK(apps::duration_text(3723.0) == "1:02:03");
  CHECK(apps::duration_text(-1.0) == "0:00");
}

TEST_CASE("a bar that is not enabled is never due") {
  apps::ProgressBar bar(false);
  CHECK_FALSE(bar.due());
}

TEST_CASE("an enabled bar is due at once, and then not within the same tenth of a second") {
  bool is_due_again = true;
  for (int i = 0; i < 20 && is_due_again; ++i) {  // this process may be off its core for so long
    apps::ProgressBar bar(true);
    CHECK(bar.due());
    is_due_again = bar.due();
  }
  CHECK_FALSE(is_due_again);
}
