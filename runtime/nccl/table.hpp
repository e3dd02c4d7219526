// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that are used, found in the library when a program runs: a program that
// starts where there is no NCCL lacks nothing until it asks for NCCL.
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

/// The functions that were found, or the reason why they were not. The library stays loaded until
/// the process ends.
struct Loaded {
  Table table;
  int version = 0;     ///< as ncclGetVersion gives it
  std::string reason;  ///< the error; empty if the table is complete
};

/// The version as text: "2.28.9".
std::string version_to_string(int version);

/// Loads libnccl.so.2, found as the dynamic linker does: LD_LIBRARY_PATH names another folder.
Loaded load();

}  // namespace tutti::nccl
