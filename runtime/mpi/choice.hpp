// SPDX-License-Identifier: Apache-2.0
// Which MPI a job needs, from what is known before any is loaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/launch.hpp"
#include "tutti/mpi_abi.hpp"

namespace tutti::mpi {

/// An MPI library: what it says of itself, on one line, and its file.
struct Library {
  std::string version;
  std::string file;
  bool has_standard_abi = false;  ///< MPI_Abi_get_version says so
};

/// What a rank knows before it loads an MPI.
struct Surroundings {
  std::string wanted = "auto";    ///< Settings::mpi
  std::optional<Library> loaded;  ///< by the program, or by a module of Python's
  std::optional<Launch> launch;   ///< empty also where TUTTI_LAUNCHER=ignore
  bool has_pmix = false;          ///< a server of PMIx has started this process
  std::vector<MpiAbi> plugins;    ///< that were built and are there; the first is the default
  std::string folder;             ///< where plug-ins are looked for
};

struct Choice {
  MpiAbi abi = MpiAbi::openmpi;
  std::string library;       ///< the file to load; empty: by its usual names
  bool may_be_none = false;  ///< a job of one rank, which goes on without an MPI
  bool or_standard = false;  ///< if it has no such library, one with the standard ABI will do
};

/// Errors  invalid_argument, with what to do: on this rank alone, but where the launcher's MPI has
///         no plug-in, which all of its processes throw.
Choice choose_mpi(const Surroundings& here);

/// The kind of MPI that says this of itself; empty if it is none that is known. The same MPI may
/// come as two libraries, one with its own ABI, and one with the standard's.
std::optional<MpiAbi> abi_of(const Library& library);

/// "Open MPI", "MPICH", or "MPI's standard ABI".
const char* name_of(MpiAbi abi) noexcept;
/// "libtutti-mpi-openmpi.so"
std::string plugin_name(MpiAbi abi);

/// What MPI_Get_library_version says, as one short line: "Open MPI v4.1.4", "MPICH 4.0.2".
std::string short_version(const std::string& text);

}  // namespace tutti::mpi
