// SPDX-License-Identifier: Apache-2.0
// Functions of Python as updaters of a store. None gives no updater.
#pragma once

#include <nanobind/nanobind.h>

#include "tutti/kvstore.hpp"

namespace tutti::python {

class Occupancy;

/// function(key, merged, stored). `store` is that of the store whose updater it becomes.
Updater dense_updater(nanobind::object function, const Occupancy& store);
/// function(key, ids, rows, stored)
RowSparseUpdater row_updater(nanobind::object function, const Occupancy& store);

}  // namespace tutti::python
