// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that are used, found in the library when a program runs: a program that is
// started where there is no NCCL misses nothing until it asks for it.
#pragma once

#include <nccl.h>
#include <string>

namespace tutti::nccl {

struct Table {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) allreduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) allgather = nullptr;
};

/// What was found, or why nothing was. The library stays loaded until the process ends.
struct Loaded {
  Table table;
  int version = 0;     ///< as ncclGetVersion gives it
  std::string reason;  ///< empty if the table is whole
};

/// "2.28.9".
std::string version_to_string(int version);

/// Looks for libnccl.so.2 as the dynamic linker does: LD_LIBRARY_PATH names another folder.
Loaded load();

}  // namespace tutti::nccl
