// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/choice.hpp"

#include <algorithm>
#include <sstream>

#include "tutti/error.hpp"

#include "collectives/job/names.hpp"

namespace tutti::mpi {

namespace {

bool has(const Surroundings& here, MpiAbi abi) {
  return std::find(here.plugins.begin(), here.plugins.end(), abi) != here.plugins.end();
}

/// Describes the missing plug-in and those that exist, with the remedy.
std::string without_plugin(const Surroundings& here, MpiAbi abi) {
  std::string found;
  for (const MpiAbi other : here.plugins) found += (found.empty() ? "" : ", ") + plugin_name(other);
  return std::string("this build of Tutti has no plug-in for ") + name_of(abi) + ": expected " +
         plugin_name(abi) + ", found " + (found.empty() ? "none" : found) + " in " + here.folder +
         "; build Tutti with -DTUTTI_MPIS=MPICXX, the mpicxx of " + name_of(abi);
}

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text);
}

/// Returns the choice if the program has loaded an MPI. A process can have no other one, because
/// two MPIs define the same names.
ChosenMpi loaded_one(const Surroundings& here, std::optional<MpiAbi> wanted) {
  const std::string loaded =
      here.loaded->version + (here.loaded->file.empty() ? "" : " (" + here.loaded->file + ")");
  const std::optional<MpiAbi> abi = abi_of(*here.loaded);
  if (!abi) {
    refuse("this process has loaded an MPI that Tutti does not know, " + loaded +
           "; expected Open MPI, one of MPICH's kin, or an MPI with the standard ABI");
  }
  if (wanted && *wanted != *abi) {
    refuse("TUTTI_MPI=" + here.wanted + ", but this process has loaded " + loaded +
           ", and cannot have two MPIs; unset TUTTI_MPI, or start a program without that MPI");
  }
  if (!has(here, *abi)) {
    refuse("this process has loaded " + loaded + ", and " + without_plugin(here, *abi));
  }
  return {*abi, here.loaded->file, false};
}

/// Returns the kind of MPI whose launcher has started this process, if it is known.
std::optional<MpiAbi> launched_by(const Surroundings& here) {
  if (here.launch && !here.launch->mpi.empty() && here.launch->mpi != "none") {
    return here.launch->mpi == "openmpi" ? MpiAbi::openmpi : MpiAbi::mpich;
  }
  if (here.has_pmix && has(here, MpiAbi::openmpi)) return MpiAbi::openmpi;
  return std::nullopt;
}

}  // namespace

const char* name_of(MpiAbi abi) noexcept {
  constexpr const char* kNames[] = {"Open MPI", "MPICH", "MPI's standard ABI", "no MPI"};
  return collectives::name_in<MpiAbi::none>(kNames, abi);
}

std::string plugin_name(MpiAbi abi) {
  return std::string("libtutti-mpi-") + to_string(abi) + ".so";
}

std::optional<MpiAbi> abi_of(const Library& library) {
  if (library.has_standard_abi) return MpiAbi::standard;
  const auto says = [&](const char* name) {
    return library.version.find(name) != std::string::npos;
  };
  if (says("Open MPI")) return MpiAbi::openmpi;
  if (says("MPICH") || says("MVAPICH") || says("Intel(R) MPI")) return MpiAbi::mpich;
  return std::nullopt;
}

std::string short_version(const std::string& text) {
  std::istringstream words(text.substr(0, text.find_first_of(",\n")));
  std::string line;
  for (std::string word; words >> word;) {  // MPICH's text has "MPICH Version:" and a tab
    if (word != "Version:") line += (line.empty() ? "" : " ") + word;
  }
  return line;
}

ChosenMpi choose_mpi(const Surroundings& here) {
  const bool is_file = here.wanted.find('/') != std::string::npos;
  std::optional<MpiAbi> wanted;
  for (const MpiAbi abi : {MpiAbi::openmpi, MpiAbi::mpich, MpiAbi::standard}) {
    if (here.wanted == to_string(abi)) wanted = abi;
  }
  if (here.loaded) return loaded_one(here, wanted);
  if (wanted) {
    if (!has(here, *wanted))
      refuse("TUTTI_MPI=" + here.wanted + ": " + without_plugin(here, *wanted));
    return {*wanted, "", false};
  }
  std::optional<MpiAbi> launcher = launched_by(here);
  const bool has_standard = has(here, MpiAbi::standard);
  if (launcher && !has(here, *launcher) && has_standard) launcher = MpiAbi::standard;
  const bool is_alone = here.launch ? here.launch->size == 1 : !here.has_pmix;
  if (launcher && has(here, *launcher)) return {*launcher, "", is_alone, has_standard};
  if (launcher && !is_alone && !is_file) {
    const Launch& launch = *here.launch;
    const std::string number =
        launch.size > 1 ? std::to_string(launch.size) + " processes" : "several processes";
    throw Error(ErrorCode::invalid_argument,
                launch.launcher + " has started " + number + " (" + launch.evidence + "), but " +
                    without_plugin(here, *launcher) +
                    ", or start it with the launcher of an MPI that has one (launch.sh finds it); "
                    "if each is "
                    "meant to be alone, TUTTI_LAUNCHER=ignore",
                ErrorScope::agreed, /*reporter=*/launch.rank <= 0);
  }
  if (here.plugins.empty()) {
    if (is_alone) return {MpiAbi::openmpi, "", true};
    refuse("several processes have been started, but there is no plug-in for any MPI in " +
           here.folder + "; install Tutti as a whole, or build it with -DTUTTI_MPIS=MPICXX");
  }
  return {here.plugins.front(), "", is_alone, has_standard};
}

}  // namespace tutti::mpi

namespace tutti {

const char* to_string(MpiAbi abi) noexcept {
  constexpr const char* kNames[] = {"openmpi", "mpich", "standard", "none"};
  return collectives::name_in<MpiAbi::none>(kNames, abi);
}

}  // namespace tutti
