// SPDX-License-Identifier: Apache-2.0
// The optimizers of torch.optim. Formulas, order of operations and states are PyTorch's, so that
// float64 weights stay equal to torch's within rounding. Source of all of them: the functions
// _single_tensor_* of PyTorch 2.15, torch/optim/*.py. The formulas:
// include/tutti/optimizers/torch.hpp.
#pragma once

#include <cmath>

#include "tutti/optimizers/torch.hpp"

#include "runtime/optimizers/adam.hpp"
#include "runtime/optimizers/adaptive.hpp"
#include "runtime/optimizers/descent.hpp"
#include "runtime/optimizers/rule.hpp"

namespace tutti::optimizer {

/// Computes torch's lerp_: a moving average that does not move if `next` equals it.
template <class Real>
struct Mix {
  Real take;
  TUTTI_HOST_DEVICE Real operator()(Real mean, Real next) const {
    return mean + take * (next - mean);
  }
};

/// Applies the weight decay: to the gradient, or as a factor of the weight.
template <class Real>
struct TorchDecay {
  Gradient<Real> gradient;
  Real added;
  Real kept;

  template <class Update>
  TorchDecay(const Update& update, bool is_decoupled)
      : gradient(update.gradient()),
        added(static_cast<Real>(is_decoupled ? 0 : update.step().weight_decay)),
        kept(static_cast<Real>(
            is_decoupled ? 1 - update.step().learning_rate * update.step().weight_decay : 1)) {}
  [[nodiscard]] TUTTI_HOST_DEVICE Real of(Real g, Real w) const {
    return gradient.plain(g) + added * w;
  }
};

// --- torch_sgd -------------------------------------------------------------------------------

/// The step b = kept*b + taken*gd; w -= rate*b.
template <class Real>
struct TorchMomentum {
  Gradient<Real> gradient;
  Real rate;
  Real kept;
  Real taken;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& b) const {
    b = kept * b + taken * gradient.decayed(g, w);
    w -= rate * b;
  }
};

template <class Real>
struct TorchNesterov {
  Gradient<Real> gradient;
  Real rate;
  Real kept;
  Real taken;
  Real momentum;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& b) const {
    const Real decayed = gradient.decayed(g, w);
    b = kept * b + taken * decayed;
    w -= rate * (decayed + momentum * b);
  }
};

struct TorchSgd : Elementwise<TorchSgdOptions> {
  static OptionFields fields(Options& options) {
    return {{"momentum", &options.momentum, &bounds::kNotNegative},
            {"dampening", &options.dampening},
            {"nesterov", &options.nesterov}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    if (options.momentum == 0) {
      return update.each(Descent<Real>{update.gradient(), update.rate()});
    }
    const bool is_first = update.step().count == 1;  // the buffer begins as the gradient
    const auto momentum = static_cast<Real>(options.momentum);
    const Real kept = is_first ? 0 : momentum;
    const auto taken = static_cast<Real>(is_first ? 1 : 1 - options.dampening);
    if (options.nesterov) {
      update.each(TorchNesterov<Real>{update.gradient(), update.rate(), kept, taken, momentum});
    } else {
      update.each(TorchMomentum<Real>{update.gradient(), update.rate(), kept, taken});
    }
  }
};

// --- torch_adam, torch_adamw -----------------------------------------------------------------

template <class Real>
struct TorchAdamFormula {
  static constexpr bool kIsLong = true;
  TorchDecay<Real> decay;
  Real rate;
  Mix<Real> first;
  Average<Real> second;
  Real root_taken;  ///< sqrt(c2)
  Real epsilon;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& v) const {
    const Real decayed = decay.of(g, w);
    m = first(m, decayed);
    v = second(v, decayed * decayed);
    w = decay.kept * w - rate * m / (std::sqrt(v) / root_taken + epsilon);
  }
};

template <class Real>
struct TorchAmsgrad {
  static constexpr bool kIsLong = true;
  TorchAdamFormula<Real> adam;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& v, Real& largest) const {
    const Real decayed = adam.decay.of(g, w);
    m = adam.first(m, decayed);
    v = adam.second(v, decayed * decayed);
    largest = largest > v ? largest : v;
    w = adam.decay.kept * w - adam.rate * m / (std::sqrt(largest) / adam.root_taken + adam.epsilon);
  }
};

template <class Options>
OptionFields torch_adam_fields(Options& options) {
  OptionFields fields = moment_fields(options);
  fields.push_back({"amsgrad", &options.amsgrad});
  return fields;
}

