// SPDX-License-Identifier: Apache-2.0
// Rules of update: the reduced values of a push are assigned, or given to an optimizer or an
// updater.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tutti/kvstore.hpp"

#include "collectives/node/call.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_scaler.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// The store's rule of update: assign (the default), an optimizer or an updater.
struct UpdateRule {
  struct Assign {};
  std::variant<Assign, std::shared_ptr<Optimizer>, Updater> rule;
  RowSparseUpdater row_updater{};  ///< the updater's function for row-sparse keys
  /// Set for an optimizer with clip_global_norm or loss_scale; else null.
  std::shared_ptr<GradientScaler> scaler{};

  [[nodiscard]] Optimizer* optimizer() const;
  [[nodiscard]] const Updater* updater() const { return std::get_if<Updater>(&rule); }
  /// True if the sum becomes the value.
  [[nodiscard]] bool assigns() const { return std::holds_alternative<Assign>(rule); }
  /// A digest that is equal on ranks whose updates give equal results, as far as that can be known.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// The rule for messages: empty for assign, else " with sgd,learning_rate=0.1" or " with an
  /// updater".
  [[nodiscard]] std::string describe() const;
};

/// True if a rank may update dense keys on the CPU for all ranks of its node. Then their states lie
/// in the arena. False where samples of the replicas are compared: an error of one rank's memory
/// would be on all ranks before a sample comes there.
bool may_share_updates(const Group& group, const Optimizer& optimizer);

/// The state tensors that an optimizer needs for a weight, all zero: its own, and at the end the
/// float32 copy of a 16-bit weight. Errors: out_of_memory.
std::vector<Tensor> new_states(Group& group, const Optimizer& optimizer, const Entry& entry);

/// Gives the entry its states before its first update, on the device of its replica. Errors:
/// out_of_memory.
void start_states(Group& group, const Optimizer& optimizer, Entry& entry);
/// Errors: invalid_argument if the optimizer does not update the entry's dtype.
void require_updatable(const Optimizer& optimizer, const Entry& entry);
/// Requires kernels for an entry on a GPU. Errors: invalid_argument if the optimizer has none for
/// it.
void require_kernels(const Optimizer& optimizer, const Entry& entry);

/// The updates of one push by an optimizer. An elementwise one consumes reduced pieces while they
/// are in the cache; any other gets each key's whole sum at the end. Segment i is entries[i].
class OptimizerConsumer final : public collectives::Consumer {
 public:
  /// `most_updates` is the largest update count of the store's keys before this push. Errors:
  /// invalid_argument if an entry's dtype is not one that the optimizer updates; out_of_memory. The
  /// caller counts the updates once they are done.
  OptimizerConsumer(Group& group, const Optimizer& optimizer, std::span<Entry* const> entries,
                    std::uint64_t most_updates);

  void consume(std::size_t segment, std::size_t first, std::size_t count,
               const std::byte* reduced) override;
  /// False for an optimizer of the program's own, which may not be made for several threads.
  [[nodiscard]] bool takes_any_order() const override { return any_order_; }
  /// The weight and the states of a key.
  [[nodiscard]] std::span<const collectives::UpdatedArray> updated_arrays(
      std::size_t segment) const override;

  /// Sets the factor of gradients besides rescale_grad; for update_whole().
  void scale_by(double factor);

  /// Updates from whole sums instead of pieces: from the segments' outputs, which it may change.
  /// Keys share no element, so each thread takes whole ones: norms are summed as by one thread.
  /// 16-bit weights share a buffer, and one thread.
  void update_whole(std::span<const collectives::Segment> segments, collectives::Workers& workers);

 private:
  template <class Real>
  void update(std::size_t segment, std::size_t first, std::span<const Real> reduced,
              Tensor& weight) const;
  void update_rounded(std::size_t segment, std::size_t first, std::size_t count,
                      const std::byte* reduced, std::span<float> wide) const;
  void find_places();

  const Optimizer& optimizer_;
  std::span<Entry* const> entries_;
  std::vector<UpdateStep> steps_;
  /// Arrays of all entries, if they may share updates.
  std::vector<collectives::UpdatedArray> places_;
  /// Each entry's first place, then the number of all.
  std::vector<std::size_t> first_places_;
  double factor_ = 1;        ///< factor that a program's own optimizer does not apply
  std::vector<float> wide_;  ///< the whole sum of a key with 16-bit weights, if it is needed
  bool any_order_;
};

}  // namespace tutti
