// SPDX-License-Identifier: Apache-2.0
// Data-parallel training: every rank computes the gradients of its share of each batch, one push
// sums them over the ranks and updates every rank's replica of the weights.
//
// The order of the images depends on the seed and the epoch alone, and rank r of P takes the r-th
// contiguous P-th of each global batch: any number of ranks gives the same loss, up to rounding.
//
// A checkpoint holds the weights, the optimizer's states, and the position of the run: a run that
// is killed and started again ends with the same weights as one that is not. If SIGTERM or SIGUSR1
// asks it to stop, it saves itself first and ends with exit code 75: start it again.
#include <iostream>
#include <optional>
#include <string>

#include <tutti/tutti.hpp>

#include "support/fashion_mnist.hpp"
#include "support/progress.hpp"
#include "support/train_options.hpp"
#include "support/trainer.hpp"

namespace {

int train_fashion_mnist(int argc, char** argv) {
  tutti::PreemptionSignals signals;  // a signal that comes while the job starts is not lost
  tutti::Communicator world = tutti::Communicator::world();
  const auto say = [&](const std::string& text) {
    if (world.rank() == 0) std::cout << text << std::flush;
  };
  // Steps that may fail on one rank alone run inside agree: then all ranks end alike, and one
  // reports.
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
  if (!options.checkpoint.is_on()) signals.pass_on();

  tutti::KVStore store = options.one_process() ? tutti::KVStore::create(options.kvstore)
                                               : tutti::KVStore::create(world);
  store.set_optimizer(apps::make_optimizer(options));
  store.set_gradient_compression(options.compression);
  apps::Trainer trainer(world, store, options, data);
  say(apps::job_line(options, world.size()) + '\n');
  if (const std::string resumed = trainer.resume(); !resumed.empty()) say(resumed + '\n');
  if (trainer.is_done()) {
    say(apps::done_already_line(trainer.accuracy()) + '\n');
    return 0;
  }

  std::optional<apps::EpochResult> result;
  while (!trainer.is_done()) {
    result = trainer.run_epoch();
    if (result) say(apps::epoch_line(*result) + '\n');
    if (trainer.is_stopped()) {
      say(apps::stopped_line(trainer.position(), options) + '\n');
      return tutti::kExitRequeue;
    }
  }
  say(apps::summary_line(*result) + '\n');
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("train-fashion-mnist", [&] { return train_fashion_mnist(argc, argv); });
}
