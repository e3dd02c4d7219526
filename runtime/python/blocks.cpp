// SPDX-License-Identifier: Apache-2.0
// Collectives of blocks, and messages between two ranks, of tutti.Communicator.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>
#include <utility>
#include <vector>

#include "runtime/python/given.hpp"

namespace tutti::python {

namespace {

using Counts = std::vector<std::size_t>;

/// The array of the root; other ranks give None.
TensorView of_root(Given& given, nb::handle array, Access access, const char* name) {
  if (array.is_none()) return {nullptr, {0}, given.input().dtype()};
  return given.loans.borrow(array, access, name);
}

void gather(PyCommunicator& self, nb::handle input, nb::handle out, int root) {
  with_given(
      self, "gather",
      [&](Given& given) {
        given.views.push_back(given.loans.borrow(input, Access::read, "input"));
        given.views.push_back(of_root(given, out, Access::write, "out"));
      },
      [&](Communicator& ranks, const Given& given) {
        ranks.gather(given.input(), given.output(), root);
      });
}

void scatter(PyCommunicator& self, nb::handle input, nb::handle out, int root) {
  with_given(
      self, "scatter",
      [&](Given& given) {
        given.views.push_back(given.loans.borrow(out, Access::write, "out"));
        given.views.push_back(of_root(given, input, Access::read, "input"));
      },
      [&](Communicator& ranks, const Given& given) {
        ranks.scatter(given.output(), given.input(), root);
      });
}

void alltoall(PyCommunicator& self, nb::handle input, nb::handle out) {
  with_given(
      self, "alltoall", [&](Given& given) { given.read(input, out); },
      [](Communicator& ranks, const Given& given) {
        ranks.alltoall(given.input(), given.output());
      });
}

void alltoallv(PyCommunicator& self, nb::handle input, const Counts& input_counts, nb::handle out,
               const Counts& out_counts) {
  with_given(
      self, "alltoallv", [&](Given& given) { given.read(input, out); },
      [&](Communicator& ranks, const Given& given) {
        ranks.alltoallv(given.input(), input_counts, given.output(), out_counts);
      });
}

void allgatherv(PyCommunicator& self, nb::handle input, nb::handle out, const Counts& counts) {
  with_given(
      self, "allgatherv", [&](Given& given) { given.read(input, out); },
      [&](Communicator& ranks, const Given& given) {
        ranks.allgatherv(given.input(), given.output(), counts);
      });
}

/// Runs a message between two ranks. Other ranks take no part, so an error about an array is this
/// rank's alone.
template <class Call>
void message(PyCommunicator& self, const char* what, nb::handle array, Access access, Call&& call) {
  const Occupancy::Turn turn(self.occupancy(), what);
  Communicator& ranks = self.get();
  Loans loans;
  const TensorView view = loans.borrow(array, access, "array");
  blocking([&] { call(ranks, view); });
}

/// The ranks that meet this one, for _messages.py.
std::vector<int> meet_some(PyCommunicator& self, const std::vector<std::pair<int, bool>>& given,
                           int awaited) {
  const Occupancy::Turn turn(self.occupancy(), "wait");
  Communicator& ranks = self.get();
  std::vector<MeetingPartner> partners;
  for (const auto& [rank, has_news] : given) partners.push_back({rank, has_news});
  return blocking([&] { return ranks.meet(partners, awaited); });
}

}  // namespace

void bind_blocks(nb::class_<PyCommunicator>& type) {
  const auto input = nb::arg("input");
  const auto out = nb::arg("out");
  type.def("gather", gather, input, nb::arg("out") = nb::none(), nb::arg("root") = 0,
           "`out` of rank `root` gets the inputs of all ranks, one after the other: size times the "
           "shape of `input`. Other ranks need no `out`. Collective.")
      .def("scatter", scatter, input.none(), out, nb::arg("root") = 0,
           "Rank r gets the r-th of `size` equal blocks of `input` of rank `root` in `out`. Other "
           "ranks give None for `input`. Collective.")
      .def("alltoall", alltoall, input, out,
           "Rank r gets the r-th of `size` equal blocks of every rank, in the order of ranks. "
           "`input` and `out` are apart. Collective.")
      .def("alltoallv", alltoallv, input, nb::arg("input_counts"), out, nb::arg("out_counts"),
           "As alltoall, with blocks of any sizes: input_counts[r] elements go to rank r, and "
           "out_counts[r] come from it. Collective. Raises InvalidArgumentError on all ranks if "
           "they do not fit together.")
      .def("allgatherv", allgatherv, input, out, nb::arg("counts"),
           "As allgather, with counts[r] elements from rank r; all ranks give the same counts. "
           "Collective.")
      .def(
          "send",
          [](PyCommunicator& self, nb::handle array, int to_rank) {
            message(
                self, "send", array, Access::read,
                [&](Communicator& ranks, const TensorView& view) { ranks.send(view, to_rank); });
          },
          nb::arg("array"), nb::arg("to_rank"),
          "A message to another rank; returns when that rank has received it, or, of a small one, "
          "when it is copied: then the next call waits for the other rank. Messages from one rank "
          "to another arrive in order; there are no tags.")
      .def("_meet", meet_some, nb::arg("partners"), nb::arg("awaited"),
           "The ranks that exchange messages with this one next, as (rank, whether there is news "
           "for it); for tutti.torch.")
      .def(
          "receive",
          [](PyCommunicator& self, nb::handle array, int from_rank) {
            message(self, "receive", array, Access::write,
                    [&](Communicator& ranks, const TensorView& view) {
                      ranks.receive(view, from_rank);
                    });
          },
          nb::arg("array"), nb::arg("from_rank"),
          "Takes the next message of a rank, of equal dtype and number of elements.\n\n"
          "Raises MismatchError on both ranks for another dtype or number, and moves nothing.");
}

}  // namespace tutti::python
