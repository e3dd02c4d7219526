// SPDX-License-Identifier: Apache-2.0
#include "support/factoriser.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <sstream>
#include <utility>

#include <tutti/error.hpp>
#include <tutti/optimizers.hpp>
#include <tutti/settings.hpp>

#include "support/command_line.hpp"
#include "support/progress.hpp"
#include "support/random.hpp"

namespace po = boost::program_options;

namespace apps {

namespace {

po::options_description describe(FactorOptions& options) {
  po::options_description all("Options", 100);
  add_rows(
      all,
      {
          {"users", po::value(&options.users)->default_value(20000), "rows of one table"},
          {"items", po::value(&options.items)->default_value(5000), "rows of the other"},
          {"factors", po::value(&options.factors)->default_value(8), "numbers of a row"},
          {"ratings", po::value(&options.ratings)->default_value(1000000),
           "to make and to train on; a tenth as many to test with"},
          {"epochs", po::value(&options.epochs)->default_value(10), "passes over the ratings"},
          {"batch-size", po::value(&options.batch_size)->default_value(4096),
           "ratings per step over all ranks; what is left of an epoch is dropped"},
          {"optimizer", po::value(&options.optimizer)->default_value("adagrad,learning_rate=0.2"),
           "name,option=value,... of sgd, adam or adagrad, which update single rows"},
          {"seed", po::value(&options.seed)->default_value(1),
           "of the ratings and of the first factors"},
      });
  add_common_options(all);
  return all;
}

void check_optimizer(const FactorOptions& options) {
  try {
    const auto made = tutti::optimizer::create(options.optimizer);
    if (made->updates_rows()) return;
  } catch (const tutti::Error& error) {
    throw_usage_error(std::string("--optimizer: ") + error.what());
  }
  throw_usage_error("--optimizer " + options.optimizer +
                    ": expected one that updates single rows: sgd, adam or adagrad");
}

void check(const FactorOptions& options, int ranks) {
  const auto require = [](bool holds, const std::string& text) {
    if (!holds) throw_usage_error(text);
  };
  for (const auto& [name, value] :
       std::initializer_list<std::pair<std::string, int>>{{"--users", options.users},
                                                          {"--items", options.items},
                                                          {"--factors", options.factors},
                                                          {"--epochs", options.epochs},
                                                          {"--batch-size", options.batch_size}}) {
    require(value >= 1, name + ": expected at least 1");
  }
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

namespace {

/// A uniform random number with mean 0 and this standard deviation.
double uniform(Random& random, double deviation) {
  return (2.0 * random.uniform() - 1.0) * std::sqrt(3.0) * deviation;
}

/// Factors whose products, of `factors` terms, have a standard deviation of 1.
std::vector<float> make_factors(Random& random, int rows, int factors) {
  std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(factors));
  const double deviation = std::pow(factors, -0.25);
  for (float& value : values) value = static_cast<float>(uniform(random, deviation));
  return values;
}

}  // namespace

Ratings make_ratings(const FactorOptions& options) {
  Random random(static_cast<std::uint64_t>(options.seed));
  const std::vector<float> users = make_factors(random, options.users, options.factors);
  const std::vector<float> items = make_factors(random, options.items, options.factors);
  const auto factors = static_cast<std::size_t>(options.factors);
  const auto make = [&](std::size_t count) {
    std::vector<Rating> ratings(count);
    for (Rating& rating : ratings) {
      rating.user = static_cast<int>(random.below(static_cast<std::uint32_t>(options.users)));
      rating.item = static_cast<int>(random.below(static_cast<std::uint32_t>(options.items)));
      const float* user = users.data() + static_cast<std::size_t>(rating.user) * factors;
      const float* item = items.data() + static_cast<std::size_t>(rating.item) * factors;
      double value = uniform(random, kNoise);
      for (std::size_t i = 0; i < factors; ++i) value += static_cast<double>(user[i] * item[i]);
      rating.value = static_cast<float>(value);
    }
    return ratings;
  };
  Ratings ratings;
  ratings.train = make(static_cast<std::size_t>(options.ratings));
  ratings.test = make(static_cast<std::size_t>(options.ratings) / 10 + 1);
  return ratings;
}

namespace {

const std::vector<tutti::Key> kTables = {"users", "items"};

/// The first factors, which only have to differ from each other; those of rank 0 count. They are
/// drawn in another way than the factors that the ratings come from: with another seed, which is
/// not Random's own increment, since that would only shift the sequence by one number.
tutti::Tensor first_factors(int rows, int factors, std::uint64_t seed) {
  constexpr std::uint64_t kOtherwise = 0xd1b54a32d192ed03;
  tutti::Tensor table = tutti::Tensor::empty({rows, factors});
  Random random(seed ^ kOtherwise);
  for (float& value : table.values<float>()) {
    value = static_cast<float>(random.uniform() - 0.5) / static_cast<float>(std::sqrt(factors));
  }
  return table;
}

/// The index of a row of the table among the rows that were pulled.
std::size_t index_of(const tutti::RowSparse& factors, std::int64_t id) {
  const auto ids = factors.ids.values<std::int64_t>();
  return static_cast<std::size_t>(std::ranges::lower_bound(ids, id) - ids.begin());
}

float product(const float* left, const float* right, std::size_t count) {
  float sum = 0.0f;
  for (std::size_t i = 0; i < count; ++i) sum += left[i] * right[i];
  return sum;
}

}  // namespace

std::string epoch_line(const FactorResult& result) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(),
                "epoch %d/%d  RMSE %.4f  test RMSE %.4f  %.0f ratings/s  store %.1f %%",
                result.epoch, result.epochs, result.train_rmse, result.test_rmse,
                result.ratings_per_second, result.store_share * 100.0);
  return text.data();
}

