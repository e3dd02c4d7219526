// SPDX-License-Identifier: Apache-2.0
#include "collectives/job/operation.hpp"

#include "collectives/job/names.hpp"

namespace tutti::collectives {

const char* to_string(Verb verb) noexcept {
  constexpr const char* kNames[] = {"call",           "barrier",   "agree",
                                    "allreduce",      "broadcast", "reduce",
                                    "reduce_scatter", "allgather", "gather",
                                    "scatter",        "alltoall",  "a call that this rank refused",
                                    "init",           "push",      "verify",
                                    "save",           "load",      "sum of GPUs"};
  return name_in<Verb::sum_of_gpus>(kNames, verb);
}

/// Relies on the same order of both enumerations.
Verb of_kind(Kind kind) noexcept {
  constexpr int kFirst = static_cast<int>(Verb::barrier);
  static_assert(kFirst + static_cast<int>(Kind::refusal) == static_cast<int>(Verb::refused_call));
  return static_cast<Verb>(kFirst + static_cast<int>(kind));
}

}  // namespace tutti::collectives
