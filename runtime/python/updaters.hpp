// SPDX-License-Identifier: Apache-2.0
// Makes updaters of a store from functions of Python. None gives no updater.
#pragma once

#include <nanobind/nanobind.h>

#include "tutti/kvstore.hpp"

namespace tutti::python {

class Occupancy;

/// An updater that calls function(key, merged, stored). `store` is that of the store whose updater
/// it becomes.
Updater dense_updater(nanobind::object function, const Occupancy& store);
/// An updater that calls function(key, ids, rows, stored).
RowSparseUpdater row_updater(nanobind::object function, const Occupancy& store);

}  // namespace tutti::python
