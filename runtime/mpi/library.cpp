// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/library.hpp"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "tutti/error.hpp"
#include "tutti/launch.hpp"

#include "runtime/mpi/sockets/calls.hpp"

namespace tutti::mpi {

namespace {

/// Global, as MPI is. It is read even while the process exits.
constinit std::atomic<const Calls*> the_calls{nullptr};

/// How the MPI was found, or why none was.
struct State {
  std::mutex mutex;
  Opened opened;
  std::string wanted;
};

State& state() {
  static State state;
  return state;
}

/// The ranks of a launcher without an MPI, such as torchrun, meet without one.
bool is_job_without_mpi(const std::string& wanted, bool looks_at_launcher) {
  if (wanted != "auto" || !looks_at_launcher) return false;
  const std::optional<Launch> launch = find_launch();
  return launch && launch->mpi == to_string(MpiAbi::none);
}

/// The program's own MPI has several ranks, whatever launcher has seen to that.
bool runs_several(const Calls* mpi) {
  int size = 1;
  if (mpi == nullptr || !mpi->is_initialized() || mpi->is_finalized()) return false;
  return mpi->size(mpi->world(), &size) == 0 && size > 1;
}

Opened open_for_job(const std::string& wanted, bool looks_at_launcher) {
  if (!is_job_without_mpi(wanted, looks_at_launcher)) return open_mpi(wanted, looks_at_launcher);
  const Opened without{&sockets::calls(), "none", ""};
  if (!mpi_of_program()) return without;
  try {
    Opened opened = open_mpi(wanted, looks_at_launcher);
    return runs_several(opened.calls) ? opened : without;
  } catch (const Error&) {
    return without;  // one that nobody needs
  }
}

bool load(const std::string& wanted, bool looks_at_launcher) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (const Calls* calls = loaded_calls()) {
    if (wanted == "auto" || wanted == all.wanted || wanted == to_string(calls->abi())) return true;
    throw Error(ErrorCode::invalid_argument, "TUTTI_MPI=" + wanted + ", but this process uses " +
                                                 short_version(calls->version()) +
                                                 " already, as of its first call");
  }
  all.opened = open_for_job(wanted, looks_at_launcher);
  all.wanted = wanted;
  the_calls.store(all.opened.calls, std::memory_order_release);
  return all.opened.calls != nullptr;
}

}  // namespace

bool load(const Settings& settings) { return load(settings.mpi, settings.launcher != "ignore"); }

Settings settings_by_variables() {
  std::map<std::string, std::string> variables;
  for (const char* name : {"TUTTI_MPI", "TUTTI_LAUNCHER", "TUTTI_TIMEOUT"}) {
    if (const char* value = secure_getenv(name)) variables[name] = value;
  }
  std::vector<std::string> warnings;
  return Settings::from_variables(variables, warnings);
}

bool load_by_variables() { return load(settings_by_variables()); }

const Calls& load_or_throw() {
  if (!load_by_variables()) throw Error(ErrorCode::io, why_none());
  return calls();
}

const Calls* loaded_calls() noexcept { return the_calls.load(std::memory_order_acquire); }
const Calls& calls() noexcept { return *loaded_calls(); }

std::string plugin_file() {
  const std::lock_guard lock(state().mutex);
  return state().opened.file;
}

std::string why_none() {
  const std::lock_guard lock(state().mutex);
  return state().opened.why;
}

}  // namespace tutti::mpi
