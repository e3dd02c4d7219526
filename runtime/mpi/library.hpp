// SPDX-License-Identifier: Apache-2.0
// The MPI of this process: at most one, as its names are global.
#pragma once

#include <optional>
#include <string>

#include "tutti/settings.hpp"

#include "runtime/mpi/choice.hpp"
#include "runtime/mpi/plugin/calls.hpp"

namespace tutti::mpi {

/// Loads the MPI that the settings, the program or the launcher mean, unless that has been done.
/// False if this is a job of one rank, and there is no MPI for it: why is in why_none().
/// Errors: see choose_mpi(); io: the MPI's library cannot be loaded, or the plug-in is damaged.
bool load(const Settings& settings);

/// Those variables that say which MPI is meant, and how long a wait may take. The others are not
/// read, so that it may be asked where one of them cannot be.
Settings settings_by_variables();
/// As load() with these.
bool load_by_variables();
/// The same, and an error where there is none.
const Calls& load_or_throw();

/// What load() has loaded.
const Calls& calls() noexcept;
/// Null until then.
const Calls* loaded_calls() noexcept;
/// The file of the plug-in, or "linked".
std::string plugin_file();
std::string why_none();

/// The MPI that the program itself has loaded, if any.
std::optional<Library> mpi_of_program();

/// How the two libraries differ: opener.cpp of the shared one looks for plug-ins, and linked.cpp of
/// the static one has its calls. Null `calls`: none is needed, and `why` says why there is none.
struct Opened {
  const Calls* calls = nullptr;
  std::string file;
  std::string why;
};
Opened open_mpi(const std::string& wanted, bool looks_at_launcher);

}  // namespace tutti::mpi
