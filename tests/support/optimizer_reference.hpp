// SPDX-License-Identifier: Apache-2.0
// A second implementation of every optimizer: element by element, in double precision, straight
// from the formulas. A new optimizer has its options in reference_defaults() and its formula in
// Reference. All tests of optimizers take their names from here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

namespace test {

using Doubles = std::vector<double>;
using Numbers = std::map<std::string, double>;  ///< options by name; flags are 0 or 1

inline Doubles to_doubles(const tutti::ConstTensorView& tensor) {
  tutti::Tensor wide = tutti::Tensor::empty(tensor.shape(), tutti::DType::float64);
  wide.view().copy_from(tensor);
  const auto values = wide.values<double>();
  return {values.begin(), values.end()};
}

/// Adds `values` to `sum`, element by element.
void add_to(Doubles& sum, const Doubles& values);

/// The options of each optimizer besides the common ones, with their defaults.
const std::map<std::string, Numbers>& reference_defaults();

/// True if the formula has norms of whole tensors.
inline bool takes_norms(const std::string& name) {
  return name == "lars" || name == "lamb" || name == "lans";
}

/// The updates of one key. sgld has no noise here.
class Reference {
 public:
  Reference(std::string name, const Numbers& options);
  void multiply(double lr_mult, double wd_mult) {
    lr_ *= lr_mult;
    wd_ *= wd_mult;
  }
  void set_learning_rate(double rate) { lr_ = rate; }

  void step(const Doubles& gradient, Doubles& w);

 private:
  [[nodiscard]] double clip(double value) const;
  [[nodiscard]] double mu_of(double t) const;
  void average(double& mean, double decay, double next);
  void descend(double rate, double g, double& w, double& m);
  void element(double rescaled, double& w, double& a, double& b, double& c);
  void torch_element(double plain, double& w, double& a, double& b, double& c);
  void torch_adam(double g, double& w, double& a, double& b, double& c);
  void moments(const Doubles& g, const Doubles& w, Doubles& a, Doubles& b);
  void lars(const Doubles& g, Doubles& w);
  void lamb(Doubles g, Doubles& w);
  void lans(Doubles g, Doubles& w);

  std::string name_;
  double lr_ = 0;
  double wd_ = 0;
  // Options by their names; those that an optimizer does not have are 0.
  double rescale_grad_, clip_gradient_, momentum_, wd_lh_, rho_, lambda_, lambda1_, beta_, eta_;
  double epsilon_, b1_, b2_, schedule_decay_, dampening_, lr_decay_, initial_;
  bool centered_, bias_correction_, nesterov_, amsgrad_, decoupled_;
  int t_ = 0;
  double bias1_ = 0;  ///< 1 - beta1^t
  double bias2_ = 0;
  double mu_ = 0;  ///< mu of this step
  double next_mu_ = 0;
  double product_ = 1;
  Doubles a_, b_, c_;
};

/// The first element that differs from `expected` by more than `tolerance`, which is relative above
/// 1; the number of elements if there is none.
std::size_t first_far(const Doubles& found, const Doubles& expected, double tolerance);

}  // namespace test
