// SPDX-License-Identifier: Apache-2.0
// The methods of tutti.KVStore for files, and for reports on itself.
#include <map>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string>

#include "runtime/python/communicator.hpp"
#include "runtime/python/store.hpp"

namespace tutti::python {

namespace {

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
  type.def(
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
