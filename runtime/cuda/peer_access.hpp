// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "runtime/gpu/peer_access.hpp"

namespace tutti::cuda {

/// Access to memory and events of other processes by cudaIpc.
std::unique_ptr<gpus::PeerAccess> make_peer_access();

}  // namespace tutti::cuda
