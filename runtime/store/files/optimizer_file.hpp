// SPDX-License-Identifier: Apache-2.0
// An optimizer's states and counts as the content of a file, and from a file back into a store.
//
//   tensor KEY/0, KEY/1, ...   the states of a key, in the optimizer's order
//   "tutti.optimizer"          its name and options; "tutti.updates" the count of each key
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/optimizer.hpp"

#include "runtime/checkpoint/tensor_file.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// Whether a file's keys are numbers or strings: its text "tutti.keys".
inline constexpr const char* kKeysName = "tutti.keys";
std::string kind_of_keys(std::span<Entry* const> entries);

/// The entries must outlive the content. Errors: invalid_argument for a key that is not UTF-8.
checkpoint::Content optimizer_content(Optimizer& optimizer, std::span<Entry* const> entries);

/// States that are about to arrive, beside those of the store until commit().
class StagedStates {
 public:
  /// Errors  invalid_argument: another optimizer, or other options without `other_options`; other
  ///         keys or shapes than the entries'.
  StagedStates(const checkpoint::Header& header, Optimizer& optimizer,
               std::span<Entry* const> entries, bool other_options);

  /// For each tensor of the file.
  [[nodiscard]] std::span<std::byte* const> destinations() const { return destinations_; }
  /// The entries must be where they were, or have been moved together with their states' places.
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

  std::vector<Staged> staged_;
  std::vector<std::byte*> destinations_;
};

}  // namespace tutti
