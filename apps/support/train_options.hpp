// SPDX-License-Identifier: Apache-2.0
// The command line of train-fashion-mnist.
#pragma once

#include <boost/program_options.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <tutti/optimizers.hpp>

namespace apps {

/// Checkpoints of a training run: their folder, how often it saves itself, and whether it continues
/// from there.
struct CheckpointOptions {
  std::filesystem::path directory;  ///< empty: the run saves nothing
  int every = 0;                    ///< steps between saves; 0: at the end of each epoch
  std::string resume;               ///< auto, never or must

  [[nodiscard]] bool is_on() const { return !directory.empty(); }
};

void add_checkpoint_options(boost::program_options::options_description& all,
                            CheckpointOptions& options);

/// Errors  invalid_argument: values that mean nothing, or options of checkpoints without a
///         directory.
void check(const CheckpointOptions& options);

struct TrainOptions {
  std::filesystem::path data;
  int epochs = 0;
  int batch_size = 0;  ///< images per step over all ranks
  std::string kvstore;
  std::string device;       ///< "cpu" or "gpu": the place of the network and its weights
  std::string optimizer;    ///< text for tutti::optimizer::create
  std::string compression;  ///< text for tutti::compression::create
  std::int64_t seed = 0;
  std::vector<int> hidden;  ///< widths of the hidden layers
  int limit = 0;            ///< 0: all images
  bool overlap = false;     ///< layers are pushed while the next ones are computed
  CheckpointOptions checkpoint;
  bool help = false;
  bool version = false;

  [[nodiscard]] std::vector<int> widths() const;  ///< all layers: {784, 256, 128, 10}
  [[nodiscard]] bool one_process() const { return kvstore == "local" || kvstore == "device"; }
};

/// Reads the command line. Errors  invalid_argument: any value that a job of `ranks` ranks cannot
/// use.
TrainOptions parse_train_options(int argc, const char* const* argv, int ranks);

/// Errors  invalid_argument: the training set has fewer images than one batch.
void check_data(const TrainOptions& options, std::size_t images);
/// Errors  invalid_argument: the training diverged.
void check_loss(double loss, int epoch);

/// A line about the job that begins.
std::string job_line(const TrainOptions& options, int ranks);

/// The texts of --help and --version.
std::string train_help();
std::string train_version();

/// The store's optimizer, for gradients that are sums over the global batch.
std::shared_ptr<tutti::Optimizer> make_optimizer(const TrainOptions& options);

/// Cosine decay of a learning rate to zero over the job, in one step per epoch.
/// Source  Loshchilov and Hutter, ICLR 2017, without restarts.
double learning_rate_at(double base, int epoch, int epochs);

}  // namespace apps
