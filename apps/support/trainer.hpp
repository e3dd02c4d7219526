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

/// A rank's part of training. Order   all members but the destructor are collective.
class Trainer {
 public:
  Trainer(tutti::Communicator world, tutti::KVStore& store, const TrainOptions& options,
          const FashionMnist& data);

  /// Continues from the checkpoint, as the options say, or saves the beginning: a folder that
  /// cannot be written is noticed before the work. Returns a line about it, or nothing.
  std::string resume();

  [[nodiscard]] bool is_done() const { return position_.epoch == options_.epochs; }
  /// Trains to the end of the epoch under way, then tests, then saves if it is time. If the job is
  /// asked to stop, saves at once and returns nothing, unless the epoch has ended.
  /// Errors  invalid_argument: the training diverged.
  std::optional<EpochResult> run_epoch();
  /// True if the run ends before its end, because it was asked to stop. It is saved then.
  [[nodiscard]] bool is_stopped() const { return store_.stop_requested() && !is_done(); }
  [[nodiscard]] const Position& position() const { return position_; }
  /// The accuracy on the test images, over all ranks.
  double accuracy();

 private:
  [[nodiscard]] std::size_t batch() const { return static_cast<std::size_t>(options_.batch_size); }
  /// Steps of an epoch. Images that do not fill a batch are dropped; each epoch's order drops
  /// others.
  [[nodiscard]] std::size_t steps_per_epoch() const { return order_.size() / batch(); }
  /// Steps of the run so far, over all epochs.
  [[nodiscard]] std::size_t total_steps() const {
    return static_cast<std::size_t>(position_.epoch) * steps_per_epoch() + position_.step;
  }
  [[nodiscard]] bool is_due() const;
  [[nodiscard]] double count_correct();

  void train();
  void update();
  [[nodiscard]] tutti::Metadata metadata();
  void save();
  void show(double seconds);

  tutti::Communicator world_;
  tutti::KVStore& store_;
  const TrainOptions& options_;
  const FashionMnist& data_;
  std::size_t share_;  // number of this rank's images of each batch
  StoredMlp model_;
  double base_rate_ = 0.0;  // the learning rate of the first epoch
  ProgressBar bar_;
  std::vector<std::uint32_t> order_;
  Position position_;           // its loss is the part of this rank
  double resumed_loss_ = 0.0;   // loss that rank 0 has for all ranks in the epoch under way
  std::size_t images_ = 0;      // number that this process trained on, over all ranks
  double seconds_ = 0.0;        // training time, without tests and checkpoints
  double store_seconds_ = 0.0;  // the part of it in push
};

}  // namespace apps
