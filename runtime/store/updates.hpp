// SPDX-License-Identifier: Apache-2.0
// What happens to the reduced values of a push: assigned, given to an optimizer, or to an updater.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tutti/kvstore.hpp"

#include "collectives/call.hpp"
#include "runtime/store/key_table.hpp"

namespace tutti {

/// The store's way of updating. Exactly one of: assign (the default), an optimizer, an updater.
struct UpdateRule {
  struct Assign {};
  std::variant<Assign, std::shared_ptr<Optimizer>, Updater> rule;

  [[nodiscard]] Optimizer* optimizer() const;
  [[nodiscard]] const Updater* updater() const { return std::get_if<Updater>(&rule); }
  /// Equal on ranks whose updates give equal results, as far as can be known.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// For messages: empty for assign, else " with sgd (learning rate 0.1)" or " with an updater".
  [[nodiscard]] std::string in_words() const;
};

/// The state tensors that an optimizer needs for a weight, as they are at first: zero.
std::vector<Tensor> new_states(const Optimizer& optimizer, const Entry& entry);

/// Gives reduced pieces to an optimizer while they are in the cache. Segment i is entries[i].
class OptimizerConsumer final : public collectives::Consumer {
 public:
  /// Errors: invalid_argument if an entry's dtype is not one that optimizers update. Nothing is
  /// counted until commit().
  OptimizerConsumer(const Optimizer& optimizer, std::span<Entry* const> entries);

  void consume(std::size_t segment, std::size_t first, std::size_t count,
               const std::byte* reduced) override;

  /// Counts the updates, after all pieces have come.
  void commit();

 private:
  template <class Real>
  void update(std::size_t segment, std::size_t first, std::size_t count, const std::byte* reduced);

  const Optimizer& optimizer_;
  std::span<Entry* const> entries_;
  std::vector<UpdateStep> steps_;
};

}  // namespace tutti
