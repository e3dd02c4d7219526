// SPDX-License-Identifier: Apache-2.0
#include "support/train_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <sstream>
#include <string_view>

#include <tutti/compression.hpp>
#include <tutti/error.hpp>
#include <tutti/gpu.hpp>
#include <tutti/program.hpp>
#include <tutti/settings.hpp>

#include "support/command_line.hpp"
#include "support/fashion_mnist.hpp"
#include "support/mlp.hpp"

namespace po = boost::program_options;

namespace apps {

void add_checkpoint_options(po::options_description& all, CheckpointOptions& options) {
  add_rows(
      all,
      {
          {"checkpoint-dir", po::value(&options.directory),
           "folder to save the run in (default: none); its parent must exist"},
          {"checkpoint-every", po::value(&options.every)->default_value(0),
           "steps from one checkpoint to the next (0: one at the end of each epoch)"},
          {"resume", po::value(&options.resume)->default_value("auto"),
           "auto: go on from the checkpoint if there is one; must: refuse to start without one; "
           "never: start anew"},
      });
}

void check(const CheckpointOptions& options) {
  if (options.every < 0) throw_usage_error("--checkpoint-every: expected at least 0");
  if (options.resume != "auto" && options.resume != "never" && options.resume != "must") {
    throw_usage_error("--resume: expected auto, never or must, found '" + options.resume + "'");
  }
  if (options.is_on()) return;
  if (options.every > 0) throw_usage_error("--checkpoint-every needs --checkpoint-dir");
  if (options.resume == "must") throw_usage_error("--resume must needs --checkpoint-dir");
}

namespace {

constexpr int kMaxWidth = 1 << 16;
constexpr const char* kSgdDefaults = ",learning_rate=0.05,momentum=0.9";

po::options_description describe(TrainOptions& options, std::string& hidden) {
  po::options_description all("Options", 100);
  add_rows(
      all,
      {
          {"data", po::value(&options.data)->default_value("/usr/share/datasets/fashion-mnist"),
           "folder of the four gzipped IDX files"},
          {"epochs", po::value(&options.epochs)->default_value(10),
           "passes over the training images"},
          {"batch-size", po::value(&options.batch_size)->default_value(128),
           "images per step over all ranks; what is left of an epoch is dropped"},
          {"kvstore", po::value(&options.kvstore)->default_value("dist"),
           "dist; or local or device for one process"},
          {"device", po::value(&options.device)->default_value("cpu"),
           "cpu, or gpu: each rank computes on its GPU, where the weights then are"},
          {"optimizer", po::value(&options.optimizer)->default_value("sgd"),
           "name,option=value,... as below; sgd has 0.05 and momentum 0.9 unless told otherwise"},
          {"learning-rate", po::value<std::string>(),
           "of the optimizer; at first, then cosine decay over the epochs unless it has a "
           "schedule"},
          {"momentum", po::value<std::string>(), "of the optimizer, if it has one"},
          {"clip-global-norm", po::value<std::string>(),
           "of the optimizer: gradients are scaled down where the norm over all of them is above "
           "this"},
          {"loss-scale", po::value<std::string>(),
           "of the optimizer: dynamic, or a constant that the loss is multiplied by, and the "
           "gradients "
           "are divided by after their sum"},
          {"overlap", po::bool_switch(&options.overlap),
           "push each layer's gradients while the next ones are computed; the weights are the "
           "same"},
          {"compression", po::value(&options.compression)->default_value("none"),
           "of the gradients: name,option=value,... as below; they are sums over a rank's images"},
          {"hidden", po::value(&hidden)->default_value("256,128"), "widths of the hidden layers"},
          {"seed", po::value(&options.seed)->default_value(1),
           "of the weights and of the image order"},
          {"limit", po::value(&options.limit)->default_value(0),
           "use the first N images of both sets only, for quick tries (0: all)"},
      });
  add_checkpoint_options(all, options.checkpoint);
  add_common_options(all);
  return all;
}

std::vector<int> parse_widths(const std::string& text) {
  std::vector<int> widths;
  std::istringstream parts(text);
  std::string digits;
  while (std::getline(parts, digits, ',')) {
    int width = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), width);
    if (error != std::errc{} || end != digits.data() + digits.size() || width < 1 ||
        width > kMaxWidth) {
      throw_usage_error("--hidden: expected widths from 1 to 65536 as in 256,128, found '" + text +
                        "'");
    }
    widths.push_back(width);
  }
  if (widths.empty()) throw_usage_error("--hidden: expected at least one width");
  return widths;
}

void require(bool holds, const std::string& text) {
  if (!holds) throw_usage_error(text);
}

void check_store(const TrainOptions& options, int ranks) {
  constexpr std::array kTypes{"dist", "dist_sync", "dist_device_sync", "nccl", "local", "device"};
  require(std::ranges::find(kTypes, options.kvstore) != kTypes.end(),
          "--kvstore: expected dist, local or device, found '" + options.kvstore + "'");
  require(!options.one_process() || ranks == 1, "--kvstore " + options.kvstore +
                                                    " is one process alone; this job has " +
                                                    std::to_string(ranks) + " ranks: use dist");
}

void check_device(const TrainOptions& options) {
  require(options.device == "cpu" || options.device == "gpu",
          "--device: expected cpu or gpu, found '" + options.device + "'");
  if (options.device == "cpu") return;
  require(!options.overlap,
          "--overlap is for gradients on the cpu; leave it out with --device gpu");
  require(tutti::num_gpus() > 0, "--device gpu: " + tutti::describe_gpus());
  require(options.kvstore != "local",
          "--kvstore local keeps its keys on the cpu; with --device gpu "
          "use device or dist");
}

