// SPDX-License-Identifier: Apache-2.0
// An optimizer's states and counts: written as the content of a file, and read back into a store.
//
//   tensor KEY/0, KEY/1, ...   the states of a key, in the optimizer's order
//   "tutti.optimizer"          its name and options; "tutti.updates" the count of each key
//   "tutti.scaling"            with clip_global_norm or loss_scale: the scale and its counters
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/optimizer.hpp"
#include "tutti/scaling.hpp"

#include "runtime/checkpoint/tensor_file.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/updates.hpp"

namespace tutti {

/// The name of the text that tells whether a file's keys are numbers or strings.
inline constexpr const char* kKeysName = "tutti.keys";
std::string kind_of_keys(std::span<Entry* const> entries);

/// The content of a file with the states of `rule`, which runs an optimizer. The entries must
/// outlive the content. Errors: invalid_argument for a key that is not UTF-8.
checkpoint::Content optimizer_content(const UpdateRule& rule, std::span<Entry* const> entries);

/// States that a load receives beside those of the store, until commit().
class StagedStates {
 public:
  /// Errors  invalid_argument: another optimizer, or other options without `other_options`; other
  ///         keys or shapes than the entries'. out_of_memory.
  /// The rule runs an optimizer. A scale that the file does not have starts anew.
  StagedStates(Group& group, const checkpoint::Header& header, const UpdateRule& rule,
               std::span<Entry* const> entries, bool other_options);

  /// The memory for each tensor of the file.
  [[nodiscard]] std::span<std::byte* const> destinations() const { return destinations_; }
  /// Replaces the states of the store. The entries must be where they were, or have been moved
  /// together with their states' places.
  void commit();

 private:
  struct Staged {
    Entry* entry;
    std::uint64_t updates;
    std::vector<Tensor> states;
  };
  using SavedTensors = std::unordered_map<std::string_view, const checkpoint::TensorInfo*>;
  void stage(Entry& entry, std::uint64_t updates, const SavedTensors& saved,
             const Optimizer& optimizer);

  Group& group_;
  std::shared_ptr<GradientScaler> scaler_;
  std::optional<GradientScaling> scaling_;
  std::vector<Staged> staged_;
  std::vector<std::byte*> destinations_;
};

}  // namespace tutti