template <class Options, class Update>
void apply_torch_adam(const Options& options, const Update& update, bool is_decoupled) {
  using Real = typename Update::Real;
  const TorchAdamFormula<Real> formula{
      TorchDecay<Real>(update, is_decoupled),
      static_cast<Real>(update.step().learning_rate / update.taken(options.beta1)),
      {static_cast<Real>(1 - options.beta1)},
      Average<Real>(options.beta2),
      static_cast<Real>(std::sqrt(update.taken(options.beta2))),
      static_cast<Real>(options.epsilon)};
  if (options.amsgrad) {
    update.each(TorchAmsgrad<Real>{formula});
  } else {
    update.each(formula);
  }
}

struct TorchAdam : Elementwise<TorchAdamOptions> {
  static OptionFields fields(Options& options) {
    OptionFields fields = torch_adam_fields(options);
    fields.push_back({"decoupled_weight_decay", &options.decoupled_weight_decay});
    return fields;
  }
  static int num_states(const Options& options) { return options.amsgrad ? 3 : 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    apply_torch_adam(options, update, options.decoupled_weight_decay);
  }
};

struct TorchAdamw : Elementwise<TorchAdamwOptions> {
  static OptionFields fields(Options& options) { return torch_adam_fields(options); }
  static int num_states(const Options& options) { return options.amsgrad ? 3 : 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    apply_torch_adam(options, update, /*is_decoupled=*/true);
  }
};

// --- torch_nadam -----------------------------------------------------------------------------

template <class Real>
struct TorchNadamFormula {
  static constexpr bool kIsLong = true;
  TorchDecay<Real> decay;
  Mix<Real> first;
  Average<Real> second;
  Real second_taken;
  Real epsilon;
  Real of_gradient;
  Real of_mean;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& v) const {
    const Real decayed = decay.of(g, w);
    m = first(m, decayed);
    v = second(v, decayed * decayed);
    const Real spread = std::sqrt(v / second_taken) + epsilon;
    w = decay.kept * w - of_gradient * decayed / spread - of_mean * m / spread;
  }
};

struct TorchNadam : Elementwise<TorchNadamOptions> {
  static OptionFields fields(Options& options) {
    OptionFields fields = moment_fields(options);
    fields.push_back({"momentum_decay", &options.momentum_decay, &bounds::kNotNegative});
    fields.push_back({"decoupled_weight_decay", &options.decoupled_weight_decay});
    return fields;
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const Momenta momenta({.beta1 = options.beta1, .schedule_decay = options.momentum_decay},
                          update.step().count);
    const double rate = update.step().learning_rate;
    update.each(TorchNadamFormula<Real>{
        TorchDecay<Real>(update, options.decoupled_weight_decay),
        {static_cast<Real>(1 - options.beta1)},
        Average<Real>(options.beta2),
        static_cast<Real>(update.taken(options.beta2)),
        static_cast<Real>(options.epsilon),
        static_cast<Real>(rate * (1 - momenta.now) / (1 - momenta.product)),
        static_cast<Real>(rate * momenta.next / (1 - momenta.product * momenta.next))});
  }
};

// --- torch_adamax ----------------------------------------------------------------------------

template <class Real>
struct TorchAdamaxFormula {
  Gradient<Real> gradient;
  Real rate;
  Mix<Real> first;
  Real beta2;
  Real epsilon;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& u) const {
    const Real decayed = gradient.decayed(g, w);
    m = first(m, decayed);
    const Real faded = beta2 * u;
    const Real size = std::abs(decayed) + epsilon;
    u = faded > size ? faded : size;
    w -= rate * m / u;
  }
};

struct TorchAdamax : Elementwise<TorchAdamaxOptions> {
  static OptionFields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(TorchAdamaxFormula<Real>{
        update.gradient(),
        static_cast<Real>(update.step().learning_rate / update.taken(options.beta1)),
        {static_cast<Real>(1 - options.beta1)},
        static_cast<Real>(options.beta2),
        static_cast<Real>(options.epsilon)});
  }
};

// --- torch_rmsprop ---------------------------------------------------------------------------

template <class Real>
struct TorchRmspropNumbers {
  Gradient<Real> gradient;
  Real rate;
  Average<Real> squares;
  Mix<Real> gradients;
  Real epsilon;
  Real momentum;

  [[nodiscard]] TUTTI_HOST_DEVICE Real ratio(Real decayed, Real variance) const {
    return decayed / (std::sqrt(variance > 0 ? variance : variance * 0) + epsilon);
  }
};

template <class Real>
struct TorchRmspropFormula {
  TorchRmspropNumbers<Real> of;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& v) const {
    const Real decayed = of.gradient.decayed(g, w);
    v = of.squares(v, decayed * decayed);
    w -= of.rate * of.ratio(decayed, v);
  }
};

template <class Real>
struct TorchRmspropWithMomentum {
  TorchRmspropNumbers<Real> of;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& v, Real& d) const {
    const Real decayed = of.gradient.decayed(g, w);
    v = of.squares(v, decayed * decayed);
    d = of.momentum * d + of.ratio(decayed, v);
    w -= of.rate * d;
  }
};

