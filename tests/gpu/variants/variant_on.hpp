// SPDX-License-Identifier: Apache-2.0
// A variant on any Machine (staging.hpp), for the rules that are measured.
#pragma once

#include "runtime/gpu/kernels/family.hpp"
#include "runtime/gpu/kernels/table_kernels.hpp"
#include "runtime/optimizers/adam.hpp"
#include "runtime/optimizers/descent.hpp"
#include "runtime/optimizers/layerwise.hpp"
#include "tests/gpu/variants/shapes.hpp"
#include "tests/gpu/variants/variant.hpp"

namespace test::variants {

/// `Machine` adds to staging.hpp's the variant's ways to launch, and obstacle(): why the device
/// cannot run it.
template <class Machine>
class VariantOn final : public Variant {
 public:
  using Shape = typename Machine::Shape;
  using Table = tutti::gpus::kernels::Table<Machine>;

  template <class Argument>
  explicit VariantOn(Argument argument) : machine_(argument) {}

  [[nodiscard]] std::string name() const override { return Shape::kName; }

  [[nodiscard]] std::string obstacle(const tutti::Optimizer* optimizer) const override {
    if (optimizer != nullptr && !optimizer->elementwise() && !Shape::kKeepsNorms) {
      return "adds the addends of norms in another order";
    }
    return machine_.obstacle();
  }

  [[nodiscard]] std::unique_ptr<tutti::gpus::LaunchTable> make_table() override {
    return std::make_unique<Table>(machine_);
  }

  void sum(tutti::gpus::Stream stream, tutti::gpus::LaunchTable& table,
           std::span<const tutti::gpus::TensorRow> rows) override {
    auto& own = static_cast<Table&>(table);
    own.set(stream, rows, tutti::gpus::kernels::purpose_of<Machine>(nullptr));
    tutti::gpus::kernels::run_sum<tutti::gpus::kernels::SumBody, float>(machine_, stream, own);
  }

  void update(tutti::gpus::Stream stream, tutti::gpus::LaunchTable& table,
              std::span<const tutti::gpus::TensorRow> rows, const tutti::Optimizer& optimizer,
              std::span<const tutti::UpdateStep> steps) override {
    tutti::gpus::kernels::run_update(machine_, stream, static_cast<Table&>(table), rows, optimizer,
                                     steps, PlanMeasured());
  }

 private:
  struct PlanMeasured {
    template <class Real>
    void plan(const tutti::Optimizer& optimizer, std::span<const tutti::UpdateStep> steps,
              tutti::gpus::kernels::Plan<Machine>& to) const {
      using tutti::gpus::kernels::plan_rule;
      if constexpr (std::is_same_v<Real, float>) {
        if (plan_rule<tutti::optimizer::Sgd, Real>(optimizer, steps, &to)) return;
        if (plan_rule<tutti::optimizer::Adamw, Real>(optimizer, steps, &to)) return;
        if constexpr (Shape::kKeepsNorms) {
          if (plan_rule<tutti::optimizer::Lamb, Real>(optimizer, steps, &to)) return;
        }
      }
      throw std::logic_error("no variant of the kernels of " + optimizer.name());
    }
  };

  Machine machine_;
};

/// One of each shape; `MachineOf<Shape>` is made of `argument`.
template <template <class> class MachineOf, class Argument, class... Shape>
void add_variants(Variants& variants, Argument argument, Shapes<Shape...> /*shapes*/) {
  (variants.push_back(std::make_unique<VariantOn<MachineOf<Shape>>>(argument)), ...);
}

}  // namespace test::variants
