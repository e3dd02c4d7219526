// SPDX-License-Identifier: Apache-2.0
// Residuals of gradient compression in a checkpoint: each rank's own, for a run that goes on with
// the same compression in the same layout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/host_copies.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// The name of the text in a header that tells whose residuals are in the file.
inline constexpr const char* kOwnerName = "tutti.residuals";

/// The compression and ranks that residuals belong to, as text: "2bit,threshold=0.5,leg=all on 2
/// ranks". Residuals with another text cannot be used. With leg=between the text also has the nodes
/// and the size of chunks.
std::string owner_of_residuals(const GradientCompression& compression, const Group& group);

/// This rank's residuals, under their keys; nothing if no push was compressed with residuals.
/// `readable` has copies of residuals on GPUs. Errors: those of ReadableValues::take().
std::optional<checkpoint::Content> residual_content(std::span<Entry* const> entries,
                                                    const std::string& owner,
                                                    ReadableValues& readable);

/// Residuals that a load receives beside those of the store, until commit().
class StagedResiduals {
 public:
  /// `owner` is the text for the residuals of this store, on so many ranks. Errors  out_of_memory;
  /// corrupt_file: a residual of no key, or files of ranks that differ in their keys.
  StagedResiduals(const checkpoint::LoadedStore& loaded, std::span<Entry* const> entries,
                  const std::string& owner, int ranks);

  /// The reason why saved residuals are not taken; empty if they are, or if there are none.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  /// Receives the residuals. Collective over the ranks that have read them; `rank` is this one's in
  /// the store.
  void deliver(Communicator& readers, int rank);
  /// Replaces the residuals of the store; those that were not received become zero. The entries
  /// must be where they were.
  void commit();

 private:
  struct Staged {
    Entry* entry;
    Tensor own;      ///< this rank's residual
    Tensor another;  ///< room for other ranks' residuals, which all ranks receive
  };

  const std::vector<checkpoint::TensorFile>& files_;
  std::span<Entry* const> entries_;
  std::vector<Staged> staged_;
  std::string refusal_;
};

}  // namespace tutti
