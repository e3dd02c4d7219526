// SPDX-License-Identifier: Apache-2.0
// Does a person watch, and how wide is the window?
#pragma once

namespace apps {

/// True if standard output ends at a terminal. Open MPI gives programs a pseudo-terminal even when
/// its own output goes to a file, so that under mpirun the launcher's output decides.
bool stdout_is_watched();

/// Columns of the terminal at standard output; 80 if it does not say.
int terminal_columns();

}  // namespace apps
