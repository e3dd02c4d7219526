// SPDX-License-Identifier: Apache-2.0
// Matrix factorisation through row-sparse keys: of the large tables of users' and items' factors
// every step pulls, and pushes gradients of, only the rows that its ratings name.
//
//   rating(user, item) = users[user] . items[item]        learned by gradient descent from ratings
//
// The ratings are made here, from factors that are then forgotten, with noise of a known size: the
// error on ratings that were not trained on should come down to nearly that.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/tutti.hpp>

#include "support/command_line.hpp"
#include "support/random.hpp"

namespace {

namespace po = boost::program_options;

using apps::Random;

// --- the command line ----------------------------------------------------------------------------

struct Options {
  int users = 20'000;
  int items = 5'000;
  int factors = 8;
  int ratings = 1'000'000;
  int epochs = 10;
  int batch_size = 4'096;
  std::string optimizer = "adagrad,learning_rate=0.2";
  std::int64_t seed = 1;
  bool help = false;
  bool version = false;
};

po::options_description describe(Options& options) {
  const auto number = [](auto& value) { return po::value(&value)->default_value(value); };
  po::options_description all("Options", 100);
  apps::add_rows(all, {{"users", number(options.users), "rows of one table"},
                       {"items", number(options.items), "rows of the other"},
                       {"factors", number(options.factors), "numbers of a row"},
                       {"ratings", number(options.ratings),
                        "to make and to train on; a tenth as many to test with"},
                       {"epochs", number(options.epochs), "passes over the ratings"},
                       {"batch-size", number(options.batch_size),
                        "ratings per step over all ranks; what is left of an epoch is dropped"},
                       {"optimizer", number(options.optimizer),
                        "name,option=value,... of sgd, adam or adagrad, which update single rows"},
                       {"seed", number(options.seed), "of the ratings and of the first factors"}});
  apps::add_common_options(all);
  return all;
}

void check_optimizer(const std::string& text) {
  try {
    if (tutti::optimizer::create(text)->updates_rows()) return;
  } catch (const tutti::Error& error) {
    apps::throw_usage_error(std::string("--optimizer: ") + error.what());
  }
  apps::throw_usage_error("--optimizer " + text +
                          ": expected one that updates single rows: sgd, adam or adagrad");
}

void check(const Options& options, int ranks) {
  const std::string batch = std::to_string(options.batch_size);
  for (const auto& [name, value] : {std::pair("--users", options.users),
                                    {"--items", options.items},
                                    {"--factors", options.factors},
                                    {"--epochs", options.epochs},
                                    {"--batch-size", options.batch_size}}) {
    if (value < 1) apps::throw_usage_error(std::string(name) + ": expected at least 1");
  }
  if (options.seed < 0) apps::throw_usage_error("--seed: expected at least 0");
  if (options.batch_size % ranks != 0) {
    apps::throw_usage_error("--batch-size is the global one: " + batch +
                            " ratings are not divisible by " + std::to_string(ranks) + " ranks");
  }
  if (options.ratings < options.batch_size) {
    apps::throw_usage_error("--batch-size " + batch + " is more than the " +
                            std::to_string(options.ratings) + " ratings");
  }
  check_optimizer(options.optimizer);
}

Options parse(int argc, char** argv, int ranks) {
  Options options;
  const auto values = apps::parse_command_line(argc, argv, describe(options));
  options.help = values.contains("help");
  options.version = values.contains("version");
  if (!options.help && !options.version) check(options, ranks);
  return options;
}

// --- ratings that users give to items, made up ---------------------------------------------------

struct Rating {
  std::int32_t user;
  std::int32_t item;
  float value;
};

struct Ratings {
  std::vector<Rating> train;
  std::vector<Rating> test;
};

float product(const float* left, const float* right, std::size_t count) {
  float sum = 0.0f;
  for (std::size_t i = 0; i < count; ++i) sum += left[i] * right[i];
  return sum;
}

/// Uniform, with mean 0 and this standard deviation.
double uniform(Random& random, double deviation) {
  return (2.0 * random.uniform() - 1.0) * std::sqrt(3.0) * deviation;
}

/// Factors whose products of `factors` terms have a standard deviation of 1.
std::vector<float> make_factors(Random& random, int rows, int factors) {
  std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(factors));
  const double deviation = std::pow(factors, -0.25);
  for (float& value : values) value = static_cast<float>(uniform(random, deviation));
  return values;
}

