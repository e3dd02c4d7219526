// SPDX-License-Identifier: Apache-2.0
// The functions of MPI that wait for another rank's message. MPI carries them out. Where there is a
// deadline, a rank shows in memory which of them it is in, so that those who miss it in a
// collective can say so. A wait in them has no deadline itself.
#pragma once

#include <mpi.h>
#include <optional>

#include "collectives/wait/long_waits.hpp"
#include "runtime/preload/functions.hpp"

namespace tutti::preload {

/// The arguments of such a call that say what it waits for; null where it has no such argument.
struct Awaited {
  const int* dest = nullptr;
  const int* given_tag = nullptr;  ///< of what goes to `dest`
  const int* source = nullptr;
  const int* tag = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  const int* requests = nullptr;  ///< how many
};

/// Shows a call during its lifetime, if somebody may ask, and unless others of this rank's threads
/// have taken the places. Local.
class ShownCall {
 public:
  ShownCall(const char* function, const Awaited& awaited) noexcept;

 private:
  std::optional<collectives::LongWaits::Shown> shown_;
};

/// Fills in these functions of C: the MPI's own, if no deadline is asked for.
void add_messages(Functions& functions);

}  // namespace tutti::preload
