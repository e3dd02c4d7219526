// SPDX-License-Identifier: Apache-2.0
// Choosing the MPI of a job from facts that are known before any MPI is loaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/launch.hpp"
#include "tutti/mpi_abi.hpp"

namespace tutti::mpi {

/// An MPI library: the version that it reports, on one line, and its file.
struct Library {
  std::string version;
  std::string file;
  bool has_standard_abi = false;  ///< as reported by MPI_Abi_get_version
};

/// The facts that a rank knows before it loads an MPI.
struct Surroundings {
  std::string wanted = "auto";    ///< Settings::mpi
  std::optional<Library> loaded;  ///< by the program, or by a module in Python
  std::optional<Launch> launch;   ///< also empty if TUTTI_LAUNCHER=ignore
  bool has_pmix = false;          ///< a PMIx server has started this process
  std::vector<MpiAbi> plugins;    ///< those built and installed; the first is the default
  std::string folder;             ///< the folder that is searched for plug-ins
};

struct ChosenMpi {
  MpiAbi abi = MpiAbi::openmpi;
  std::string library;       ///< the file to load; empty: the usual names
  bool may_be_none = false;  ///< a job of one rank, which needs no MPI
  bool or_standard = false;  ///< if there is no such library, one with the standard ABI also works
};

/// Chooses the MPI. Errors: invalid_argument, with the remedy: on this rank alone, except if the
/// launcher's MPI has no plug-in, where all processes throw.
ChosenMpi choose_mpi(const Surroundings& here);

/// Returns the kind of MPI of a library; nothing if it is not known. The same MPI may exist as two
/// libraries, one with its own ABI, and one with the standard ABI.
std::optional<MpiAbi> abi_of(const Library& library);

/// Returns "Open MPI", "MPICH", "MPI's standard ABI", or "no MPI".
const char* name_of(MpiAbi abi) noexcept;
/// Returns the file name of a plug-in, such as "libtutti-mpi-openmpi.so".
std::string plugin_name(MpiAbi abi);

/// Shortens the text of MPI_Get_library_version to one line: "Open MPI v4.1.4", "MPICH 4.0.2".
std::string short_version(const std::string& text);

}  // namespace tutti::mpi