/// Makes the ratings from the options alone, so that all ranks have the same.
Ratings make_ratings(const Options& options) {
  constexpr double kNoise = 0.1;  // that no factors explain
  Random random(static_cast<std::uint64_t>(options.seed));
  const std::vector<float> users = make_factors(random, options.users, options.factors);
  const std::vector<float> items = make_factors(random, options.items, options.factors);
  const auto factors = static_cast<std::size_t>(options.factors);
  const auto below = [&](int count) {
    return static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(count)));
  };
  const auto make = [&](std::size_t count) {
    std::vector<Rating> ratings(count);
    for (Rating& rating : ratings) {
      rating.user = below(options.users);
      rating.item = below(options.items);
      const double noise = uniform(random, kNoise);
      const float explained =
          product(users.data() + static_cast<std::size_t>(rating.user) * factors,
                  items.data() + static_cast<std::size_t>(rating.item) * factors, factors);
      rating.value = explained + static_cast<float>(noise);
    }
    return ratings;
  };
  Ratings ratings;
  ratings.train = make(static_cast<std::size_t>(options.ratings));
  ratings.test = make(static_cast<std::size_t>(options.ratings) / 10 + 1);
  return ratings;
}

// --- one rank's part of the factorisation --------------------------------------------------------

const std::vector<tutti::Key> kTables = {"users", "items"};

/// First factors, which only have to differ from each other; rank 0's count. They are drawn
/// otherwise than the factors that the ratings come from: by another seed, and not by Random's own
/// increment, which would only draw once before.
tutti::Tensor first_factors(int rows, int factors, std::uint64_t seed) {
  constexpr std::uint64_t kOtherwise = 0xd1b54a32d192ed03;
  tutti::Tensor table = tutti::Tensor::empty({rows, factors});
  Random random(seed ^ kOtherwise);
  for (float& value : table.values<float>()) {
    value = static_cast<float>(random.uniform() - 0.5) / static_cast<float>(std::sqrt(factors));
  }
  return table;
}

/// The users or the items of a step.
struct Side {
  std::vector<std::int64_t> ids;   ///< one per rating
  tutti::RowSparse factors{};      ///< each row once, ascending
  std::vector<float> gradients{};  ///< a row per rating

  [[nodiscard]] const float* factors_of(std::int64_t id) const {
    const auto rows = factors.ids.values<std::int64_t>();
    const auto index = std::ranges::lower_bound(rows, id) - rows.begin();
    return factors.rows.values<float>().data() + index * factors.rows.shape().dimensions()[1];
  }
};

/// The gradients of half the squared errors, whose sum it returns.
double compute(std::span<const Rating> ratings, std::size_t factors, Side& users, Side& items) {
  users.gradients.resize(ratings.size() * factors);
  items.gradients.resize(ratings.size() * factors);
  double squares = 0.0;
  for (std::size_t i = 0; i < ratings.size(); ++i) {
    const float* user = users.factors_of(ratings[i].user);
    const float* item = items.factors_of(ratings[i].item);
    const float error = product(user, item, factors) - ratings[i].value;
    squares += static_cast<double>(error * error);
    for (std::size_t j = 0; j < factors; ++j) {
      users.gradients[i * factors + j] = error * item[j];
      items.gradients[i * factors + j] = error * user[j];
    }
  }
  return squares;
}

