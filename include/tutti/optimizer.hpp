// SPDX-License-Identifier: Apache-2.0
// The interface of an optimizer to a store. The library's optimizers: optimizers.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "tutti/export.h"
#include "tutti/key.hpp"
#include "tutti/scaling.hpp"
#include "tutti/schedule.hpp"

namespace tutti {

/// The options of every optimizer. The gradient that enters the formulas is
/// g' = clip(rescale_grad * g, -clip_gradient, +clip_gradient), where g has been divided by the
/// loss scale and clipped by the global norm.
struct OptimizerOptions {
  double learning_rate = 0.01;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;              ///< 1 / global batch size makes sums means
  std::optional<double> clip_gradient{};  ///< no clipping unless set; > 0
  /// Needed for float16 and bfloat16 weights, which are then rounded copies of float32 weights
  /// that the store keeps as the key's last state. Changes nothing for other weights.
  bool multi_precision = false;
  std::optional<Schedule> schedule{};  ///< learning_rate is its base
  /// The gradients of a push are multiplied by clip_global_norm / (norm + 1e-6), if that is below
  /// 1; see KVStore::push. No clipping unless set; > 0. It comes before clip_gradient.
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};  ///< none unless set
};

/// One key's update, the same on every rank: the numbers that formulas need besides the elements.
struct UpdateStep {
  std::uint64_t count;   ///< updates of this key including this one: 1, 2, ...
  double learning_rate;  ///< after the schedule, times the key's lr_mult
  double weight_decay;   ///< times the key's wd_mult
  std::uint64_t key;     ///< a digest of the key, for noise that differs between keys
  /// Factor of the gradient besides rescale_grad, which the optimizers of this library apply. A
  /// program's own gets a gradient that has been multiplied already, and 1 here.
  double gradient_factor = 1.0;
};

/// Elements first .. first + weight.size() - 1 of a key's tensors; all have the same length.
template <class Real>
struct ElementRange {
  std::span<const Real> gradient;  ///< the sum over all ranks
  std::span<Real> weight;
  std::span<Real* const> states;  ///< the address of each state's element `first`
  std::size_t first = 0;
};

class OptimizerUses;  // the implementation: runtime/optimizers/uses.hpp

/// A rule by which weights follow from gradients. The store keeps the state tensors (same shape as
/// the weight; same dtype, or float32 for 16-bit weights) and the update counts: these and the
/// options are all that an update depends on. Options changed later take effect at the next push;
/// all ranks must change them alike (the store compares). A call that changes an option waits for
/// the asynchronous pushes under way of the stores that run the optimizer, as a call of these
/// stores would.
class TUTTI_API Optimizer {
 public:
  /// Errors  invalid_argument: a value out of its range.
  Optimizer(std::string name, OptimizerOptions options);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Number of state tensors per key, at most kMostStates.
  [[nodiscard]] virtual int num_states() const = 0;
  static constexpr int kMostStates = 7;
  /// True if the state starts as a copy of the weight, not as zeros.
  [[nodiscard]] virtual bool starts_as_weight(int /*state*/) const { return false; }

  /// True if element i of the weight depends on element i of the gradient and of the states only.
  /// Then the store updates range by range, while the sum is in the cache; else it first puts the
  /// whole sum into a buffer, and an update sees whole tensors.
  [[nodiscard]] virtual bool elementwise() const { return true; }

  /// True if it can update row-sparse keys: of a push only the rows that it names, as if they were
  /// the tensor; weights and states of all other rows stay as they are.
  [[nodiscard]] virtual bool updates_rows() const { return false; }

  /// Updates `weight` and `states` in place. The result may not depend on how a tensor is cut into
  /// ranges.
  virtual void update(const UpdateStep& step, const ElementRange<float>& range) const = 0;
  virtual void update(const UpdateStep& step, const ElementRange<double>& range) const = 0;

  /// Sets the rate before schedule and multipliers.
  /// Errors  invalid_argument: a value below 0, or a schedule decides the rate.
  void set_learning_rate(double learning_rate);
  /// The learning rate before schedule and multipliers.
  [[nodiscard]] double learning_rate() const noexcept { return options_.learning_rate; }
  /// Changes the option momentum, or beta1 where there is none.
  /// Errors  invalid_argument: a value out of its range; an optimizer that has neither; a change
  ///         from or to 0 where a state comes or goes with it.
  void set_momentum(double momentum);
  /// Sets another schedule, or none; learning_rate() stays as its base.
  /// Errors  invalid_argument: a value out of its range, or a warm-up that begins above the base.
  void set_schedule(std::optional<Schedule> schedule);
  [[nodiscard]] const OptimizerOptions& options() const noexcept { return options_; }

  /// Factors of one key's learning rate and weight decay. Default 1. They count as options: all
  /// ranks set them alike, and a checkpoint's states are refused at the load unless the optimizer
  /// has the multipliers that it was saved with (set them before the load) or the load gets
  /// other_options.
  /// Errors  invalid_argument: a value that is not finite.
  void set_lr_mult(const Key& key, double factor);
  void set_wd_mult(const Key& key, double factor);

  /// The values of one update. `count` is that of UpdateStep. `num_update`, which the schedule
  /// sees, is the largest update count of the store's keys, those that are being updated included.
  [[nodiscard]] UpdateStep step(const Key& key, std::uint64_t count,
                                std::uint64_t num_update) const;

  /// A digest of every value that an update depends on; the store compares it between ranks.
  [[nodiscard]] virtual std::uint64_t fingerprint() const;
  /// Name and options for messages and checkpoints, as optimizer::create takes them:
  /// "sgd,learning_rate=0.1,momentum=0.9". Options that have their defaults are left out, but for
  /// the learning rate. This implementation writes name, learning rate, schedule and loss scale; an
  /// optimizer of the program's own that has other options overrides it, and appends them.
  [[nodiscard]] virtual std::string describe() const;
  virtual std::string in_words() const final { return describe(); }  // the former name

 protected:
  /// Carries out set_momentum() in an optimizer that has a momentum, while no push is under way.
  virtual void assign_momentum(double momentum);

 private:
  struct Factors {
    double learning_rate = 1.0;
    double weight_decay = 1.0;
  };
  friend class OptimizerUse;
  void set_factors(const Key& key, const Factors& factors);
  [[nodiscard]] Factors factors_of(const Key& key) const;

  std::string name_;
  OptimizerOptions options_;
  std::unordered_map<Key, Factors> factors_;
  std::uint64_t factors_digest_ = 0;  ///< a sum over keys, whatever their order
  std::shared_ptr<OptimizerUses> uses_;
};

}  // namespace tutti
