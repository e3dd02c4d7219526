// SPDX-License-Identifier: Apache-2.0
// The functions for Fortran, whose arguments are addresses, and handles are numbers.
#pragma once

#include "runtime/preload/functions.hpp"

namespace tutti::preload {

/// Fills in the functions of Fortran.
void add_fortran(Functions& functions);

}  // namespace tutti::preload
