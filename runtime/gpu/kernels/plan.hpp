// SPDX-License-Identifier: Apache-2.0
// The plan of an update: the passes over the rows that a rule takes. The rule is applied once to
// each different UpdateStep, and the plan notes the passes that it asks for, formulas as bytes.
// Then every pass is one launch for all rows. A pass has more than one kind of formula only where a
// rule decides by the step.
#pragma once

#include <cstring>
#include <vector>

#include "runtime/gpu/kernels/table.hpp"
#include "runtime/gpu/kernels/update_body.hpp"
#include "runtime/optimizers/formula.hpp"

namespace tutti::gpus::kernels {

/// The machine, stream and table that an update is launched with.
template <class Machine>
struct Launch {
  Machine& machine;
  Stream stream;
  Table<Machine>& table;
  UpdateView view;  ///< view of all rows
};

template <class Machine>
class Plan {
 public:
  /// A plan for so many different steps; run() launches with `all`.
  Plan(std::size_t num_steps, const Launch<Machine>& all) : num_steps_(num_steps), all_(all) {}

  /// Begins a step: passes that are added from now on belong to it.
  void start(std::size_t step) {
    step_ = step;
    pass_ = 0;
    num_norms_ = 0;
  }

  /// Adds the next pass of the step.
  template <class Real, class Formula>
  void add(const Formula& formula) {
    static_assert(std::is_trivially_copyable_v<Formula>);
    constexpr bool kIsNorm = optimizer::UsesOf<optimizer::Resolved<Formula>>::kGivesValue;
    Pass& pass = pass_of(pass_++, &Plan::launch_all<Real, Formula>, sizeof(StepFormula<Formula>));
    if (kIsNorm) pass.norm = num_norms_++;
    StepFormula<Formula> stored{formula, 1};
    std::memcpy(pass.formulas.data() + step_ * sizeof stored, &stored, sizeof stored);
  }

  void run() const {
    for (std::size_t i = 0; i < passes_.size(); ++i) passes_[i].launch(*this, i);
  }

 private:
  using Shape = typename Machine::Shape;
  using LaunchPass = void (*)(const Plan&, std::size_t index);
  struct Pass {
    std::size_t number;  ///< position in the order of a rule's calls
    LaunchPass launch;
    int norm;  ///< the norm that it computes, or -1
    std::vector<std::byte> formulas;
  };

  Pass& pass_of(std::size_t number, LaunchPass how, std::size_t slot_bytes) {
    auto found = passes_.begin();
    while (found != passes_.end() && found->number <= number) {
      if (found->number == number && found->launch == how) return *found;
      ++found;
    }
    return *passes_.insert(found,
                           {number, how, -1, std::vector<std::byte>(num_steps_ * slot_bytes)});
  }

  template <class Real, class Formula>
  static void launch_all(const Plan& plan, std::size_t index) {
    const Pass& pass = plan.passes_[index];
    const StepFormulas<Formula> formulas = plan.formulas_of<Formula>(pass, index);
    if constexpr (std::is_same_v<Real, float>) {
      plan.launch<Formula, float>(formulas, pass.norm);
      if constexpr (Shape::template kIsBuilt<Float16>)
        plan.launch<Formula, Float16>(formulas, pass.norm);
      plan.launch<Formula, BFloat16>(formulas, pass.norm);
    } else {
      plan.launch<Formula, double>(formulas, pass.norm);
    }
  }

  template <class Formula>
  [[nodiscard]] StepFormulas<Formula> formulas_of(const Pass& pass, std::size_t index) const {
    StepFormulas<Formula> formulas{};
    if (num_steps_ <= StepFormulas<Formula>::kFew) {
      std::memcpy(formulas.few, pass.formulas.data(), pass.formulas.size());
    } else {
      formulas.many = reinterpret_cast<const StepFormula<Formula>*>(all_.table.formulas(index).send(
          all_.table.staging, all_.stream, pass.formulas.data(), pass.formulas.size()));
    }
    return formulas;
  }

  template <class Formula, class Stored>
  void launch(const StepFormulas<Formula>& formulas, int norm) const {
    using Body = UpdateBody<Formula, Stored, Shape>;
    const DTypeTiles& part = all_.table.cut().part(dtype_of<Stored>);
    if (part.num_rows == 0) return;
    Body body{all_.view, formulas};
    body.view.table = all_.table.view(dtype_of<Stored>);
    body.view.partials += part.first_tile;
    if constexpr (Body::Uses::kGivesValue) {
      all_.machine.template run_sums<kLanes>(all_.stream, part.num_tiles, body);
      const NormBody finish{body.view.table.rows + part.first_row, all_.view.partials,
                            all_.view.norms + std::size_t{part.first_row} * optimizer::Norms::kMost,
                            Body::kTile, norm};
      all_.machine.template run_sums<kBlockThreads>(all_.stream, part.num_rows, finish);
    } else {
      all_.machine.run(all_.stream, part.num_tiles, body);
    }
  }

  std::size_t num_steps_;
  Launch<Machine> all_;
  std::vector<Pass> passes_;
  std::size_t step_ = 0;
  std::size_t pass_ = 0;
  int num_norms_ = 0;
};

/// An Update (see formula.hpp) that notes the passes of a rule in a plan.
template <class Machine, class Real>
class PlannedUpdate : public optimizer::UpdateNumbers<Real> {
 public:
  PlannedUpdate(const OptimizerOptions& options, const UpdateStep& step, Plan<Machine>& plan)
      : optimizer::UpdateNumbers<Real>(options, step), plan_(plan) {}

  template <class Formula>
  void each(const Formula& formula) const {
    plan_.template add<Real>(formula);
  }
  template <class Formula>
  void norm(const Formula& formula) const {
    plan_.template add<Real>(formula);
  }

 private:
  Plan<Machine>& plan_;
};

}  // namespace tutti::gpus::kernels
