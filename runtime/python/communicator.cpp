// SPDX-License-Identifier: Apache-2.0
// tutti.Communicator and tutti.Pending.
#include "runtime/python/communicator.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string>

#include "tutti/error.hpp"
#include "tutti/mpi_abi.hpp"

#include "runtime/python/array.hpp"
#include "runtime/python/given.hpp"

namespace tutti::python {

namespace {

void allreduce(PyCommunicator& self, nb::handle input, nb::handle out, const std::string& op) {
  with_given(
      self, "allreduce",
      [&](Given& given) {
        given.op = read_operation(op);
        given.read(input, out);
      },
      [](Communicator& ranks, const Given& given) {
        ranks.allreduce(given.input(), given.output(), given.op);
      });
}

void reduce(PyCommunicator& self, nb::handle input, nb::handle out, int root,
            const std::string& op) {
  with_given(
      self, "reduce",
      [&](Given& given) {
        given.op = read_operation(op);
        given.views.push_back(given.loans.borrow(input, Access::read, "input"));
        if (out.is_none()) {
          given.views.push_back({nullptr, {0}, given.input().dtype()});
        } else {
          given.views.push_back(given.loans.borrow(out, Access::write, "out"));
        }
      },
      [&](Communicator& ranks, const Given& given) {
        ranks.reduce(given.input(), given.output(), root, given.op);
      });
}

void reduce_scatter(PyCommunicator& self, nb::handle input, nb::handle out, const std::string& op,
                    const std::optional<std::vector<std::size_t>>& counts) {
  with_given(
      self, "reduce_scatter",
      [&](Given& given) {
        given.op = read_operation(op);
        given.read(input, out);
      },
      [&](Communicator& ranks, const Given& given) {
        if (counts) {
          ranks.reduce_scatter(given.input(), given.output(), *counts, given.op);
        } else {
          ranks.reduce_scatter(given.input(), given.output(), given.op);
        }
      });
}

void allgather(PyCommunicator& self, nb::handle input, nb::handle out) {
  with_given(
      self, "allgather", [&](Given& given) { given.read(input, out); },
      [](Communicator& ranks, const Given& given) {
        ranks.allgather(given.input(), given.output());
      });
}

void broadcast(PyCommunicator& self, nb::handle array, int root) {
  with_given(
      self, "broadcast",
      [&](Given& given) {
        given.views.push_back(given.loans.borrow(array, Access::write, "array"));
      },
      [&](Communicator& ranks, const Given& given) { ranks.broadcast(given.input(), root); });
}

/// The arguments of a call; its arrays stay borrowed until it is complete.
std::shared_ptr<Items> read_reduction(const nb::object& input, const nb::object& out) {
  auto items = std::make_shared<Items>(nb::int_(0));
  for (const nb::handle given : {nb::handle(input), nb::handle(out)}) {
    if (is_list(given)) refuse("expected one array for input and out; got a list");
  }
  if (out.is_none()) {
    items->read_outputs(input, "input");
  } else {
    items->read_values(input, "input");
    items->read_outputs(out, "out");
  }
  return items;
}

/// Makes a call whose arguments this rank cannot read, which all ranks learn by wait().
PyPending refuse_on_all(PyCommunicator& self, const std::string& why, int priority) {
  const Pending pending =
      blocking([&] { return self.get().refuse_allreduce_async(why, priority); });
  PyPending call(pending, std::make_shared<Items>(nb::int_(0)));
  self.under_way().add(call);
  return call;
}

PyPending allreduce_async(PyCommunicator& self, const nb::object& input, const nb::object& out,
                          const std::string& op, int priority) {
  const Occupancy::Turn turn(self.occupancy(), "allreduce_async");
  Communicator& ranks = self.get();
  ReduceOp chosen{};
  std::shared_ptr<Items> items;
  try {
    chosen = read_operation(op);
    items = read_reduction(input, out);
  } catch (const Error& error) {
    return refuse_on_all(self, error.what(), priority);
  } catch (const nb::python_error& raised) {
    static_cast<void>(
        refuse_on_all(self, "the arguments raised " + text_of_exception(raised), priority));
    throw;
  }
  const Outputs to = items->outputs();
  const Pending pending = blocking([&] {
    const TensorView& target = to.flat().front();
    const ConstTensorView source =
        items->has_values() ? items->values().flat().front() : ConstTensorView(target);
    return ranks.allreduce_async(source, target, chosen, {.priority = priority, .borrow = true});
  });
  PyPending call(pending, std::move(items));
  self.under_way().add(call);
  return call;
}

/// The address of the MPI communicator of mpi4py, and the kind of MPI that it belongs to.
struct Handle {
  const void* address;
  MpiAbi abi;
};

/// The handle of mpi4py's communicator. Errors  invalid_argument: `given` is no such communicator.
Handle handle_of(const nb::object& given) {
  const nb::handle kind = given.type();
  const std::string module = text_of(nb::object(kind.attr("__module__")));
  if (!module.starts_with("mpi4py") || !nb::hasattr(given, "Get_size")) {
    throw Error(ErrorCode::invalid_argument,
                "from_mpi: expected a communicator of mpi4py, such as MPI.COMM_WORLD; got a " +
                    text_of(nb::object(kind.attr("__name__"))));
  }
  const nb::module_ mpi4py = nb::module_::import_("mpi4py.MPI");
  const auto theirs = nb::cast<std::string>(mpi4py.attr("Get_library_version")());
  MpiAbi abi = theirs.find("Open MPI") == theirs.npos ? MpiAbi::mpich : MpiAbi::openmpi;
  if (nb::hasattr(mpi4py, "Get_abi_version")) {  // from mpi4py 4.1 on; -1 for the MPI's own ABI
    const nb::object version = mpi4py.attr("Get_abi_version")();
    if (nb::cast<int>(version[0]) > 0) abi = MpiAbi::standard;
  }
  const nb::object address = mpi4py.attr("_addressof")(given);
  const void* const handle = PyLong_AsVoidPtr(address.ptr());
  if (handle == nullptr) throw nb::python_error();
  return {handle, abi};
}

PyCommunicator from_mpi(const nb::object& given, const nb::kwargs& settings) {
  const Handle comm = handle_of(given);
  const Settings chosen = read_settings(settings);
  return PyCommunicator(
      blocking([&] { return communicator_from_address(comm.address, comm.abi, chosen); }),
      chosen.asynchronous);
}

void agree(PyCommunicator& self, const nb::object& body) {
  const Occupancy::Turn turn(self.occupancy(), "agree");
  Communicator& ranks = self.get();
  blocking([&] {
    ranks.agree([&] {
      const InCallback callback;
      body();
    });
  });
}

std::string repr_of_communicator(const PyCommunicator& self) {
  const Communicator& ranks = self.get();
  return "<tutti.Communicator rank " + std::to_string(ranks.rank()) + " of " +
         std::to_string(ranks.size()) + ", node " + std::to_string(ranks.node()) + " of " +
         std::to_string(ranks.num_nodes()) + ">";
}

void bind_pending(nb::module_& module) {
  nb::class_<PyPending>(module, "Pending",
                        "An asynchronous call. `wait()` it, ask `ready()`, or `await` it.")
      .def(
          "ready",
          [](const PyPending& self) {
            if (self.ready()) return true;
            self.require_own_process("ready");
            return false;
          },
          "True once the call is complete or has failed. Local.")
      .def("wait", &PyPending::wait,
           "Returns when the call is complete on this rank, and raises what it failed with.")
      .def("__repr__", [](const PyPending& self) {
        return self.ready() ? "<tutti.Pending complete>" : "<tutti.Pending under way>";
      });
}

template <int (Communicator::*kMember)() const noexcept>
int number(const PyCommunicator& self) {
  return (self.get().*kMember)();
}

void bind_collectives(nb::class_<PyCommunicator>& type) {
  constexpr const char* kSum = "sum";
  type.def(
          "allreduce", allreduce, nb::arg("input"), nb::arg("out") = nb::none(),
          nb::arg("op") = kSum,
          "Reduces `input` over all ranks into `out` on every rank; in place without `out`.\n\n"
          "Collective. `out` has the shape and dtype of `input`. op: \"sum\", \"prod\", \"min\" or "
          "\"max\".\n"
          "Raises MismatchError on all ranks if shapes, dtypes or operations differ.")
      .def("allreduce_async", allreduce_async, nb::arg("input"), nb::arg("out") = nb::none(),
           nb::arg("op") = kSum, nb::arg("priority") = 0,
           "An allreduce that goes on while the program computes. The arrays belong to the library "
           "until it is complete. All ranks make these calls in the same order.\n\n"
           "Raises nothing; wait() raises InvalidArgumentError on all ranks for what is wrong with "
           "the "
           "arguments of one.")
      .def("broadcast", broadcast, nb::arg("array"), nb::arg("root") = 0,
           "Copies `array` of rank `root` into `array` of every rank, of one shape and dtype. "
           "Collective.")
      .def("reduce", reduce, nb::arg("input"), nb::arg("out") = nb::none(), nb::arg("root") = 0,
           nb::arg("op") = kSum,
           "Reduces `input` over all ranks into `out` of rank `root`. Other ranks need no `out`. "
           "Collective.")
      .def("reduce_scatter", reduce_scatter, nb::arg("input"), nb::arg("out"), nb::arg("op") = kSum,
           nb::arg("counts") = nb::none(),
           "Reduces `input`; rank r gets the r-th of `size` equal blocks in `out`, or of blocks of "
           "counts[r] elements. Collective.\n\n"
           "Raises InvalidArgumentError on all ranks if `out` is not such a block of `input`.")
      .def("allgather", allgather, nb::arg("input"), nb::arg("out"),
           "`out` gets the inputs of all ranks, one after the other. Collective.\n\n"
           "Raises InvalidArgumentError on all ranks if `out` is not `size` times `input`.")
      .def(
          "barrier",
          [](PyCommunicator& self) {
            const Occupancy::Turn turn(self.occupancy(), "barrier");
            Communicator& ranks = self.get();
            blocking([&] { ranks.barrier(); });
          },
          "Returns when every rank has called it. Collective.")
      .def("agree", agree, nb::arg("body"),
           "Runs `body()` on every rank; if it raises on any, every rank raises. Collective.");
}

void bind_groups(nb::class_<PyCommunicator>& type) {
  type.def_static(
          "world",
          [](const nb::kwargs& settings) {
            const Settings chosen = read_settings(settings);
            return PyCommunicator(blocking([&] { return Communicator::world(chosen); }),
                                  chosen.asynchronous);
          },
          nb::arg("settings"),
          "All ranks of the job of mpirun; else this process alone. Collective.")
      .def_static(
          "self",
          [](const nb::kwargs& settings) {
            const Settings chosen = read_settings(settings);
            return PyCommunicator(blocking([&] { return Communicator::self(chosen); }),
                                  chosen.asynchronous);
          },
          nb::arg("settings"), "This process alone. Never touches MPI.")
      .def_static("from_mpi", from_mpi, nb::arg("comm").none(), nb::arg("settings"),
                  "The ranks of a communicator of mpi4py, in its order. Collective over it.")
      .def(
          "split",
          [](PyCommunicator& self, int color, int key) {
            const Occupancy::Turn turn(self.occupancy(), "split");
            const Communicator& ranks = self.get();
            return PyCommunicator(blocking([&] { return ranks.split(color, key); }),
                                  self.is_asynchronous());
          },
          nb::arg("color"), nb::arg("key") = 0,
          "The group of all ranks that give the same colour, in the order of (key, rank). "
          "Collective.")
      .def(
          "subgroup",
          [](PyCommunicator& self, const std::vector<int>& list) {
            const Occupancy::Turn turn(self.occupancy(), "subgroup");
            const Communicator& ranks = self.get();
            auto group = blocking([&] { return ranks.subgroup(list); });
            if (!group) return std::optional<PyCommunicator>();
            return std::optional<PyCommunicator>(
                PyCommunicator(std::move(*group), self.is_asynchronous()));
          },
          nb::arg("ranks"),
          "The group of these ranks, in this order; None on the others, which call it too. "
          "Collective.")
      .def(
          "create_group",
          [](PyCommunicator& self, const std::vector<int>& list) {
            const Occupancy::Turn turn(self.occupancy(), "create_group");
            const Communicator& ranks = self.get();
            return PyCommunicator(blocking([&] { return ranks.create_group(list); }),
                                  self.is_asynchronous());
          },
          nb::arg("ranks"),
          "The group of these ranks, in this order, which alone call it. Collective over them.");
}

}  // namespace

Communicator& PyCommunicator::get() const {
  if (communicator_) return *communicator_;
  throw Error(ErrorCode::invalid_argument,
              "this communicator is closed; make a new one with Communicator.world()");
}

nb::dict to_python(const Statistics& statistics) {
  nb::list calls;
  for (const CallStatistics& call : statistics.calls) {
    nb::list keys;
    for (const Key& key : call.keys) {
      if (key.is_string()) {
        keys.append(key.text());
      } else {
        keys.append(key.number());
      }
    }
    nb::list last;
    for (const LastRank& rank : call.last) {
      nb::dict entry;
      entry["rank"] = rank.rank;
      entry["calls"] = rank.calls;
      entry["seconds"] = rank.seconds;
      last.append(entry);
    }
    nb::dict entry;
    entry["call"] = call.call;
    entry["keys"] = keys;
    entry["calls"] = call.calls;
    entry["bytes"] = call.bytes;
    entry["seconds"] = call.seconds;
    entry["waiting_seconds"] = call.waiting_seconds;
    entry["last"] = last;
    calls.append(entry);
  }
  nb::dict all;
  all["rank"] = statistics.rank;
  all["seconds"] = statistics.seconds;
  all["calls"] = calls;
  return all;
}

void bind_communicator(nb::module_& module) {
  bind_pending(module);
  auto type = nb::class_<PyCommunicator>(
      module, "Communicator", nb::is_weak_referenceable(),
      "The ranks of an mpirun job, or a group of them. One thread uses it at a time.");
  bind_groups(type);
  bind_collectives(type);
  bind_blocks(type);
  bind_reductions(module);
  type.def_prop_ro("rank", number<&Communicator::rank>, "This rank's number, from 0.")
      .def_prop_ro("size", number<&Communicator::size>, "How many ranks there are.")
      .def_prop_ro("job_rank", number<&Communicator::job_rank>, "The number in the whole job.")
      .def_prop_ro("node", number<&Communicator::node>, "The number of this rank's node.")
      .def_prop_ro("num_nodes", number<&Communicator::num_nodes>, "How many nodes there are.")
      .def_prop_ro("local_rank", number<&Communicator::local_rank>, "The number in the node.")
      .def_prop_ro("local_size", number<&Communicator::local_size>, "How many the node has.")
      .def(
          "allocate",
          [](PyCommunicator& self, nb::handle shape, nb::handle dtype) {
            self.occupancy().require_own_process("allocate");
            return Array::of(self.get().allocate(read_shape(shape), read_dtype(dtype)));
          },
          nb::arg("shape"), nb::arg("dtype") = "float32",
          "An array of zeros in node-shared memory, which collectives move without copies. Local.")
      .def(
          "algorithms",
          [](const PyCommunicator& self) {
            const Occupancy::Turn turn(self.occupancy(), "algorithms");
            const Communicator& ranks = self.get();
            return blocking([&] { return ranks.algorithms(); });
          },
          "How this communicator's calls move data, as text. Local.")
      .def(
          "statistics",
          [](const PyCommunicator& self) {
            const Occupancy::Turn turn(self.occupancy(), "statistics");
            const Communicator& ranks = self.get();
            return to_python(blocking([&] { return ranks.statistics(); }));
          },
          "What the calls of this rank have cost so far. Local.")
      .def(
          "stop_requested",
          [](const PyCommunicator& self) {
            self.occupancy().require_own_process("stop_requested");
            return blocking([&] { return self.get().stop_requested(); });
          },
          "True once a signal or request_stop() on any rank asked the job to stop. Local.")
      .def(
          "request_stop",
          [](const PyCommunicator& self) {
            self.occupancy().require_own_process("request_stop");
            self.get().request_stop();
          },
          "Asks all ranks to stop; they know after the next collective call. Local.")
      .def("close", close_by_program<PyCommunicator>,
           "Leaves the group. Local.\n\n"
           "Raises InvalidArgumentError in an updater, or while another thread is in a call.")
      .def("__repr__", repr_of_communicator);
}

}  // namespace tutti::python
