// SPDX-License-Identifier: Apache-2.0
// A C function as a store's updater.
#pragma once

#include "tutti/c/row_sparse.h"

#include "runtime/c_api/handles.hpp"

namespace tutti::c_api {

/// Calls `function` with the key and tensors as C structs; anything but 0 is thrown. None for null.
Updater make_updater(tutti_kvstore& kv, tutti_updater function, void* user_data);
RowSparseUpdater make_updater(tutti_kvstore& kv, tutti_row_updater function, void* user_data);

}  // namespace tutti::c_api
