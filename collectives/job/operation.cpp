// SPDX-License-Identifier: Apache-2.0
#include "collectives/job/operation.hpp"

namespace tutti::collectives {

const char* to_string(Verb verb) noexcept {
  switch (verb) {
    case Verb::of_kind:
      return "call";
    case Verb::barrier:
      return "barrier";
    case Verb::agree:
      return "agree";
    case Verb::allreduce:
      return "allreduce";
    case Verb::broadcast:
      return "broadcast";
    case Verb::reduce:
      return "reduce";
    case Verb::reduce_scatter:
      return "reduce_scatter";
    case Verb::allgather:
      return "allgather";
    case Verb::gather:
      return "gather";
    case Verb::scatter:
      return "scatter";
    case Verb::alltoall:
      return "alltoall";
    case Verb::refused_call:
      return "a call that this rank refused";
    case Verb::init:
      return "init";
    case Verb::push:
      return "push";
    case Verb::verify:
      return "verify";
    case Verb::save:
      return "save";
    case Verb::load:
      return "load";
    case Verb::sum_of_gpus:
      return "sum of GPUs";
  }
  return "unknown";
}

Verb of_kind(Kind kind) noexcept {
  switch (kind) {
    case Kind::barrier:
      return Verb::barrier;
    case Kind::agreement:
      return Verb::agree;
    case Kind::allreduce:
      return Verb::allreduce;
    case Kind::broadcast:
      return Verb::broadcast;
    case Kind::reduce:
      return Verb::reduce;
    case Kind::reduce_scatter:
      return Verb::reduce_scatter;
    case Kind::allgather:
      return Verb::allgather;
    case Kind::gather:
      return Verb::gather;
    case Kind::scatter:
      return Verb::scatter;
    case Kind::alltoall:
      return Verb::alltoall;
    case Kind::refusal:
      return Verb::refused_call;
  }
  return Verb::of_kind;
}

}  // namespace tutti::collectives
