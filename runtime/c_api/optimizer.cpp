// SPDX-License-Identifier: Apache-2.0
#include "tutti/c/optimizer.h"

#include "tutti/optimizers.hpp"

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/handles.hpp"
#include "runtime/c_api/status.hpp"

using namespace tutti::c_api;  // NOLINT: what follows is their face

int tutti_optimizer_create(const char* text, tutti_optimizer** optimizer) {
  return guarded(__func__, [&](const Place& here) {
    tutti_optimizer*& created = required(here, "optimizer", optimizer);
    const char* name_and_options = &required(here, "text", text);
    created = in_place({&here, "text"}, [&] {
      return new tutti_optimizer{.optimizer = tutti::optimizer::create(name_and_options)};
    });
  });
}

int tutti_optimizer_destroy(tutti_optimizer* optimizer) {
  return guarded(__func__, [&](const Place& here) { destroy(here, "optimizer", optimizer); });
}

int tutti_optimizer_set_learning_rate(tutti_optimizer* optimizer, double learning_rate) {
  return guarded(__func__, [&](const Place& here) {
    open(here, "optimizer", optimizer).optimizer->set_learning_rate(learning_rate);
  });
}

int tutti_optimizer_learning_rate(const tutti_optimizer* optimizer, double* learning_rate) {
  return guarded(__func__, [&](const Place& here) {
    const auto& found = *open(here, "optimizer", optimizer).optimizer;
    required(here, "learning_rate", learning_rate) = found.learning_rate();
  });
}

int tutti_optimizer_set_lr_mult(tutti_optimizer* optimizer, const tutti_key* key, double factor) {
  return guarded(__func__, [&](const Place& here) {
    open(here, "optimizer", optimizer).optimizer->set_lr_mult(read_key(here, key), factor);
  });
}

int tutti_optimizer_set_wd_mult(tutti_optimizer* optimizer, const tutti_key* key, double factor) {
  return guarded(__func__, [&](const Place& here) {
    open(here, "optimizer", optimizer).optimizer->set_wd_mult(read_key(here, key), factor);
  });
}
