// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/process.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/base/unread_output.hpp"
#include "runtime/mpi/bootstrap.hpp"

namespace tutti::preload {

namespace {

/// Global, as MPI is. What it points to is never destroyed: MPI may still delete attributes.
constinit std::atomic<Process*> the_process{nullptr};

bool is_asked_for(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

void say(const std::string& text) { std::fprintf(stderr, "tutti: %s\n", text.c_str()); }

/// A code of MPI's for each of ours, with the last error's text. They have a class of their own:
/// MPICH 4.0 has no texts for codes of its own classes.
int mpi_code_of(const Error& error) {
  static std::mutex mutex;
  static std::array<int, 16> codes{};
  static int own_class = MPI_SUCCESS;
  const std::lock_guard lock(mutex);
  int& code = codes[static_cast<std::size_t>(error.code()) % codes.size()];
  if (own_class == MPI_SUCCESS && PMPI_Add_error_class(&own_class) != MPI_SUCCESS) {
    own_class = MPI_ERR_OTHER;
  }
  if (code == MPI_SUCCESS && PMPI_Add_error_code(own_class, &code) != MPI_SUCCESS) {
    code = MPI_ERR_OTHER;
  }
  const std::string text = std::string(error.what()).substr(0, MPI_MAX_ERROR_STRING - 1);
  if (code != MPI_ERR_OTHER) PMPI_Add_error_string(code, text.c_str());
  return code;
}

/// What a rank that learned of an error from another one leaves that rank to print it, before MPI
/// ends the job with no more than MPI_MAX_ERROR_STRING characters of it.
constexpr auto kGrace = std::chrono::seconds(2);

bool returns_errors(MPI_Comm comm) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  if (PMPI_Comm_get_errhandler(comm, &handler) != MPI_SUCCESS) return false;
  if (handler == MPI_ERRORS_RETURN) return true;
  if (handler != MPI_ERRORS_ARE_FATAL) PMPI_Errhandler_free(&handler);
  return false;
}

}  // namespace

Process* process() noexcept { return the_process.load(std::memory_order_acquire); }

bool has_deadline() { return is_asked_for("TUTTI_TIMEOUT"); }

Settings settings_of_preload() {
  Settings settings = Settings::from_environment();
  if (!has_deadline()) settings.timeout = std::chrono::duration<double>(0);
  if (!is_asked_for("TUTTI_THREADS")) settings.threads = 1;
  if (!is_asked_for("TUTTI_LOG") && !has_deadline()) settings.log = LogLevel::quiet;
  return settings;
}

namespace {

/// A variable asks for what MPI's own collectives have not: a deadline, or a report.
bool is_watched(const Settings& settings) {
  return settings.timeout.count() != 0 || !settings.statistics.empty() || !settings.trace.empty() ||
         !settings.prometheus.empty();
}

}  // namespace

void begin() {
  int size = 1;
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) return;
  try {
    const Settings settings = settings_of_preload();
    auto world = mpi::make_world_group(settings, mpi::Callers::of_mpi);
    if (world == nullptr) return;
    const bool watched = is_watched(settings);
    const bool may_choose = !watched && settings.tuning != "static";
    const bool may_leave = !watched && !settings.reproducible;
    collectives::LongWaits* const waits =
        settings.timeout.count() == 0 ? nullptr : &world->engine().memory().self().long_waits();
    static Process* const made =
        new Process{{}, Groups(std::move(world), may_choose, may_leave), watched, waits};
    the_process.store(made, std::memory_order_release);
  } catch (const Error& error) {
    if (error.reporter()) say(std::string("error: ") + error.what());
    if (error.code() == ErrorCode::invalid_argument) {
      if (!error.reporter()) std::this_thread::sleep_for(kGrace);
      wait_for_reader();
      PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (error.reporter()) say("warning: the MPI carries out this program's collectives");
  }
}

void end() {
  if (Process* ended = the_process.exchange(nullptr)) ended->groups.end();
}

void end_job(const std::exception& error, const std::string& what) noexcept {
  const auto* own = dynamic_cast<const Error*>(&error);
  const int code = exit_code(own == nullptr ? ErrorCode::communication : own->code());
  say("error: " + what + ": " + error.what());
  wait_for_reader();
  PMPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

namespace {

/// False for a failure that every later call of the communicator throws again.
bool is_new(const Error& error) {
  Process* const own = process();
  if (own == nullptr || error.recoverable()) return true;
  const std::size_t hash = std::hash<std::string_view>()(error.what());
  return own->last_failure.exchange(hash) != hash;
}

}  // namespace

int raise(MPI_Comm comm, const Error& error) {
  if (error.reporter()) {
    if (is_new(error)) say(std::string("error: ") + error.what());
  } else if (!returns_errors(comm)) {
    std::this_thread::sleep_for(kGrace);
  }
  if (!returns_errors(comm)) wait_for_reader();
  const int code = mpi_code_of(error);
  PMPI_Comm_call_errhandler(comm, code);
  return code;
}

}  // namespace tutti::preload
