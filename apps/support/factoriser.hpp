// SPDX-License-Identifier: Apache-2.0
// One rank's part of a matrix factorisation.
#pragma once

#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/kvstore.hpp>

#include "support/progress.hpp"
#include "support/ratings.hpp"

namespace apps {

struct FactorResult {
  int epoch = 1;  ///< from 1
  int epochs = 1;
  double train_rmse = 0.0;
  double test_rmse = 0.0;
  double ratings_per_second = 0.0;
  double store_seconds = 0.0;  ///< so far, waiting for other ranks included
  double store_share = 0.0;    ///< of the training time, 0 to 1
};

/// "epoch 3/10  RMSE 0.1821  test RMSE 0.1904  1231245 ratings/s  store 41.0 %"
std::string epoch_line(const FactorResult& result);
/// "test RMSE 0.1104  1231245 ratings/s  store 1.31 s (41.0 %)"
std::string summary_line(const FactorResult& last);

/// Order   all members but the destructor are collective.
class Factoriser {
 public:
  /// The tables are the store's keys "users" and "items".
  Factoriser(tutti::Communicator world, tutti::KVStore& store, const FactorOptions& options,
             const Ratings& ratings);

  /// Trains on all ratings, then tests. Errors  invalid_argument: the training diverged.
  FactorResult run_epoch(int epoch);

 private:
  /// The factors of a step's users or items, and the gradient of each rating's row.
  struct Side {
    std::vector<std::int64_t> ids;   ///< of each rating
    tutti::RowSparse factors{};      ///< each row once, ascending
    std::vector<float> gradients{};  ///< of each rating
  };

  /// Returns the sum of squared errors.
  double step(std::span<const Rating> ratings);
  [[nodiscard]] double compute(std::span<const Rating> ratings);
  [[nodiscard]] double test() const;
  void show(int epoch, std::size_t done, double squares, double seconds);

  tutti::Communicator world_;
  tutti::KVStore& store_;
  const FactorOptions& options_;
  const Ratings& ratings_;
  ProgressBar bar_;
  Side users_;
  Side items_;
  std::size_t trained_ = 0;     // ratings, over all ranks
  double seconds_ = 0.0;        // of training, without tests
  double store_seconds_ = 0.0;  // the part of them in pull and push
};

}  // namespace apps
