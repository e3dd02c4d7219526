// SPDX-License-Identifier: Apache-2.0
// The library in this process, between MPI_Init and MPI_Finalize.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mpi.h>
#include <string>

#include "tutti/error.hpp"
#include "tutti/settings.hpp"

#include "runtime/preload/datatypes.hpp"
#include "runtime/preload/groups.hpp"

namespace tutti::preload {

struct Process {
  Datatypes datatypes;
  Groups groups;
  bool is_watched;  ///< a deadline or a report is asked for
  /// The memory in which this rank shows MPI's own waits that it is in; null without a deadline.
  collectives::LongWaits* waits;
  std::atomic<std::size_t> last_failure{0};  ///< a hash of the text that was printed last
};

/// Null where MPI carries out all calls: outside of MPI_Init and MPI_Finalize, in a job of one
/// rank, and after a warning where the ranks could make no group.
Process* process() noexcept;

/// After the MPI's own MPI_Init. Collective over MPI_COMM_WORLD. Settings that are wrong end the
/// job.
void begin();
/// Before the MPI's own MPI_Finalize. Local.
void end();

/// True if TUTTI_TIMEOUT asks for a deadline. Its value may still be wrong, or 0.
bool has_deadline();
/// The settings that are not as in a program that was written for the library: no deadline, no
/// helper threads and no warnings unless the variables ask for them.
Settings settings_of_preload();

/// Prints an error on one of the ranks that it reaches, calls the communicator's error handler, and
/// returns the code that MPI's function returns, whose text is the error's.
int raise(MPI_Comm comm, const Error& error);

/// This rank cannot do what others wait for: says why, and ends the job.
[[noreturn]] void end_job(const std::exception& error, const std::string& what) noexcept;

/// An exception of `body` becomes what an MPI's function returns.
template <class Body>
int guarded(MPI_Comm comm, Body body) {
  try {
    body();
    return MPI_SUCCESS;
  } catch (const Error& error) {
    return raise(comm, error);
  } catch (const std::bad_alloc&) {
    return raise(comm, Error(ErrorCode::out_of_memory, "no memory"));
  }
}

}  // namespace tutti::preload
