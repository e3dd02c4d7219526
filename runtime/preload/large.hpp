// SPDX-License-Identifier: Apache-2.0
// The functions whose counts are of the type MPI_Count, since MPI 4.
#pragma once

#include "runtime/preload/functions.hpp"

namespace tutti::preload {

/// Fills in the functions of large counts, where the MPI has them.
void add_large(Functions& functions);

}  // namespace tutti::preload
