// SPDX-License-Identifier: Apache-2.0
#include "runtime/nccl/table.hpp"

#include <dlfcn.h>

namespace tutti::nccl {

namespace {

// The first version that has all functions of the table.
constexpr int kOldest = NCCL_VERSION(2, 19, 0);

/// Fills entries of the table, and remembers the first function that the library does not have.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

void fill(Finder& finder, Table& table) {
  finder.find(table.get_version, "ncclGetVersion");
  finder.find(table.error_string, "ncclGetErrorString");
  finder.find(table.last_error, "ncclGetLastError");
  finder.find(table.get_unique_id, "ncclGetUniqueId");
  finder.find(table.init_rank, "ncclCommInitRankConfig");
  finder.find(table.async_error, "ncclCommGetAsyncError");
  finder.find(table.abort, "ncclCommAbort");
  finder.find(table.finalize, "ncclCommFinalize");
  finder.find(table.destroy, "ncclCommDestroy");
  finder.find(table.group_start, "ncclGroupStart");
  finder.find(table.group_end, "ncclGroupEnd");
  finder.find(table.allreduce, "ncclAllReduce");
  finder.find(table.reduce_scatter, "ncclReduceScatter");
  finder.find(table.allgather, "ncclAllGather");
}

}  // namespace

std::string version_to_string(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

Loaded load() {
  const std::string file = "libnccl.so.2";
  Loaded loaded;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    loaded.reason = "NCCL is not here: " + std::string(why == nullptr ? file : why);
    return loaded;
  }
  Finder finder(library);
  fill(finder, loaded.table);
  if (!finder.missing().empty()) {
    loaded.reason = file + " has no " + finder.missing();
  } else if (loaded.table.get_version(&loaded.version) != ncclSuccess || loaded.version < kOldest) {
    loaded.reason = file + " is NCCL " + version_to_string(loaded.version) + ", and " +
                    version_to_string(kOldest) + " or later is needed";
  }
  return loaded;
}

}  // namespace tutti::nccl
