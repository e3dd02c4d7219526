// SPDX-License-Identifier: Apache-2.0
#include "support/factor_options.hpp"

#include <sstream>

#include <tutti/error.hpp>
#include <tutti/optimizers.hpp>
#include <tutti/settings.hpp>

#include "support/command_line.hpp"

namespace po = boost::program_options;

namespace apps {
namespace {

po::options_description describe(FactorOptions& options) {
  po::options_description all("Options", 100);
  all.add_options()("users", po::value(&options.users)->default_value(20000), "rows of one table")(
      "items", po::value(&options.items)->default_value(5000), "rows of the other")(
      "factors", po::value(&options.factors)->default_value(8), "numbers of a row")(
      "ratings", po::value(&options.ratings)->default_value(1000000),
      "to make and to train on; a tenth as many to test with")(
      "epochs", po::value(&options.epochs)->default_value(10), "passes over the ratings")(
      "batch-size", po::value(&options.batch_size)->default_value(4096),
      "ratings per step over all ranks; what is left of an epoch is dropped")(
      "optimizer", po::value(&options.optimizer)->default_value("adagrad,learning_rate=0.2"),
      "name,option=value,... of sgd, adam or adagrad, which update single rows")(
      "seed", po::value(&options.seed)->default_value(1),
      "of the ratings and of the first factors");
  add_common_options(all);
  return all;
}

void check_optimizer(const FactorOptions& options) {
  try {
    const auto made = tutti::optimizer::create(options.optimizer);
    if (made->updates_rows()) return;
  } catch (const tutti::Error& error) {
    throw_bad_option(std::string("--optimizer: ") + error.what());
  }
  throw_bad_option("--optimizer " + options.optimizer +
                   ": expected one that updates single rows: sgd, adam or adagrad");
}

void check(const FactorOptions& options, int ranks) {
  const auto require = [](bool holds, const std::string& text) {
    if (!holds) throw_bad_option(text);
  };
  require(options.users >= 1, "--users: expected at least 1");
  require(options.items >= 1, "--items: expected at least 1");
  require(options.factors >= 1, "--factors: expected at least 1");
  require(options.epochs >= 1, "--epochs: expected at least 1");
  require(options.batch_size >= 1, "--batch-size: expected at least 1");
  require(options.seed >= 0, "--seed: expected at least 0");
  const std::string batch = std::to_string(options.batch_size);
  require(options.batch_size % ranks == 0, "--batch-size is the global one: " + batch +
                                               " ratings are not divisible by " +
                                               std::to_string(ranks) + " ranks");
  require(options.ratings >= options.batch_size, "--batch-size " + batch + " is more than the " +
                                                     std::to_string(options.ratings) + " ratings");
  check_optimizer(options);
}

}  // namespace

FactorOptions parse_factor_options(int argc, const char* const* argv, int ranks) {
  FactorOptions options;
  const auto values = parse_command_line(argc, argv, describe(options));
  options.help = values.contains("help");
  options.version = values.contains("version");
  if (!options.help && !options.version) check(options, ranks);
  return options;
}

std::string job_line(const FactorOptions& options, int ranks) {
  return std::to_string(options.factors) + " factors of " + std::to_string(options.users) +
         " users and " + std::to_string(options.items) + " items, " + std::to_string(ranks) +
         (ranks == 1 ? " rank of " : " ranks of ") + std::to_string(options.batch_size / ranks) +
         " ratings per step, " + tutti::optimizer::create(options.optimizer)->describe();
}

std::string factor_help() {
  FactorOptions options;
  std::ostringstream text;
  text << "matrix-factorisation: learns factors of users and items through row-sparse keys.\n"
          "Start it alone or with mpirun; every rank trains on its share of each batch.\n\n"
       << describe(options) << "\nEnvironment:\n"
       << tutti::Settings::help();
  return text.str();
}

}  // namespace apps
