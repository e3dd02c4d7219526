// SPDX-License-Identifier: Apache-2.0
// A job of one host without an MPI: what the library needs of an MPI, over sockets. The ranks share
// memory as in any job; messages only bring them together, and go between the virtual nodes of
// tests.
#pragma once

#include <chrono>

#include "runtime/mpi/plugin/calls.hpp"

namespace tutti::mpi::sockets {

/// Never destroyed. initialize() is start() without a deadline.
const Calls& calls() noexcept;

/// Meets the other ranks. Once. Errors: those of meet().
void start(std::chrono::duration<double> timeout);

}  // namespace tutti::mpi::sockets
