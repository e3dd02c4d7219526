// SPDX-License-Identifier: Apache-2.0
// The MPI of this process, of which there is at most one, because its names are global.
#pragma once

#include <optional>
#include <string>

#include "tutti/settings.hpp"

#include "runtime/mpi/choice.hpp"
#include "runtime/mpi/plugin/calls.hpp"

namespace tutti::mpi {

/// Loads the MPI that the settings, the program or the launcher determine, unless it is loaded
/// already. Returns false in a job of one rank if there is no MPI; why_none() then has the reason.
/// Errors: see choose_mpi(); io if the MPI's library cannot be loaded, or the plug-in is damaged.
bool load(const Settings& settings);

/// Returns settings with only those variables that determine the MPI and the deadline. The others
/// are not read, so that this works even if one of them is invalid.
Settings settings_by_variables();
/// Calls load() with these settings.
bool load_by_variables();
/// Does the same, and throws if there is no MPI.
const Calls& load_or_throw();

/// Returns the calls of the MPI that load() has loaded.
const Calls& calls() noexcept;
/// Does the same; null before load().
const Calls* loaded_calls() noexcept;
/// Returns the file of the plug-in, or "linked", or "none".
std::string plugin_file();
std::string why_none();

/// Returns the MPI that the program itself has loaded, if any.
std::optional<Library> mpi_of_program();

/// The result of open_mpi(), which differs between the two libraries: in the shared one, opener.cpp
/// looks for plug-ins; in the static one, linked.cpp has the calls. If `calls` is null, none is
/// needed, and `why` has the reason why there is none.
struct Opened {
  const Calls* calls = nullptr;
  std::string file;
  std::string why;
};
Opened open_mpi(const std::string& wanted, bool looks_at_launcher);

}  // namespace tutti::mpi
