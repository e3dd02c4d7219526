// SPDX-License-Identifier: Apache-2.0
// Functions of Python as updaters of a store. None gives no updater.
#pragma once

#include <nanobind/nanobind.h>

#include "tutti/kvstore.hpp"

namespace tutti::python {

/// function(key, merged, stored)
Updater dense_updater(nanobind::object function);
/// function(key, ids, rows, stored)
RowSparseUpdater row_updater(nanobind::object function);

}  // namespace tutti::python
