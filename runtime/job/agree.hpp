// SPDX-License-Identifier: Apache-2.0
// agree: an error of one rank becomes the error of all ranks.
#pragma once

#include <functional>

#include "collectives/engine/engine.hpp"

namespace tutti {

/// Runs `body` on every rank; if it throws on any, all ranks throw the error of the lowest such
/// rank. Collective.
void agree(collectives::Engine& engine, const std::function<void()>& body);

}  // namespace tutti
