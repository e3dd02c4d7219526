// SPDX-License-Identifier: Apache-2.0
// Matrix factorisation through row-sparse keys: from the large tables of users' and items' factors,
// every step pulls only the rows that its ratings name, and pushes gradients of these rows.
//
//   rating(user, item) = users[user] . items[item]        learned by gradient descent from ratings
//
// The ratings are made here, from factors that are then forgotten, with noise of a known size: the
// error on ratings that were not trained on should come down to nearly that.
#include <iostream>
#include <string>

#include <tutti/tutti.hpp>

#include "support/factoriser.hpp"

namespace {

int matrix_factorisation(int argc, char** argv) {
  tutti::Communicator world = tutti::Communicator::world();
  const auto say = [&](const std::string& text) {
    if (world.rank() == 0) std::cout << text << std::flush;
  };
  // Steps that may fail on one rank alone run inside agree: then all ranks end alike, and one
  // reports.
  apps::FactorOptions options;
  world.agree([&] { options = apps::parse_factor_options(argc, argv, world.size()); });
  if (options.help || options.version) {
    say(options.help ? apps::factor_help() : tutti::build_info());
    return 0;
  }
  apps::Ratings ratings;
  world.agree([&] { ratings = apps::make_ratings(options); });

  tutti::KVStore store = tutti::KVStore::create(world);
  store.set_optimizer(tutti::optimizer::create(options.optimizer));
  apps::Factoriser factoriser(world, store, options, ratings);
  say(apps::job_line(options, world.size()) + '\n');
  apps::FactorResult result;
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    result = factoriser.run_epoch(epoch);
    say(apps::epoch_line(result) + '\n');
  }
  say(apps::summary_line(result) + '\n');
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("matrix-factorisation",
                            [&] { return matrix_factorisation(argc, argv); });
}
