// SPDX-License-Identifier: Apache-2.0
// The methods of tutti.KVStore for files, and for reports on itself.
#include <map>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string>

#include "tutti/snapshot.hpp"

#include "runtime/python/communicator.hpp"
#include "runtime/python/store.hpp"

namespace tutti::python {

namespace {

using Texts = std::map<std::string, std::string>;

/// Reads the path, whose errors all ranks get, and runs `call(store, path)`.
template <class Call>
auto with_path(PyStore& self, const char* what, nb::handle given, Call&& call) {
  const Occupancy::Turn turn(self.occupancy(), what);
  KVStore& store = self.get();
  std::string path;
  read_on_all(store, [&] { path = path_text(given, what); });
  return blocking([&] { return call(store, path); });
}

nb::dict load(PyStore& self, nb::handle directory, const LoadOptions& options) {
  const LoadResult found =
      with_path(self, "load", directory,
                [&](KVStore& store, const std::string& path) { return store.load(path, options); });
  nb::dict result;
  result["generation"] = found.generation;
  result["metadata"] = found.metadata;
  result["damaged"] = found.damaged;
  result["reset_residuals"] = found.reset_residuals;
  result["from_memory"] = found.from_memory;
  result["pushes"] = found.pushes;
  result["lost_pushes"] = found.lost_pushes;
  return result;
}

nb::dict verify(PyStore& self) {
  const VerifyResult found = simple(self, "verify", [](KVStore& store) { return store.verify(); });
  nb::dict result;
  result["bytes"] = found.bytes;
  result["healed"] = found.healed;
  result["healed_since_creation"] = found.healed_since_creation;
  return result;
}

}  // namespace

void bind_files(nb::class_<PyStore>& type) {
  const auto directory = nb::arg("directory").none();
  const auto metadata = nb::arg("metadata") = nb::dict();
  type.def(
          "snapshot",
          [](PyStore& self, nb::handle path, const Texts& texts) {
            with_path(self, "snapshot", path, [&](KVStore& store, const std::string& name) {
              tutti::snapshot(store, name, texts);
            });
          },
          directory, metadata,
          "Copies what save() saves into the memory of every node, where load() finds it. "
          "Collective.")
      .def(
          "snapshot_when_due",
          [](PyStore& self, nb::handle path, const Texts& texts) {
            return with_path(self, "snapshot_when_due", path,
                             [&](KVStore& store, const std::string& name) {
                               return tutti::snapshot_when_due(store, name, [&] { return texts; });
                             });
          },
          directory, metadata,
          "A snapshot(), if TUTTI_SNAPSHOT_EVERY has passed since the last; True if it was taken. "
          "Call it at the end of each step. Collective.")
      .def(
          "save_async",
          [](PyStore& self, nb::handle path, const Texts& texts) {
            const Pending pending =
                with_path(self, "save_async", path, [&](KVStore& store, const std::string& name) {
                  return store.save_async(name, texts);
                });
            return PyPending(pending, std::make_shared<Items>(nb::make_tuple()));
          },
          directory, metadata,
          "A snapshot() that a thread of rank 0 copies to the disk. Its Pending is complete there "
          "when the generation is there for good, and on other ranks at once. Collective.")
      .def(
          "save",
          [](PyStore& self, nb::handle directory,
             const std::map<std::string, std::string>& metadata) {
            with_path(self, "save", directory,
                      [&](KVStore& store, const std::string& path) { store.save(path, metadata); });
          },
          nb::arg("directory").none(), nb::arg("metadata") = nb::dict(),
          "Saves values, states and metadata as a new generation in a directory. Collective.")
      .def(
          "load",
          [](PyStore& self, nb::handle directory, Flag weights_only, Flag other_options,
             Flag may_be_absent) {
            return load(self, directory, {weights_only, other_options, may_be_absent});
          },
          nb::arg("directory").none(), nb::kw_only(), nb::arg("weights_only") = false,
          nb::arg("other_options") = false, nb::arg("may_be_absent") = false,
          "Takes back the newest whole generation: a dict of generation (0: none), metadata, "
          "damaged, reset_residuals. Collective.")
      .def(
          "save_optimizer_states",
          [](PyStore& self, nb::handle file) {
            with_path(
                self, "save_optimizer_states", file,
                [](KVStore& store, const std::string& path) { store.save_optimizer_states(path); });
          },
          nb::arg("path").none(), "The optimizer's states alone, in one file. Collective.")
      .def(
          "load_optimizer_states",
          [](PyStore& self, nb::handle file, Flag other_options) {
            with_path(self, "load_optimizer_states", file,
                      [&](KVStore& store, const std::string& path) {
                        store.load_optimizer_states(path, {.other_options = other_options});
                      });
          },
          nb::arg("path").none(), nb::kw_only(), nb::arg("other_options") = false,
          "Takes them back; the store holds the same keys. Collective.")
      .def("verify", verify,
           "Compares all replicas between ranks: a dict of bytes, healed, healed_since_creation. "
           "Collective. Raises DivergenceError without a majority.")
      .def(
          "statistics",
          [](PyStore& self) {
            return to_python(
                simple(self, "statistics", [](KVStore& store) { return store.statistics(); }));
          },
          "What the calls of this rank have cost so far. Local.");
}

}  // namespace tutti::python
