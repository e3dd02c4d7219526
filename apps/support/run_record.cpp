// SPDX-License-Identifier: Apache-2.0
#include "support/run_record.hpp"

#include <charconv>
#include <iterator>

#include <tutti/error.hpp>

namespace apps {
namespace {

/// The shortest text that reads back as the same number.
std::string exact(double number) {
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), number).ptr};
}

/// The options on which the weights depend, by the names of the command line.
tutti::Metadata identity_of(const TrainOptions& options) {
  std::string hidden;
  for (const int width : options.hidden) {
    hidden += (hidden.empty() ? "" : ",") + std::to_string(width);
  }
  return {{"batch-size", std::to_string(options.batch_size)},
          {"compression", options.compression},
          {"epochs", std::to_string(options.epochs)},  // the learning rate decays over them
          {"hidden", hidden},
          {"limit", std::to_string(options.limit)},
          {"optimizer", options.optimizer},
          {"seed", std::to_string(options.seed)}};
}

[[noreturn]] void throw_mismatch(const TrainOptions& options, const std::string& why) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument,
                     "the checkpoint in " + options.checkpoint.directory.string() + " is " + why +
                         "; give the run's own options to go on with it, or start another with "
                         "another --checkpoint-dir or with --resume never");
}

template <class Number>
Number number_in(const tutti::Metadata& metadata, const char* name, const TrainOptions& options) {
  Number number{};
  const auto found = metadata.find(name);
  if (found == metadata.end()) {
    throw_mismatch(options, std::string("not of this program: it has no '") + name + "'");
  }
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw_mismatch(options, std::string("not of this program: '") + name + "' is '" + text + "'");
  }
  return number;
}

}  // namespace

tutti::Metadata to_metadata(const Position& position, const TrainOptions& options, int ranks) {
  tutti::Metadata metadata = identity_of(options);
  metadata["epoch"] = std::to_string(position.epoch);
  metadata["step"] = std::to_string(position.step);
  metadata["loss"] = exact(position.loss);
  metadata["ranks"] = std::to_string(ranks);  // for people: any number of ranks can continue
  return metadata;
}

Position position_in(const tutti::Metadata& metadata, const TrainOptions& options) {
  for (const auto& [name, value] : identity_of(options)) {
    const auto found = metadata.find(name);
    if (found == metadata.end()) {
      throw_mismatch(options, "not of this program: it has no '" + name + "'");
    }
    if (found->second == value) continue;
    throw_mismatch(options, "of a run with --" + name + " " + found->second + ", not " + value);
  }
  // Development versions had outer steps, and said so in every checkpoint.
  const auto outer = metadata.find("outer-every");
  if (outer != metadata.end() && outer->second != "none") {
    throw_mismatch(options, "of a run with --outer-every, which apps/python/diloco.py has now");
  }
  return {number_in<int>(metadata, "epoch", options),
          number_in<std::size_t>(metadata, "step", options),
          number_in<double>(metadata, "loss", options)};
}

std::string stopped_line(const Position& position, const TrainOptions& options) {
  return "stopped by a signal: epoch " + std::to_string(position.epoch + 1) + ", step " +
         std::to_string(position.step) + " is saved in " + options.checkpoint.directory.string() +
         "; start it again to go on";
}

std::string resumed_line(const tutti::LoadResult& loaded, const TrainOptions& options) {
  const std::string& ranks = loaded.metadata.at("ranks");
  const Position position = position_in(loaded.metadata, options);
  const std::string number = std::to_string(loaded.generation);
  const std::string what = loaded.from_memory ? "snapshot " + number + " in the nodes' memory for "
                                              : "generation " + number + " in ";
  return "going on from " + what + options.checkpoint.directory.string() + ", saved by " + ranks +
         (ranks == "1" ? " rank: " : " ranks: ") +
         (position.epoch == options.epochs ? "all epochs are done"
                                           : "epoch " + std::to_string(position.epoch + 1) +
                                                 ", step " + std::to_string(position.step));
}

}  // namespace apps