std::string summary_line(const FactorResult& last) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), "test RMSE %.4f  %.0f ratings/s  store %.2f s (%.1f %%)",
                last.test_rmse, last.ratings_per_second, last.store_seconds,
                last.store_share * 100.0);
  return text.data();
}

Factoriser::Factoriser(tutti::Communicator world, tutti::KVStore& store,
                       const FactorOptions& options, const Ratings& ratings)
    : world_(std::move(world)), store_(store), options_(options), ratings_(ratings) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  store_.init_row_sparse(kTables, {first_factors(options.users, options.factors, seed),
                                   first_factors(options.items, options.factors, seed + 1)});
}

/// Trains one epoch. Each rank takes its contiguous part of each batch.
FactorResult Factoriser::run_epoch(int epoch) {
  const auto batch = static_cast<std::size_t>(options_.batch_size);
  const std::size_t share = batch / static_cast<std::size_t>(world_.size());
  const std::size_t steps = ratings_.train.size() / batch;
  const Stopwatch watch;
  double squares = 0.0;
  for (std::size_t i = 0; i < steps; ++i) {
    const std::size_t first = i * batch + share * static_cast<std::size_t>(world_.rank());
    squares += step(std::span(ratings_.train).subspan(first, share));
    trained_ += batch;
  }
  seconds_ += watch.seconds();

  std::array sums{squares, test()};
  world_.allreduce(tutti::view(sums.data(), {2}));
  world_.agree([&] {
    if (std::isfinite(sums[0])) return;
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       "the training diverged: the error of epoch " + std::to_string(epoch) +
                           " is not a finite number; lower the learning rate");
  });
  return {.epoch = epoch,
          .epochs = options_.epochs,
          .train_rmse = std::sqrt(sums[0] / static_cast<double>(steps * batch)),
          .test_rmse = std::sqrt(sums[1] / static_cast<double>(ratings_.test.size())),
          .ratings_per_second = static_cast<double>(trained_) / seconds_,
          .store_seconds = store_seconds_,
          .store_share = store_seconds_ / seconds_};
}

/// Trains one step. Rows that several ratings name are pulled once, and pushed once for each
/// rating: the store sums them.
double Factoriser::step(std::span<const Rating> ratings) {
  users_.ids.clear();
  items_.ids.clear();
  for (const Rating& rating : ratings) {
    users_.ids.push_back(rating.user);
    items_.ids.push_back(rating.item);
  }
  const auto count = static_cast<std::int64_t>(ratings.size());
  const auto users = tutti::view(users_.ids.data(), {count});
  const auto items = tutti::view(items_.ids.data(), {count});

  const Stopwatch pull_watch;
  store_.row_sparse_pull(kTables, {users_.factors, items_.factors}, {users, items});
  store_seconds_ += pull_watch.seconds();
  const double squares = compute(ratings);
  const tutti::Shape shape = {count, options_.factors};
  const Stopwatch push_watch;
  store_.push(kTables, {row_sparse(users, tutti::view(users_.gradients.data(), shape)),
                        row_sparse(items, tutti::view(items_.gradients.data(), shape))});
  store_seconds_ += push_watch.seconds();
  return squares;
}

/// Computes the gradients of half the squared errors.
double Factoriser::compute(std::span<const Rating> ratings) {
  const auto factors = static_cast<std::size_t>(options_.factors);
  users_.gradients.resize(ratings.size() * factors);
  items_.gradients.resize(ratings.size() * factors);
  const float* users = users_.factors.rows.values<float>().data();
  const float* items = items_.factors.rows.values<float>().data();
  double squares = 0.0;
  for (std::size_t i = 0; i < ratings.size(); ++i) {
    const float* user = users + index_of(users_.factors, ratings[i].user) * factors;
    const float* item = items + index_of(items_.factors, ratings[i].item) * factors;
    const float error = product(user, item, factors) - ratings[i].value;
    squares += static_cast<double>(error * error);
    for (std::size_t j = 0; j < factors; ++j) {
      users_.gradients[i * factors + j] = error * item[j];
      items_.gradients[i * factors + j] = error * user[j];
    }
  }
  return squares;
}

/// The sum of squared errors of this rank's share of the test ratings, computed from the replicas
/// themselves.
double Factoriser::test() const {
  const auto factors = static_cast<std::size_t>(options_.factors);
  const auto users = store_.view("users");
  const auto items = store_.view("items");
  double squares = 0.0;
  const auto ranks = static_cast<std::size_t>(world_.size());
  for (auto i = static_cast<std::size_t>(world_.rank()); i < ratings_.test.size(); i += ranks) {
    const Rating& rating = ratings_.test[i];
    const float* user =
        users.values<float>().data() + static_cast<std::size_t>(rating.user) * factors;
    const float* item =
        items.values<float>().data() + static_cast<std::size_t>(rating.item) * factors;
    const auto error = static_cast<double>(product(user, item, factors) - rating.value);
    squares += error * error;
  }
  return squares;
}

}  // namespace apps
