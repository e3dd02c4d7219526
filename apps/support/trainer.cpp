// SPDX-License-Identifier: Apache-2.0
#include "support/trainer.hpp"

#include <array>
#include <span>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>
#include <tutti/snapshot.hpp>

#include "support/progress.hpp"
#include "support/random.hpp"

namespace apps {

Trainer::Trainer(tutti::Communicator world, tutti::KVStore& store, const TrainOptions& options,
                 const FashionMnist& data)
    : world_(std::move(world)),
      store_(store),
      options_(options),
      data_(data),
      share_(static_cast<std::size_t>(options.batch_size / world_.size())),
      model_(store, options.widths(), share_, options.seed,
             options.device == "gpu" ? tutti::gpu_of(world_) : tutti::cpu()),
      bar_(world_.rank() == 0 && stdout_is_watched()),
      order_(data.train.count()) {
  base_rate_ = store.optimizer().learning_rate();
}

std::string Trainer::resume() {
  const CheckpointOptions& checkpoint = options_.checkpoint;
  if (!checkpoint.is_on()) return {};
  tutti::LoadResult loaded;
  if (checkpoint.resume != "never") {
    // The run's own record is compared below, by the names of its options.
    loaded = store_.load(checkpoint.directory, {.other_options = true, .may_be_absent = true});
  }
  if (!loaded) {
    world_.agree([&] {
      if (checkpoint.resume != "must") return;
      throw tutti::Error(
          tutti::ErrorCode::invalid_argument,
          "--resume must: there is no checkpoint in " + checkpoint.directory.string());
    });
    save();
    return {};
  }
  world_.agree([&] { position_ = position_in(loaded.metadata, options_); });
  if (world_.rank() != 0) position_.loss = 0.0;  // rank 0 has the part of all ranks
  resumed_loss_ = position_.loss;
  return resumed_line(loaded, options_);
}

std::optional<EpochResult> Trainer::run_epoch() {
  if (!store_.optimizer().options().schedule) {
    store_.optimizer().set_learning_rate(
        learning_rate_at(base_rate_, position_.epoch, options_.epochs));
  }
  shuffle_epoch(static_cast<std::uint64_t>(options_.seed), position_.epoch, order_);
  train();
  if (position_.step < steps_per_epoch()) {
    bar_.clear();
    save();
    return std::nullopt;
  }

  // Besides the pushes and the checkpoints, the only message of an epoch.
  std::array sums{position_.loss, count_correct()};
  world_.allreduce(tutti::view(sums.data(), {2}));
  bar_.clear();
  const int epoch = position_.epoch + 1;
  world_.agree([&] { check_loss(sums[0], epoch); });
  position_ = {.epoch = epoch, .step = 0, .loss = 0.0};
  resumed_loss_ = 0.0;
  if (is_due() || is_done() || is_stopped()) save();
  return EpochResult{.epoch = epoch,
                     .epochs = options_.epochs,
                     .loss = sums[0] / static_cast<double>(steps_per_epoch() * batch()),
                     .accuracy = sums[1] / static_cast<double>(data_.test.count()),
                     .images_per_second = static_cast<double>(images_) / seconds_,
                     .store_seconds = store_seconds_,
                     .store_share = store_seconds_ / seconds_};
}

/// Trains for the rest of the epoch under way, or until the job is asked to stop.
void Trainer::train() {
  Stopwatch watch;
  while (position_.step < steps_per_epoch()) {
    const std::size_t first =
        position_.step * batch() + share_ * static_cast<std::size_t>(world_.rank());
    const Batch share{data_.train, std::span(order_).subspan(first, share_)};
    position_.loss += options_.overlap ? model_.compute_and_push(share) : model_.compute(share);
    ++position_.step;
    update();
    images_ += batch();
    if (bar_.due()) show(seconds_ + watch.seconds());
    if (position_.step == steps_per_epoch()) break;
    if (store_.stop_requested()) break;
    if (options_.checkpoint.is_on()) {
      tutti::snapshot_when_due(store_, options_.checkpoint.directory, [&] { return metadata(); });
    }
    if (!is_due()) continue;
    seconds_ += watch.seconds();
    save();
    watch = Stopwatch();
  }
  seconds_ += watch.seconds();
}

/// Updates the weights by the gradients of the step that was just counted.
void Trainer::update() {
  const Stopwatch watch;
  options_.overlap ? model_.await_pushes() : model_.push();
  if (model_.device().kind == tutti::DeviceKind::gpu) {
    tutti::synchronize(model_.device());  // work in the stream counts as its time, too
  }
  store_seconds_ += watch.seconds();
}

bool Trainer::is_due() const {
  if (!options_.checkpoint.is_on()) return false;
  const auto every = static_cast<std::size_t>(options_.checkpoint.every);
  if (every == 0) return position_.step == 0;
  return total_steps() % every == 0;
}

/// Returns the position from which a run with the store's present values goes on. Collective.
tutti::Metadata Trainer::metadata() {
  Position everywhere = position_;
  world_.allreduce(tutti::view(&everywhere.loss, {1}));
  world_.agree([&] { check_loss(everywhere.loss, everywhere.epoch + 1); });
  return to_metadata(everywhere, options_, world_.size());
}

void Trainer::save() {
  if (!options_.checkpoint.is_on()) return;
  store_.save(options_.checkpoint.directory, metadata());
}

void Trainer::show(double seconds) {
  const std::size_t done = position_.step * batch();
  const double own_loss = position_.loss - resumed_loss_;  // about equally large on each rank
  bar_.show({.epoch = position_.epoch + 1,
             .epochs = options_.epochs,
             .images_done = done,
             .images_total = steps_per_epoch() * batch(),
             .images_per_second = static_cast<double>(images_) / seconds,
             .loss = (resumed_loss_ + own_loss * world_.size()) / static_cast<double>(done)});
}

/// The number of images in this rank's share of the test set that the network gets right.
double Trainer::count_correct() {
  const auto rank = static_cast<std::size_t>(world_.rank());
  const auto ranks = static_cast<std::size_t>(world_.size());
  const std::size_t count = data_.test.count();
  return model_.count_correct(data_.test, count * rank / ranks, count * (rank + 1) / ranks);
}

double Trainer::accuracy() {
  double correct = count_correct();
  world_.allreduce(tutti::view(&correct, {1}));
  return correct / static_cast<double>(data_.test.count());
}

}  // namespace apps