/// The sum of squared errors. Rows that several ratings name are pulled once, and pushed as often:
/// the store sums them.
double train(tutti::KVStore& store, std::span<const Rating> ratings, int factors) {
  Side users;
  Side items;
  for (const Rating& rating : ratings) {
    users.ids.push_back(rating.user);
    items.ids.push_back(rating.item);
  }
  const auto count = static_cast<std::int64_t>(ratings.size());
  const auto user_ids = tutti::view(users.ids.data(), {count});
  const auto item_ids = tutti::view(items.ids.data(), {count});
  store.row_sparse_pull(kTables, {users.factors, items.factors}, {user_ids, item_ids});
  const double squares = compute(ratings, static_cast<std::size_t>(factors), users, items);
  const tutti::Shape shape = {count, factors};
  store.push(kTables, {row_sparse(user_ids, tutti::view(users.gradients.data(), shape)),
                       row_sparse(item_ids, tutti::view(items.gradients.data(), shape))});
  return squares;
}

/// The squared errors of this rank's share of the ratings, straight from the replicas.
double test(const tutti::KVStore& store, const std::vector<Rating>& ratings, std::size_t factors) {
  const float* users = store.view("users").values<float>().data();
  const float* items = store.view("items").values<float>().data();
  double squares = 0.0;
  const auto ranks = static_cast<std::size_t>(store.num_workers());
  for (auto i = static_cast<std::size_t>(store.rank()); i < ratings.size(); i += ranks) {
    const auto error = static_cast<double>(
        product(users + static_cast<std::size_t>(ratings[i].user) * factors,
                items + static_cast<std::size_t>(ratings[i].item) * factors, factors) -
        ratings[i].value);
    squares += error * error;
  }
  return squares;
}

/// Trains on all ratings, of each batch on this rank's contiguous part, then tests: "epoch 3/10
/// RMSE 0.1821  test RMSE 0.1904".
std::string run_epoch(int epoch, tutti::Communicator& world, tutti::KVStore& store,
                      const Options& options, const Ratings& ratings) {
  const auto batch = static_cast<std::size_t>(options.batch_size);
  const std::size_t share = batch / static_cast<std::size_t>(world.size());
  const std::size_t steps = ratings.train.size() / batch;
  std::array sums{0.0, 0.0};
  for (std::size_t i = 0; i < steps; ++i) {
    const std::size_t first = i * batch + share * static_cast<std::size_t>(world.rank());
    sums[0] += train(store, std::span(ratings.train).subspan(first, share), options.factors);
  }
  sums[1] = test(store, ratings.test, static_cast<std::size_t>(options.factors));
  world.allreduce(tutti::view(sums.data(), {2}));
  world.agree([&] {
    if (std::isfinite(sums[0])) return;
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       "the training diverged: the error of epoch " + std::to_string(epoch) +
                           " is not a finite number; lower the learning rate");
  });
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "epoch %d/%d  RMSE %.4f  test RMSE %.4f\n", epoch,
                options.epochs, std::sqrt(sums[0] / static_cast<double>(steps * batch)),
                std::sqrt(sums[1] / static_cast<double>(ratings.test.size())));
  return text.data();
}

int matrix_factorisation(int argc, char** argv) {
  tutti::Communicator world = tutti::Communicator::world();
  const bool speaks = world.rank() == 0;
  // What may fail on one rank alone runs inside agree: then all ranks end alike, and one reports.
  Options options;
  world.agree([&] { options = parse(argc, argv, world.size()); });
  if (options.version && speaks) std::cout << tutti::build_info();
  if (options.help && speaks) {
    Options defaults;
    std::cout << "matrix-factorisation: learns factors of users and items through row-sparse "
                 "keys.\nStart it alone or with mpirun; every rank trains on its share of each "
                 "batch.\n\n"
              << describe(defaults) << "\nEnvironment:\n"
              << tutti::Settings::help();
  }
  if (options.help || options.version) return 0;
  Ratings ratings;
  world.agree([&] { ratings = make_ratings(options); });

  tutti::KVStore store = tutti::KVStore::create(world);
  store.set_optimizer(tutti::optimizer::create(options.optimizer));
  const auto seed = static_cast<std::uint64_t>(options.seed);
  store.init_row_sparse(kTables, {first_factors(options.users, options.factors, seed),
                                  first_factors(options.items, options.factors, seed + 1)});
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const std::string line = run_epoch(epoch, world, store, options, ratings);
    if (speaks) std::cout << line << std::flush;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("matrix-factorisation",
                            [&] { return matrix_factorisation(argc, argv); });
}
