// SPDX-License-Identifier: Apache-2.0
// Errors that all ranks throw alike, before there is an engine.
#pragma once

#include <exception>
#include <functional>
#include <mpi.h>

namespace tutti::mpi {

/// Runs `body` on every rank; if it throws on any, all ranks throw what the lowest such rank threw.
/// Collective over `comm`.
void agree(MPI_Comm comm, const std::function<void()>& body);

}  // namespace tutti::mpi
