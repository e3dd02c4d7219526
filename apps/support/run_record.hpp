// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of a training run holds besides the weights: how far the run is, and which run
// it is. Only the same run can be continued: each option that its weights depend on must be the
// same.
#pragma once

#include <cstddef>
#include <string>

#include <tutti/checkpoint.hpp>

#include "support/train_options.hpp"

namespace apps {

/// How far a run is.
struct Position {
  int epoch = 0;         ///< the one under way, from 0
  std::size_t step = 0;  ///< steps of this epoch that are done
  double loss = 0.0;     ///< this epoch's images so far, summed over all ranks
  friend bool operator==(const Position&, const Position&) = default;
};

tutti::Metadata to_metadata(const Position& position, const TrainOptions& options, int ranks);

/// Errors  invalid_argument: the metadata are of another run, or of none.
Position position_in(const tutti::Metadata& metadata, const TrainOptions& options);

/// "going on from generation 7 in ckpt, saved by 2 ranks: epoch 3, step 120"
std::string resumed_line(const tutti::LoadResult& loaded, const TrainOptions& options);

/// "stopped by a signal: epoch 3, step 120 is saved in ckpt; start it again to go on"
std::string stopped_line(const Position& position, const TrainOptions& options);

}  // namespace apps