void check(const TrainOptions& options, int ranks) {
  require(options.epochs >= 1, "--epochs: expected at least 1");
  require(options.batch_size >= 1, "--batch-size: expected at least 1");
  require(options.batch_size % ranks == 0,
          "--batch-size is the global one: " + std::to_string(options.batch_size) +
              " images are not divisible by " + std::to_string(ranks) + " ranks");
  require(options.seed >= 0, "--seed: expected at least 0");
  require(options.limit >= 0, "--limit: expected at least 0");
  check_store(options, ranks);
  check_device(options);
  check(options.checkpoint);
}

/// Checks options that scale gradients, which need one push of all gradients, uncompressed.
void check_scaling(const TrainOptions& options, const tutti::OptimizerOptions& optimizer) {
  if (!optimizer.clip_global_norm && !optimizer.loss_scale) return;
  const std::string what = "clip_global_norm and loss_scale are for ";
  require(!options.overlap,
          "--optimizer: " + what + "one push of all gradients; leave them out with --overlap");
  require(options.compression == "none",
          "--optimizer: " + what + "exact gradients; leave them out with --compression");
}

/// Adds --learning-rate, --momentum and these to the options of --optimizer.
void complete_optimizer(TrainOptions& options, const po::variables_map& values) {
  for (const char* name : {"learning-rate", "momentum", "clip-global-norm", "loss-scale"}) {
    if (!values.contains(name)) continue;
    std::string option = name;
    std::ranges::replace(option, '-', '_');
    options.optimizer += "," + option + "=" + values[name].as<std::string>();
  }
  tutti::OptimizerOptions made;
  try {
    made = make_optimizer(options)->options();
  } catch (const tutti::Error& error) {
    throw_usage_error(std::string("--optimizer: ") + error.what());
  }
  check_scaling(options, made);
}

void check_compression(TrainOptions& options) {
  try {
    options.compression =
        tutti::compression::to_string(tutti::compression::create(options.compression));
  } catch (const tutti::Error& error) {
    throw_usage_error(std::string("--compression: ") + error.what());
  }
}

}  // namespace

std::vector<int> TrainOptions::widths() const {
  std::vector<int> all{kImagePixels};
  all.insert(all.end(), hidden.begin(), hidden.end());
  all.push_back(kImageClasses);
  return all;
}

TrainOptions parse_train_options(int argc, const char* const* argv, int ranks) {
  TrainOptions options;
  std::string hidden;
  const auto values = parse_command_line(argc, argv, describe(options, hidden));
  options.help = values.contains("help");
  options.version = values.contains("version");
  if (options.help || options.version) return options;
  options.hidden = parse_widths(hidden);
  check(options, ranks);
  complete_optimizer(options, values);
  check_compression(options);
  return options;
}

void check_data(const TrainOptions& options, std::size_t images) {
  require(images >= static_cast<std::size_t>(options.batch_size),
          "--batch-size " + std::to_string(options.batch_size) + " is more than the " +
              std::to_string(images) + " training images");
}

void check_loss(double loss, int epoch) {
  if (std::isfinite(loss)) return;
  throw tutti::Error(tutti::ErrorCode::invalid_argument,
                     "the training diverged: the loss of epoch " + std::to_string(epoch) +
                         " is not a finite number; lower --learning-rate");
}

std::string job_line(const TrainOptions& options, int ranks) {
  std::string network;
  for (const int width : options.widths()) {
    network += (network.empty() ? "" : "-") + std::to_string(width);
  }
  return "network " + network + ", " + std::to_string(ranks) +
         (ranks == 1 ? " rank of " : " ranks of ") + std::to_string(options.batch_size / ranks) +
         " images per step, " + make_optimizer(options)->describe() + ", " +
         (options.compression == "none" ? "" : "gradients by " + options.compression + ", ") +
         options.kvstore + " store, " +
         (options.device == "gpu" ? std::string("on a GPU by cuBLAS")
                                  : std::string(best_kernels().name) + " kernels");
}

std::string train_help() {
  TrainOptions options;
  std::string hidden;
  std::ostringstream text;
  text << "train-fashion-mnist: data-parallel training through the key-value store.\n"
          "Start it alone or with mpirun; every rank trains on its share of each batch.\n\n"
       << describe(options, hidden) << '\n'
       << tutti::optimizer::help() << tutti::compression::help() << "\nEnvironment:\n"
       << tutti::Settings::help();
  return text.str();
}

namespace {

/// The option that makes means of sums of so many values: "rescale_grad=0.5".
std::string mean_of(int count) {
  char rescale[32];
  const auto end = std::to_chars(rescale, rescale + sizeof rescale, 1.0 / count).ptr;
  return "rescale_grad=" + std::string(rescale, end);
}

std::string name_in(const std::string& optimizer) {
  return optimizer.substr(0, optimizer.find(','));
}

}  // namespace

std::shared_ptr<tutti::Optimizer> make_optimizer(const TrainOptions& options) {
  std::string defaults = mean_of(options.batch_size);
  if (name_in(options.optimizer) == "sgd") defaults += kSgdDefaults;
  return tutti::optimizer::create(options.optimizer, defaults);
}

double learning_rate_at(double base, int epoch, int epochs) {
  const double part = static_cast<double>(epoch) / epochs;
  return base * 0.5 * (1.0 + std::cos(std::numbers::pi * part));
}

std::string train_version() {
  return tutti::build_info() + "network kernels: " + best_kernels().name + "\n";
}

}  // namespace apps
