// SPDX-License-Identifier: Apache-2.0
// One rank's part of a training run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/kvstore.hpp>

#include "support/fashion_mnist.hpp"
#include "support/progress.hpp"
#include "support/run_record.hpp"
#include "support/stored_mlp.hpp"
#include "support/train_options.hpp"

namespace apps {

/// Order   all members but the destructor are collective.
class Trainer {
 public:
  Trainer(tutti::Communicator world, tutti::KVStore& store, const TrainOptions& options,
          const FashionMnist& data);

  /// Goes on from the checkpoint, as the options say, or saves the beginning: a folder that cannot
  /// be written shows before the work. Returns what there is to say about it, or nothing.
  std::string resume();

  [[nodiscard]] bool is_done() const { return position_.epoch == options_.epochs; }
  /// Trains to the end of the epoch under way, then tests, then saves if it is time. If the job is
  /// asked to stop, saves at once and returns nothing, unless the end of the epoch is there.
  /// Errors  invalid_argument: the training diverged.
  std::optional<EpochResult> run_epoch();
  /// True if the run ends before its end, because it was asked to stop. It is saved then.
  [[nodiscard]] bool is_stopped() const { return store_.stop_requested() && !is_done(); }
  [[nodiscard]] const Position& position() const { return position_; }
  /// The share of the test images, over all ranks.
  double accuracy();

 private:
  [[nodiscard]] std::size_t batch() const { return static_cast<std::size_t>(options_.batch_size); }
  /// What does not fill a batch is dropped; each epoch's order puts other images there.
  [[nodiscard]] std::size_t steps_per_epoch() const { return order_.size() / batch(); }
  /// Steps of the run so far, over all epochs.
  [[nodiscard]] std::size_t total_steps() const {
    return static_cast<std::size_t>(position_.epoch) * steps_per_epoch() + position_.step;
  }
  [[nodiscard]] bool is_due() const;
  [[nodiscard]] double count_correct();

  void train();
  void update();
  void save();
  void show(double seconds);

  tutti::Communicator world_;
  tutti::KVStore& store_;
  const TrainOptions& options_;
  const FashionMnist& data_;
  std::size_t share_;  // this rank's images of each batch
  StoredMlp model_;
  double base_rate_ = 0.0;  // the learning rate of the first epoch
  ProgressBar bar_;
  std::vector<std::uint32_t> order_;
  Position position_;           // its loss is this rank's part
  double resumed_loss_ = 0.0;   // all ranks' part that rank 0 has of the epoch under way
  std::size_t images_ = 0;      // trained on by this process, over all ranks
  double seconds_ = 0.0;        // spent on training, without tests and checkpoints
  double store_seconds_ = 0.0;  // the part of them in push
};

}  // namespace apps