template <class Real>
struct TorchRmspropCentered {
  TorchRmspropNumbers<Real> of;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& v, Real& a) const {
    const Real decayed = of.gradient.decayed(g, w);
    v = of.squares(v, decayed * decayed);
    a = of.gradients(a, decayed);
    w -= of.rate * of.ratio(decayed, v - a * a);
  }
};

template <class Real>
struct TorchRmspropCenteredWithMomentum {
  static constexpr bool kIsLong = true;
  TorchRmspropNumbers<Real> of;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& v, Real& a, Real& d) const {
    const Real decayed = of.gradient.decayed(g, w);
    v = of.squares(v, decayed * decayed);
    a = of.gradients(a, decayed);
    d = of.momentum * d + of.ratio(decayed, v - a * a);
    w -= of.rate * d;
  }
};

struct TorchRmsprop : Elementwise<TorchRmspropOptions> {
  static OptionFields fields(Options& options) {
    return {{"alpha", &options.alpha, &bounds::kNotNegative},
            {"epsilon", &options.epsilon, &bounds::kPositive},
            {"momentum", &options.momentum, &bounds::kNotNegative},
            {"centered", &options.centered}};
  }
  static int num_states(const Options& options) {
    return 1 + (options.centered ? 1 : 0) + (options.momentum == 0 ? 0 : 1);
  }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const TorchRmspropNumbers<Real> numbers{update.gradient(),
                                            update.rate(),
                                            Average<Real>(options.alpha),
                                            {static_cast<Real>(1 - options.alpha)},
                                            static_cast<Real>(options.epsilon),
                                            static_cast<Real>(options.momentum)};
    if (options.centered && options.momentum != 0) {
      update.each(TorchRmspropCenteredWithMomentum<Real>{numbers});
    } else if (options.centered) {
      update.each(TorchRmspropCentered<Real>{numbers});
    } else if (options.momentum != 0) {
      update.each(TorchRmspropWithMomentum<Real>{numbers});
    } else {
      update.each(TorchRmspropFormula<Real>{numbers});
    }
  }
};

// --- torch_adagrad ---------------------------------------------------------------------------

template <class Real>
struct TorchAdagradFormula {
  Gradient<Real> gradient;
  Real rate;
  Real kept;
  Real start;  ///< start of the sum, at the first update; 0 later
  Real epsilon;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& h) const {
    const Real decayed = gradient.decayed(g, w);
    h = kept * h + start + decayed * decayed;
    w -= rate * decayed / (std::sqrt(h) + epsilon);
  }
};

struct TorchAdagrad : Elementwise<TorchAdagradOptions> {
  static OptionFields fields(Options& options) {
    return {
        {"lr_decay", &options.lr_decay, &bounds::kNotNegative},
        {"initial_accumulator_value", &options.initial_accumulator_value, &bounds::kNotNegative},
        {"epsilon", &options.epsilon, &bounds::kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 1; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const auto before = static_cast<double>(update.step().count - 1);
    const bool is_first = update.step().count == 1;
    update.each(TorchAdagradFormula<Real>{
        update.gradient(),
        static_cast<Real>(update.step().learning_rate / (1 + before * options.lr_decay)),
        is_first ? Real{0} : Real{1},
        static_cast<Real>(is_first ? options.initial_accumulator_value : 0),
        static_cast<Real>(options.epsilon)});
  }
};

// --- torch_adadelta --------------------------------------------------------------------------
// The formula is adadelta's.

struct TorchAdadelta : Elementwise<TorchAdadeltaOptions> {
  static OptionFields fields(Options& options) {
    return {{"rho", &options.rho, &bounds::kUpToOne},
            {"epsilon", &options.epsilon, &bounds::kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdadeltaFormula<Real>{update.gradient(), update.rate(), Average<Real>(options.rho),
                                      static_cast<Real>(options.epsilon)});
  }
};

// --- the list --------------------------------------------------------------------------------

/// The optimizers of this family. All else that the library knows of them is made from this list.
// clang-format off
#define TUTTI_TORCH_FAMILY(rule)     \
  rule(torch_sgd, TorchSgd)          \
  rule(torch_adam, TorchAdam)        \
  rule(torch_adamw, TorchAdamw)      \
  rule(torch_nadam, TorchNadam)      \
  rule(torch_adamax, TorchAdamax)    \
  rule(torch_rmsprop, TorchRmsprop)  \
  rule(torch_adagrad, TorchAdagrad)  \
  rule(torch_adadelta, TorchAdadelta)
// clang-format on

struct TorchFamily {
  template <class Visit>
  static void each(Visit visit) {
    TUTTI_TORCH_FAMILY(TUTTI_VISIT_RULE)
  }
};

}  // namespace tutti::optimizer
