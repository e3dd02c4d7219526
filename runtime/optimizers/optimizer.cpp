// SPDX-License-Identifier: Apache-2.0
#include "tutti/optimizer.hpp"

#include <cmath>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/optimizers/option_fields.hpp"
#include "runtime/optimizers/uses.hpp"

namespace tutti {

namespace {

void require_finite(const std::string& owner, const char* what, const Key& key, double factor) {
  if (std::isfinite(factor)) return;
  throw Error(ErrorCode::invalid_argument, owner + ": " + what + " of key " + to_string(key) +
                                               ": expected a finite number, got " +
                                               std::to_string(factor));
}

}  // namespace

Optimizer::Optimizer(std::string name, OptimizerOptions options)
    : name_(std::move(name)),
      options_(std::move(options)),
      uses_(std::make_shared<OptimizerUses>()) {
  for (const OptionField& field : optimizer::common_fields(options_)) {
    check_field("optimizer " + name_, field);
  }
  set_schedule(options_.schedule);
  if (options_.loss_scale) optimizer::check_loss_scale("optimizer " + name_, *options_.loss_scale);
}

void Optimizer::set_learning_rate(double learning_rate) {
  const std::string owner = "optimizer " + name_;
  if (options_.schedule) {
    throw Error(ErrorCode::invalid_argument,
                owner + ": set_learning_rate: the schedule " + name_of(*options_.schedule) +
                    " decides the learning rate; replace it by set_schedule (std::nullopt removes "
                    "it) first");
  }
  check_field(owner, {"learning_rate", &learning_rate, &bounds::kNotNegative});
  const auto lock = uses_->wait();
  options_.learning_rate = learning_rate;
}

void Optimizer::set_momentum(double momentum) {
  const auto lock = uses_->wait();
  assign_momentum(momentum);
}

void Optimizer::assign_momentum(double /*momentum*/) {
  throw Error(ErrorCode::invalid_argument,
              "optimizer " + name_ + ": set_momentum: it has neither momentum nor beta1");
}

void Optimizer::set_schedule(std::optional<Schedule> schedule) {
  if (schedule) optimizer::check_schedule("optimizer " + name_, *schedule, options_.learning_rate);
  const auto lock = uses_->wait();
  options_.schedule = std::move(schedule);
}

Optimizer::Factors Optimizer::factors_of(const Key& key) const {
  if (factors_.empty()) return {};
  const auto found = factors_.find(key);
  return found == factors_.end() ? Factors() : found->second;
}

void Optimizer::set_factors(const Key& key, const Factors& factors) {
  const auto lock = uses_->wait();
  const auto digest = [&](const Factors& of) {
    return of.learning_rate == 1.0 && of.weight_decay == 1.0
               ? 0
               : Digest().add(key).add(of.learning_rate).add(of.weight_decay).value();
  };
  factors_digest_ += digest(factors) - digest(factors_of(key));
  factors_[key] = factors;
}

void Optimizer::set_lr_mult(const Key& key, double factor) {
  require_finite("optimizer " + name_, "lr_mult", key, factor);
  set_factors(key, {factor, factors_of(key).weight_decay});
}

void Optimizer::set_wd_mult(const Key& key, double factor) {
  require_finite("optimizer " + name_, "wd_mult", key, factor);
  set_factors(key, {factors_of(key).learning_rate, factor});
}

UpdateStep Optimizer::step(const Key& key, std::uint64_t count, std::uint64_t num_update) const {
  const Factors factors = factors_of(key);
  const double rate = options_.schedule
                          ? learning_rate_at(*options_.schedule, options_.learning_rate, num_update)
                          : options_.learning_rate;
  return {.count = count,
          .learning_rate = rate * factors.learning_rate,
          .weight_decay = options_.weight_decay * factors.weight_decay,
          .key = Digest().add(key).value()};
}

std::uint64_t Optimizer::fingerprint() const {
  Digest digest;
  digest.add(std::string_view(name_))
      .add(options_.learning_rate)
      .add(options_.weight_decay)
      .add(options_.rescale_grad)
      .add(options_.clip_gradient.value_or(0.0))
      .add(std::uint64_t{options_.multi_precision})
      .add(factors_digest_);
  if (options_.schedule) {
    Schedule schedule = *options_.schedule;
    digest.add(std::string_view(name_of(schedule)));
    for (const OptionField& field : optimizer::fields_of(schedule)) add(digest, field);
  }
  // Where these options are not set, the fingerprint is that of checkpoints from before they
  // existed.
  if (options_.clip_global_norm) {
    digest.add(std::string_view("clip_global_norm")).add(*options_.clip_global_norm);
  }
  if (options_.loss_scale) {
    LossScale scale = *options_.loss_scale;
    digest.add(std::string_view("loss_scale")).add(std::uint64_t{scale.is_dynamic});
    digest.add(scale.init_scale);
    if (scale.is_dynamic) {
      for (const OptionField& field : optimizer::dynamic_fields(scale)) add(digest, field);
    }
  }
  return digest.value();
}

std::string Optimizer::describe() const {
  double rate = options_.learning_rate;
  return name_ + ",learning_rate=" + value_text({"learning_rate", &rate}) +
         (options_.schedule ? optimizer::changes_text(*options_.schedule) : "") +
         (options_.loss_scale ? optimizer::changes_text(*options_.loss_scale) : "");
}

}  // namespace tutti
