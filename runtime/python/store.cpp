// SPDX-License-Identifier: Apache-2.0
// The class tutti.KVStore.
#include "runtime/python/store.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string>
#include <utility>

#include "tutti/optimizer_states.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/python/array.hpp"
#include "runtime/python/communicator.hpp"
#include "runtime/python/updaters.hpp"

namespace tutti::python {

namespace {

/// Reads items by `read(items)`, whose errors all ranks get, and runs `call(store, items)`.
template <class Read, class Call>
void collective(PyStore& self, const char* what, nb::handle keys, Read&& read, Call&& call) {
  const Occupancy::Turn turn(self.occupancy(), what);
  KVStore& store = self.get();
  std::optional<Items> items;
  read_on_all(store, [&] { read(items.emplace(keys)); });
  blocking([&] { call(store, *items); });
}

void init(PyStore& self, nb::handle keys, nb::handle values) {
  collective(
      self, "init", keys, [&](Items& items) { items.read_values(values); },
      [](KVStore& store, const Items& items) { store.init(items.keys(), items.values()); });
}

void push(PyStore& self, nb::handle keys, nb::handle values, int priority) {
  collective(
      self, "push", keys, [&](Items& items) { items.read_values(values); },
      [&](KVStore& store, const Items& items) {
        store.push(items.keys(), items.values(), priority);
      });
}

void pushpull(PyStore& self, nb::handle keys, nb::handle values, nb::handle out, int priority) {
  collective(
      self, "pushpull", keys,
      [&](Items& items) {
        if (out.is_none()) {
          items.read_outputs(values, "values");
        } else {
          items.read_values(values);
          items.read_outputs(out);
        }
      },
      [&](KVStore& store, const Items& items) {
        if (out.is_none()) {
          store.pushpull(items.keys(), items.outputs(), priority);
        } else {
          store.pushpull(items.keys(), items.values(), items.outputs(), priority);
        }
      });
}

void broadcast_keys(PyStore& self, nb::handle keys, nb::handle values, nb::handle out) {
  collective(
      self, "broadcast", keys,
      [&](Items& items) {
        items.read_values(values);
        items.read_outputs(out);
      },
      [](KVStore& store, const Items& items) {
        store.broadcast(items.keys(), items.values(), items.outputs());
      });
}

void pull(PyStore& self, nb::handle keys, nb::handle out, Flag cast, Flag ignore_sparse,
          int priority) {
  const Occupancy::Turn turn(self.occupancy(), "pull");
  const KVStore& store = self.get();
  Items items(keys);
  items.read_outputs(out);
  blocking([&] {
    store.pull(items.keys(), items.outputs(),
               {.cast = cast ? Cast::yes : Cast::no,
                .ignore_sparse = ignore_sparse,
                .priority = priority});
  });
}

PyPending push_async(PyStore& self, nb::handle keys, nb::handle values, int priority, Flag borrow) {
  const Occupancy::Turn turn(self.occupancy(), "push_async");
  KVStore& store = self.get();
  auto items = std::make_shared<Items>(keys);
  items->read_values(values);
  const Pending pending = blocking([&] {
    return store.push_async(items->keys(), items->values(),
                            {.priority = priority, .borrow = borrow});
  });
  PyPending call(pending, std::move(items));
  self.under_way().add(call);
  return call;
}

PyPending pushpull_async(PyStore& self, nb::handle keys, nb::handle values, nb::handle out,
                         int priority, Flag borrow) {
  const Occupancy::Turn turn(self.occupancy(), "pushpull_async");
  KVStore& store = self.get();
  auto items = std::make_shared<Items>(keys);
  items->read_values(values);
  items->read_outputs(out);
  const Pending pending = blocking([&] {
    return store.pushpull_async(items->keys(), items->values(), items->outputs(),
                                {.priority = priority, .borrow = borrow});
  });
  PyPending call(pending, std::move(items));
  self.under_way().add(call);
  return call;
}

Array view(PyStore& self, nb::handle key) {
  const Occupancy::Turn turn(self.occupancy(), "view");
  const KVStore& store = self.get();
  const Key asked = read_key(key);
  return Array::of(blocking([&] { return store.view(asked); }));
}

void init_row_sparse(PyStore& self, nb::handle key, nb::handle table, nb::handle dtype) {
  const Occupancy::Turn turn(self.occupancy(), "init_row_sparse");
  KVStore& store = self.get();
  const bool is_shape = nb::isinstance<nb::tuple>(table);
  std::optional<Items> items;
  Shape shape;
  DType element = DType::float32;
  read_on_all(store, [&] {
    items.emplace(key);
    if (is_shape) {
      if (!items->is_single()) {
        throw Error(ErrorCode::invalid_argument,
                    "init_row_sparse: expected one key, an int or a str, for a table of zeros; got "
                    "a list of keys");
      }
      shape = read_shape(table);
      if (!dtype.is_none()) element = read_dtype(dtype);
    } else {
      if (!dtype.is_none()) {
        throw Error(ErrorCode::invalid_argument,
                    "init_row_sparse: a dtype is for a table of zeros; an array has its own");
      }
      items->read_values(table);
    }
  });
  blocking([&] {
    if (is_shape) {
      store.init_row_sparse(items->key_list().front(), shape, element);
    } else {
      store.init_row_sparse(items->keys(), items->values());
    }
  });
}

void push_rows(PyStore& self, nb::handle key, nb::handle ids, nb::handle rows, int priority) {
  const Occupancy::Turn turn(self.occupancy(), "push_rows");
  KVStore& store = self.get();
  Loans loans;
  std::optional<Key> asked;
  std::vector<RowSparseView> value;
  const RowSparse none;
  read_on_all(store, [&] {
    asked = read_key(key);
    if (ids.is_none() && rows.is_none()) {
      value.push_back(none);
    } else {
      const TensorView which = loans.borrow(ids, Access::read, "ids");
      value.push_back(row_sparse(which, loans.borrow(rows, Access::read, "rows")));
    }
  });
  blocking([&] { store.push(*asked, std::span<const RowSparseView>(value), priority); });
}

nb::tuple pull_rows(PyStore& self, nb::handle key, nb::handle ids, nb::handle device) {
  const Occupancy::Turn turn(self.occupancy(), "pull_rows");
  const KVStore& store = self.get();
  Loans loans;
  const Key asked = read_key(key);
  const ConstTensorView which = loans.borrow(ids, Access::read, "ids");
  RowSparse pulled;
  pulled.rows = Tensor::empty({0}, DType::float32, read_device(device));
  blocking([&] { store.row_sparse_pull(asked, pulled, which); });
  return nb::make_tuple(Array::of(std::move(pulled.ids)), Array::of(std::move(pulled.rows)));
}

void set_compression(PyStore& self, nb::handle given, const nb::kwargs& options) {
  const Occupancy::Turn turn(self.occupancy(), "set_gradient_compression");
  KVStore& store = self.get();
  std::string text;
  if (nb::isinstance<nb::dict>(given)) {  // MXNet's form: {"type": "2bit", "threshold": 0.5}
    if (options.size() > 0) {
      throw Error(ErrorCode::invalid_argument,
                  "set_gradient_compression: options are in the dict, or beside a name; got both");
    }
    const auto rest = nb::cast<nb::dict>(given.attr("copy")());
    if (!rest.contains("type")) {
      throw Error(ErrorCode::invalid_argument,
                  "set_gradient_compression: expected {\"type\": \"2bit\", ...}; got no \"type\"");
    }
    const std::string name = text_of(nb::object(rest["type"]));
    PyDict_DelItemString(rest.ptr(), "type");
    text = option_text(name, rest);
  } else {
    text = option_text(text_of(given), options);
  }
  blocking([&] { store.set_gradient_compression(text); });
}

std::string repr_of_store(const PyStore& self) {
  const KVStore& store = self.get();
  return "<tutti.KVStore \"" + std::string(store.type()) + "\" rank " +
         std::to_string(store.rank()) + " of " + std::to_string(store.num_workers()) + ">";
}

void bind_values(nb::class_<PyStore>& type) {
  const auto keys = nb::arg("keys").none();
  const auto priority = nb::arg("priority") = 0;
  const auto no_values = nb::arg("values") = nb::none();
  const auto no_out = nb::arg("out") = nb::none();
  type.def("init", init, keys, no_values,
           "Stores the first value of each key: rank 0's. Once per key. Collective.\n\n"
           "keys: an int or str, a list of them, or a dict of key: value.\n"
           "values: an array of any shape, or one for each key.\n"
           "Raises InvalidArgumentError on all ranks for a key that exists, or a value that is no "
           "dense array of a known dtype.")
      .def("push", push, keys, no_values, priority,
           "Sums each key's values over the list and over all ranks, then runs the updater.\n\n"
           "Collective: all ranks push the same keys, shapes and dtypes, in the same order.\n"
           "values: arrays of the key's shape and dtype. A list for one key is summed; a list of "
           "keys takes a list of values, or of lists.\n"
           "Raises InvalidArgumentError or MismatchError on all ranks, which changes nothing; "
           "UserCodeError if an updater raised; TimeoutError or CommunicationError if a rank does "
           "not come.")
      .def("pull", pull, keys, no_out, nb::kw_only(), nb::arg("cast") = false,
           nb::arg("ignore_sparse") = true, priority,
           "Copies this rank's replica into every array of `out`, which is written in place. "
           "Local.\n\nout: writable arrays of the key's shape and dtype.\n"
           "cast: converts to the outputs' dtypes. ignore_sparse: leaves the outputs of row-sparse "
           "keys as they are.\n"
           "Raises InvalidArgumentError for an unknown key, another shape or another dtype.")
      .def("pushpull", pushpull, keys, no_values, no_out, priority,
           "push, then pull of the new values; without `out`, over `values`. Collective.\n\n"
           "Shapes and errors are those of push() and pull().")
      .def("broadcast", broadcast_keys, keys, no_values, no_out,
           "init, then pull: every rank's `out` gets rank 0's values. Collective.")
      .def("push_async", push_async, keys, no_values, priority, nb::kw_only(),
           nb::arg("borrow") = false,
           "A push that goes on while the program computes. Ranks may push keys in any order.\n\n"
           "borrow: values in ordinary memory are not copied, and stay as they are until then. "
           "priority: a higher one goes first; the same on all ranks.\n"
           "Raises InvalidArgumentError at once, on this rank alone; wait() raises what push() "
           "does.")
      .def("pushpull_async", pushpull_async, keys, nb::arg("values"), nb::arg("out"), priority,
           nb::kw_only(), nb::arg("borrow") = false,
           "push_async, whose outputs have the new values when it is complete.")
      .def("view", view, nb::arg("key").none(),
           "This rank's replica, read-only and without a copy. It keeps the memory that it shows; "
           "its content is valid until the next push of the key. Local.\n\n"
           "Raises InvalidArgumentError for an unknown key.")
      .def(
          "allocate",
          [](PyStore& self, nb::handle shape, nb::handle dtype) {
            self.occupancy().require_own_process("allocate");
            const Shape asked = read_shape(shape);
            return Array::of(self.get().allocate(asked, read_dtype(dtype)));
          },
          nb::arg("shape"), nb::arg("dtype") = "float32",
          "An array of zeros in the store's memory, which is pushed without any copy. Local.\n\n"
          "shape: 7, (2, 3) or [2, 3]. dtype: \"float32\", numpy.float32 or torch.float32.\n"
          "Raises OutOfMemoryError before any page is touched.");
}

void bind_rows(nb::class_<PyStore>& type) {
  const auto priority = nb::arg("priority") = 0;
  type.def("init_row_sparse", init_row_sparse, nb::arg("key").none(), nb::arg("table"),
           nb::arg("dtype") = nb::none(),
           "A key of which pushes name rows. `table`: an array, or the shape of one of zeros, as a "
           "tuple. `dtype`: of the zeros; float32 unless given. Collective.")
      .def("push_rows", push_rows, nb::arg("key").none(), nb::arg("ids") = nb::none(),
           nb::arg("rows") = nb::none(), priority,
           "Pushes rows of a row-sparse key: ids (n) of integers, rows (n, ...). Ranks may push "
           "different rows, or none. Collective.")
      .def("pull_rows", pull_rows, nb::arg("key").none(), nb::arg("ids").none(),
           nb::arg("device") = "cpu",
           "(ids, rows) of this rank's replica: each row once, ascending. `device`: where the rows "
           "come to, \"cpu\" or \"gpu(0)\"; ids are on the host. Local.");
}

/// The states of a key as (updates, [states]).
nb::tuple states_of(PyStore& self, nb::handle key) {
  const Key asked = read_key(key);
  const KeyStates found =
      simple(self, "states", [&](const KVStore& store) { return optimizer_states(store, asked); });
  nb::list states;
  for (const ConstTensorView& state : found.states) states.append(Array::of(state));
  return nb::make_tuple(found.updates, states);
}

/// Sets states from {key: (updates, [states])}.
void set_states(PyStore& self, const nb::dict& given) {
  const Occupancy::Turn turn(self.occupancy(), "set_states");
  KVStore& store = self.get();
  Loans loans;
  std::vector<KeyStates> all;
  read_on_all(store, [&] {
    for (const auto& [key, value] : given) {
      const auto [updates, states] = nb::cast<std::pair<std::uint64_t, nb::list>>(value);
      KeyStates& one = all.emplace_back(KeyStates{.key = read_key(key), .updates = updates});
      for (const nb::handle state : states) {
        one.states.push_back(loans.borrow(state, Access::read, "states"));
      }
    }
  });
  blocking([&] { set_optimizer_states(store, all); });
}

nb::dict gradient_scaling(PyStore& self) {
  const GradientScaling now = simple(self, "gradient_scaling",
                                     [](const KVStore& store) { return store.gradient_scaling(); });
  nb::dict all;
  all["loss_scale"] = now.loss_scale;
  all["good_pushes"] = now.good_pushes;
  all["skipped"] = now.skipped;
  all["norm"] = now.norm;
  all["was_skipped"] = now.was_skipped;
  return all;
}

void bind_updates(nb::class_<PyStore>& type) {
  type.def(
          "set_updater",
          [](PyStore& self, nb::object updater, nb::object rows) {
            Updater dense = dense_updater(std::move(updater), self.occupancy());
            RowSparseUpdater sparse = row_updater(std::move(rows), self.occupancy());
            simple(self, "set_updater",
                   [&](KVStore& store) { store.set_updater(std::move(dense), std::move(sparse)); });
            self.keep(nullptr);
          },
          nb::arg("updater").none(), nb::arg("rows") = nb::none(),
          "updater(key, merged, stored) changes `stored` in place; None assigns. It runs on every "
          "rank and must do the same there. rows(key, ids, rows, stored) is for row-sparse keys.")
      .def(
          "set_optimizer",
          [](PyStore& self, nb::handle given, const nb::kwargs& options) {
            std::shared_ptr<Optimizer> optimizer;
            if (options.size() > 0 && !nb::isinstance<nb::str>(given)) {
              throw Error(ErrorCode::invalid_argument,
                          "set_optimizer: options go with a name, and " + repr_of(given) +
                              " has its own; give them to tutti.optimizer()");
            }
            if (nb::isinstance<nb::str>(given)) {
              optimizer =
                  tutti::optimizer::create(option_text(nb::cast<std::string>(given), options));
            } else if (!nb::try_cast(given, optimizer) || !optimizer) {
              throw Error(ErrorCode::invalid_argument,
                          "set_optimizer: expected a name, such as \"sgd\", or what "
                          "tutti.optimizer() made; got " +
                              repr_of(given));
            }
            simple(self, "set_optimizer", [&](KVStore& store) { store.set_optimizer(optimizer); });
            self.keep(std::move(optimizer));
          },
          nb::arg("optimizer"), nb::arg("options"),
          "Makes the store run an optimizer: kv.set_optimizer(\"sgd\", learning_rate=0.1). Call it "
          "on every rank.")
      .def_prop_ro(
          "optimizer",
          [](PyStore& self) {
            simple(self, "optimizer",
                   [](const KVStore& store) { static_cast<void>(store.optimizer()); });
            return self.optimizer();
          },
          "The optimizer in use: kv.optimizer.learning_rate = 0.01, on every rank. Local.\n\n"
          "Raises InvalidArgumentError if there is none.")
      .def("_states_of", states_of, nb::arg("key"))
      .def("_set_states", set_states, nb::arg("states"))
      .def_prop_ro(
          "loss_scale",
          [](PyStore& self) {
            return simple(self, "loss_scale",
                          [](const KVStore& store) { return store.loss_scale(); });
          },
          "What to multiply the loss by before the next push: 1 without the optimizer's option "
          "loss_scale. Local.")
      .def("gradient_scaling", gradient_scaling,
           "What happened to the gradients, with clip_global_norm or loss_scale: a dict with "
           "loss_scale, good_pushes, skipped, norm and was_skipped. Local.")
      .def("set_gradient_compression", set_compression, nb::arg("compression"), nb::arg("options"),
           "Compresses what later pushes send: (\"2bit\", threshold=0.5). Call it on every rank.");
}

void bind_job(nb::class_<PyStore>& type) {
  type.def_prop_ro(
          "rank", [](const PyStore& self) { return self.get().rank(); },
          "This rank's number, from 0.")
      .def_prop_ro(
          "num_workers", [](const PyStore& self) { return self.get().num_workers(); },
          "How many ranks hold a replica.")
      .def_prop_ro(
          "type", [](const PyStore& self) { return std::string(self.get().type()); },
          "\"local\", \"device\" or \"dist\".")
      .def_prop_ro("_is_asynchronous", &PyStore::is_asynchronous)
      .def(
          "keys",
          [](PyStore& self) {
            const std::vector<Key> keys =
                simple(self, "keys", [](const KVStore& store) { return store.keys(); });
            nb::list list;
            for (const Key& key : keys) {
              key.is_string() ? list.append(key.text()) : list.append(key.number());
            }
            return list;
          },
          "The keys that the store holds, ascending; after a load those of the checkpoint. Local.")
      .def(
          "is_capable",
          [](const PyStore& self, const std::string& capability) {
            return self.get().is_capable(capability);
          },
          nb::arg("capability"), "True for \"optimizer\": the store can run one. Local.")
      .def(
          "stop_requested",
          [](PyStore& self) {
            return simple(self, "stop_requested",
                          [](const KVStore& store) { return store.stop_requested(); });
          },
          "True once a signal or request_stop() on any rank asked the job to stop. Local.")
      .def(
          "request_stop",
          [](PyStore& self) {
            self.occupancy().require_own_process("request_stop");
            self.get().request_stop();
          },
          "Asks all ranks to stop; they know after the next collective call. Local.")
      .def(
          "barrier",
          [](PyStore& self) { simple(self, "barrier", [](KVStore& store) { store.barrier(); }); },
          "Returns when every rank has called it. Collective.")
      .def(
          "agree",
          [](PyStore& self, const nb::object& body) {
            simple(self, "agree", [&](KVStore& store) {
              store.agree([&] {
                const InCallback callback;
                body();
              });
            });
          },
          nb::arg("body"),
          "Runs `body()` on every rank; if it raises on any, every rank raises. Collective.")
      .def("close", close_by_program<PyStore>,
           "Leaves the job's group. Local.\n\n"
           "Raises InvalidArgumentError in an updater, or while another thread is in a call.")
      .def("__repr__", repr_of_store);
}

}  // namespace

void bind_store(nb::module_& module) {
  auto type = nb::class_<PyStore>(
      module, "KVStore", nb::is_weak_referenceable(),
      "A replicated key-value store: every rank holds a replica of every value.\n\n"
      "Collective calls are made by every rank, in the same order, with the same keys, shapes and "
      "dtypes. One thread uses a store at a time.");
  bind_values(type);
  bind_rows(type);
  bind_updates(type);
  bind_files(type);
  bind_job(type);
  module.def(
      "create",
      [](const std::string& name, const nb::kwargs& settings) {
        const Settings chosen = read_settings(settings);
        return PyStore(blocking([&] { return KVStore::create(name, chosen); }),
                       chosen.asynchronous);
      },
      nb::arg("type") = "local", nb::arg("settings"));
  module.def(
      "create_over",
      [](const PyCommunicator& ranks) {
        const Occupancy::Turn turn(ranks.occupancy(), "create");
        const Communicator& communicator = ranks.get();
        return PyStore(blocking([&] { return KVStore::create(communicator); }),
                       ranks.is_asynchronous());
      },
      nb::arg("communicator"));
}

}  // namespace tutti::python
