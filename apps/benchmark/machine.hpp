// SPDX-License-Identifier: Apache-2.0
// Where a run took place, for the head of the table and for the JSON.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

namespace apps::benchmark {

/// A computer and how many ranks it runs.
struct Host {
  std::string name;
  int ranks = 0;
};

struct Machine {
  std::vector<Host> hosts;
  int ranks = 1;
  int nodes = 1;  ///< of the communicator: hosts, unless they are split
  std::string library;
  std::string mpi;
  std::string vector_instructions;
  std::string processor;
  std::size_t cache_bytes = 0;          ///< last-level cache of this rank's processor
  std::vector<std::string> algorithms;  ///< that the library chose, a line per case
  std::string started;                  ///< "2025-01-31T12:00:00Z"
};

/// Collective.
Machine look_around(tutti::Communicator& world, MPI_Comm comm);

/// "node1 (2), node2 (2)".
std::string hosts_text(const std::vector<Host>& hosts);

/// The text behind "NAME: " in lines such as build_info's; "unknown" if there is none.
std::string field_of(const std::string& lines, const std::string& name);

}  // namespace apps::benchmark
