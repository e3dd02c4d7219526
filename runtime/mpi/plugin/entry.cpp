// SPDX-License-Identifier: Apache-2.0
// The only symbol of a plug-in.
#include "runtime/mpi/plugin/calls.hpp"

extern "C" __attribute__((visibility("default"))) const tutti::mpi::Plugin*
tutti_mpi_plugin() noexcept {
  static const tutti::mpi::Plugin plugin{TUTTI_VERSION, tutti::mpi::kLayout,
                                         &tutti::mpi::compiled_calls()};
  return &plugin;
}
