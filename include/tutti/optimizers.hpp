// SPDX-License-Identifier: Apache-2.0
// The optimizers, and how to name one in a string.
//
// Every one has an options struct and a factory: `optimizer::sgd({.momentum = 0.9})`. In the
// formulas t is the key's own update count from 1, lr and wd are learning_rate (after the schedule)
// and weight_decay times the key's multipliers, and
//
//   g' = clip(rescale_grad * g, -clip_gradient, +clip_gradient)         gd = g' + wd*w
//
// where g is the sum over all ranks, divided by the loss scale and clipped by the global norm,
// where these options are set.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/export.h"
#include "tutti/optimizers/adam_family.hpp"
#include "tutti/optimizers/adaptive.hpp"
#include "tutti/optimizers/gradient_descent.hpp"
#include "tutti/optimizers/torch.hpp"

namespace tutti::optimizer {

/// An optimizer from its name and options: "sgd,momentum=0.9,learning_rate=0.1".
///
/// Options are the fields of its struct; clip_gradient=none is no clipping. A schedule adds its own
/// fields and the warm-up's: "adam,schedule=cosine,max_update=10000,warmup_steps=100", also
/// warmup_begin_lr and warmup_mode=linear|constant; multifactor's steps are separated by colons,
/// "sgd,schedule=multifactor,steps=1000:2000,factor=0.1". loss_scale=1024 is a constant loss scale;
/// loss_scale=dynamic adds the fields of LossScale: "adam,loss_scale=dynamic,init_scale=1024".
///
/// `defaults` are more options in the same syntax, without a name: each holds unless `text` gives
/// the option.
/// Errors  invalid_argument: an unknown name or option, with the nearest and all known ones; an
///         option given twice; a value that is no number or out of its range.
TUTTI_API std::shared_ptr<Optimizer> create(std::string_view text, std::string_view defaults = {});

/// The names that create() knows, in alphabetical order.
TUTTI_API std::vector<std::string> names();

/// One line per optimizer and schedule with the options and their defaults. For --help.
TUTTI_API std::string help();

}  // namespace tutti::optimizer
