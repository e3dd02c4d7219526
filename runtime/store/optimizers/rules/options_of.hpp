// SPDX-License-Identifier: Apache-2.0
// How another machine than the CPU finds out which rule an optimizer follows.
#pragma once

#include "tutti/optimizer.hpp"

namespace tutti::optimizer {

/// The other base class of an Optimizer that make<> has made of a rule.
template <class Rule>
class OptionsOf {
 public:
  virtual ~OptionsOf() = default;
  [[nodiscard]] virtual const typename Rule::Options& own_options() const = 0;
};

/// The options of an optimizer that follows this rule; null for any other.
template <class Rule>
const typename Rule::Options* options_for(const Optimizer& optimizer) {
  const auto* found = dynamic_cast<const OptionsOf<Rule>*>(&optimizer);
  return found == nullptr ? nullptr : &found->own_options();
}

}  // namespace tutti::optimizer
