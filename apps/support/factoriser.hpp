// SPDX-License-Identifier: Apache-2.0
// The parts of matrix-factorisation: its command line, its ratings, and one rank's part of the
// work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/kvstore.hpp>

namespace apps {

struct FactorOptions {
  int users = 0;
  int items = 0;
  int factors = 0;
  int ratings = 0;  ///< to train on; a tenth as many to test
  int epochs = 0;
  int batch_size = 0;     ///< ratings per step over all ranks
  std::string optimizer;  ///< text for tutti::optimizer::create; one that updates rows
  std::int64_t seed = 0;
  bool help = false;
  bool version = false;
};

/// Reads the command line. Errors  invalid_argument: any value that a job of `ranks` ranks cannot
/// use.
FactorOptions parse_factor_options(int argc, const char* const* argv, int ranks);

/// A line about the job that begins.
std::string job_line(const FactorOptions& options, int ranks);

/// The text of --help.
std::string factor_help();

// --- made-up ratings that users give to items ----------------------------------------------------

struct Rating {
  std::int32_t user;
  std::int32_t item;
  float value;
};

struct Ratings {
  std::vector<Rating> train;
  std::vector<Rating> test;
};

/// The standard deviation of the noise in ratings, which no factors explain. That of the ratings is
/// about 1.
inline constexpr double kNoise = 0.1;

/// Makes the ratings, the same on every rank: they depend on the options alone.
Ratings make_ratings(const FactorOptions& options);

// --- one rank's part of the factorisation --------------------------------------------------------

struct FactorResult {
  int epoch = 1;  ///< from 1
  int epochs = 1;
  double train_rmse = 0.0;
  double test_rmse = 0.0;
  double ratings_per_second = 0.0;
  double store_seconds = 0.0;  ///< so far, in pull and push, waiting for other ranks included
  double store_share = 0.0;    ///< that part of the training time, 0 to 1
};

/// The line of an epoch: "epoch 3/10  RMSE 0.1821  test RMSE 0.1904  1231245 ratings/s  store 41.0
/// %"
std::string epoch_line(const FactorResult& result);
/// The last line: "test RMSE 0.1104  1231245 ratings/s  store 1.31 s (41.0 %)"
std::string summary_line(const FactorResult& last);

/// One rank's part of the factorisation. Order   all members but the destructor are collective.
class Factoriser {
 public:
  /// Keeps the tables under the store's keys "users" and "items".
  Factoriser(tutti::Communicator world, tutti::KVStore& store, const FactorOptions& options,
             const Ratings& ratings);

  /// Trains on all ratings, then tests. Errors  invalid_argument: the training diverged.
  FactorResult run_epoch(int epoch);

 private:
  /// The factors of a step's users or items, and the gradient of each rating's row.
  struct Side {
    std::vector<std::int64_t> ids;   ///< one per rating
    tutti::RowSparse factors{};      ///< each row once, ascending
    std::vector<float> gradients{};  ///< a row per rating
  };

  /// Trains one step; returns the sum of squared errors.
  double step(std::span<const Rating> ratings);
  [[nodiscard]] double compute(std::span<const Rating> ratings);
  [[nodiscard]] double test() const;

  tutti::Communicator world_;
  tutti::KVStore& store_;
  const FactorOptions& options_;
  const Ratings& ratings_;
  Side users_;
  Side items_;
  std::size_t trained_ = 0;     // ratings, over all ranks
  double seconds_ = 0.0;        // spent on training, without tests
  double store_seconds_ = 0.0;  // the part of them in pull and push
};

}  // namespace apps
