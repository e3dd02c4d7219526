// SPDX-License-Identifier: Apache-2.0
// Data-parallel training: every rank computes the gradients of its share of each batch, one push
// sums them over the ranks and updates every rank's replica of the weights.
//
// The order of the images depends on the seed and the epoch alone, and rank r of P takes the r-th
// contiguous P-th of each global batch: any number of ranks gives the same loss, up to rounding.
#include <array>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "support/fashion_mnist.hpp"
#include "support/progress.hpp"
#include "support/random.hpp"
#include "support/stored_mlp.hpp"
#include "support/terminal.hpp"
#include "support/train_options.hpp"

namespace {

class Trainer {
 public:
  Trainer(tutti::Communicator world, tutti::KVStore& store, const apps::TrainOptions& options,
          const apps::FashionMnist& data)
      : world_(std::move(world)),
        store_(store),
        options_(options),
        data_(data),
        base_rate_(store.optimizer().learning_rate()),
        share_(static_cast<std::size_t>(options.batch_size / world_.size())),
        model_(store, options.widths(), share_, options.seed),
        bar_(world_.rank() == 0 && apps::stdout_is_watched()),
        order_(data.train.count()) {}

  /// Trains one epoch (from 0), then tests. Collective.
  apps::EpochResult run(int epoch) {
    if (!store_.optimizer().options().schedule) {
      store_.optimizer().set_learning_rate(
          apps::learning_rate_at(base_rate_, epoch, options_.epochs));
    }
    apps::shuffle_epoch(static_cast<std::uint64_t>(options_.seed), epoch, order_);
    const apps::Stopwatch watch;
    const double loss = train(epoch, watch);
    seconds_ += watch.seconds();

    // Besides the pushes, the only message of an epoch.
    std::array sums{loss, test()};
    world_.allreduce(tutti::view(sums.data(), {2}));
    bar_.clear();
    return {.epoch = epoch + 1,
            .epochs = options_.epochs,
            .loss = sums[0] / static_cast<double>(images_per_epoch()),
            .accuracy = sums[1] / static_cast<double>(data_.test.count()),
            .images_per_second = static_cast<double>(images_) / seconds_,
            .store_seconds = store_seconds_,
            .store_share = store_seconds_ / seconds_};
  }

 private:
  [[nodiscard]] std::size_t batch() const { return static_cast<std::size_t>(options_.batch_size); }
  /// What does not fill a batch is dropped; each epoch's order puts other images there.
  [[nodiscard]] std::size_t images_per_epoch() const { return order_.size() / batch() * batch(); }

  /// This rank's loss, summed over its images.
  double train(int epoch, const apps::Stopwatch& watch) {
    double loss = 0.0;
    for (std::size_t first = 0; first < images_per_epoch(); first += batch()) {
      const std::size_t mine = first + share_ * static_cast<std::size_t>(world_.rank());
      loss += model_.compute({data_.train, std::span(order_).subspan(mine, share_)});
      const apps::Stopwatch push_watch;
      model_.push();
      store_seconds_ += push_watch.seconds();
      images_ += batch();
      if (!bar_.due()) continue;
      const std::size_t done = first + batch();
      bar_.show({.epoch = epoch + 1,
                 .epochs = options_.epochs,
                 .images_done = done,
                 .images_total = images_per_epoch(),
                 .images_per_second = static_cast<double>(images_) / (seconds_ + watch.seconds()),
                 .loss = loss * world_.size() / static_cast<double>(done)});
    }
    return loss;
  }

  /// How many images of this rank's share of the test set the network gets right.
  double test() {
    const auto rank = static_cast<std::size_t>(world_.rank());
    const auto ranks = static_cast<std::size_t>(world_.size());
    const std::size_t count = data_.test.count();
    return model_.network().count_correct(data_.test, count * rank / ranks,
                                          count * (rank + 1) / ranks);
  }

  tutti::Communicator world_;
  tutti::KVStore& store_;
  const apps::TrainOptions& options_;
  const apps::FashionMnist& data_;
  double base_rate_;   // the learning rate of the first epoch
  std::size_t share_;  // this rank's images of each batch
  apps::StoredMlp model_;
  apps::ProgressBar bar_;
  std::vector<std::uint32_t> order_;
  std::size_t images_ = 0;      // trained on so far, over all ranks
  double seconds_ = 0.0;        // of training, without the tests
  double store_seconds_ = 0.0;  // the part of them in push
};

int train_fashion_mnist(int argc, char** argv) {
  tutti::Communicator world = tutti::Communicator::world();
  const auto say = [&](const std::string& text) {
    if (world.rank() == 0) std::cout << text << std::flush;
  };
  // What may fail on one rank alone runs inside agree: then all ranks end alike, and one reports.
  apps::TrainOptions options;
  world.agree([&] { options = apps::parse_train_options(argc, argv, world.size()); });
  if (options.help || options.version) {
    say(options.help ? apps::train_help() : apps::train_version());
    return 0;
  }
  apps::FashionMnist data;
  world.agree([&] {
    data = apps::load_fashion_mnist(options.data, static_cast<std::size_t>(options.limit));
    apps::check_data(options, data.train.count());
  });

  tutti::KVStore store = options.one_process() ? tutti::KVStore::create(options.kvstore)
                                               : tutti::KVStore::create(world);
  store.set_optimizer(apps::make_optimizer(options));
  Trainer trainer(world, store, options, data);
  say(apps::job_line(options, world.size()) + '\n');

  apps::EpochResult result;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    result = trainer.run(epoch);
    world.agree([&] { apps::check_loss(result.loss, result.epoch); });
    say(apps::epoch_line(result) + '\n');
  }
  say(apps::summary_line(result) + '\n');
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("train-fashion-mnist", [&] { return train_fashion_mnist(argc, argv); });
}
