// SPDX-License-Identifier: Apache-2.0
// A C function as a store's updater.
#pragma once

#include "runtime/c_api/handles.hpp"

namespace tutti::c_api {

/// Calls `function` with the key and tensors as C structs; anything but 0 is thrown. None for null.
Updater make_updater(tutti_kvstore& kv, tutti_updater function, void* user_data);

}  // namespace tutti::c_api
