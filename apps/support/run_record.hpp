// SPDX-License-Identifier: Apache-2.0
// The record of a training run in a checkpoint, besides the weights: the position of the run, and
// the options that identify it. Only the same run can be continued: each option that its weights
// depend on must be the same.
#pragma once

#include <cstddef>
#include <string>

#include <tutti/checkpoint.hpp>

#include "support/train_options.hpp"

namespace apps {

/// The position of a run.
struct Position {
  int epoch = 0;         ///< the epoch under way, from 0
  std::size_t step = 0;  ///< number of steps of this epoch that are done
  double loss = 0.0;     ///< loss of this epoch's images so far, summed over all ranks
  friend bool operator==(const Position&, const Position&) = default;
};

tutti::Metadata to_metadata(const Position& position, const TrainOptions& options, int ranks);

/// Reads the position in a checkpoint's metadata. Errors  invalid_argument: the metadata are of
/// another run, or of none.
Position position_in(const tutti::Metadata& metadata, const TrainOptions& options);

/// The line of a run that continues: "going on from generation 7 in ckpt, saved by 2 ranks: epoch
/// 3, step 120"
std::string resumed_line(const tutti::LoadResult& loaded, const TrainOptions& options);

/// The line of a run that was stopped: "stopped by a signal: epoch 3, step 120 is saved in ckpt;
/// start it again to go on"
std::string stopped_line(const Position& position, const TrainOptions& options);

}  // namespace apps
