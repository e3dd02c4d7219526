// SPDX-License-Identifier: Apache-2.0
// The arrays that a collective is given by Python.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "runtime/python/arguments.hpp"
#include "runtime/python/calls.hpp"
#include "runtime/python/communicator.hpp"

namespace tutti::python {

inline ReduceOp read_operation(const std::string& name) {
  using enum ReduceOp;
  for (const ReduceOp known : {sum, prod, min, max, avg}) {
    if (name == to_string(known)) return known;
  }
  throw Error(ErrorCode::invalid_argument,
              "op: expected \"sum\", \"prod\", \"min\", \"max\" or \"avg\"; got \"" + name + "\"");
}

/// The arrays of a collective, borrowed without copies. Without an output it works in place.
struct Given {
  Loans loans;
  std::vector<TensorView> views;
  ReduceOp op = ReduceOp::sum;

  void read(nb::handle input, nb::handle output) {
    views.push_back(loans.borrow(input, output.is_none() ? Access::write : Access::read, "input"));
    views.push_back(output.is_none() ? views.front() : loans.borrow(output, Access::write, "out"));
  }
  [[nodiscard]] const TensorView& input() const { return views[0]; }
  [[nodiscard]] const TensorView& output() const { return views[1]; }
};

/// Reads arguments by `read`, whose errors all ranks get, and runs `call(communicator, given)`.
template <class Read, class Call>
void with_given(PyCommunicator& self, const char* what, Read&& read, Call&& call) {
  const Occupancy::Turn turn(self.occupancy(), what);
  Communicator& ranks = self.get();
  Given given;
  read_on_all(ranks, [&] { read(given); });
  blocking([&] { call(ranks, given); });
}

}  // namespace tutti::python
