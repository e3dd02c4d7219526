// SPDX-License-Identifier: Apache-2.0
// oneCCL's collectives on the CPU, of float32, as functions that worker.py can call: the library
// has them in C++ alone. compare.py --install compiles it into oneCCL's environment.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <oneapi/ccl.hpp>
#include <optional>

namespace {

std::shared_ptr<ccl::kvs> store;
std::optional<ccl::communicator> world;

}  // namespace

extern "C" {

const char* shim_version() {
  static const ccl::string_class text = ccl::get_library_version().full;
  return text.c_str();
}

/// Rank 0's address of 256 bytes, for shim_begin of all ranks.
void shim_address(char* address) {
  ccl::init();
  store = ccl::create_main_kvs();
  const auto made = store->get_address();
  std::memcpy(address, made.data(), std::min<std::size_t>(256, made.size()));
}

void shim_begin(int rank, int ranks, const char* address) {
  ccl::init();
  if (!store) {
    ccl::kvs::address_type given;
    std::memcpy(given.data(), address, std::min<std::size_t>(256, given.size()));
    store = ccl::create_kvs(given);
  }
  world.emplace(ccl::create_communicator(ranks, rank, store));
}

void shim_end() { world.reset(); }

void shim_allreduce(const float* given, float* out, std::size_t count) {
  ccl::allreduce(given, out, count, ccl::reduction::sum, *world).wait();
}

void shim_broadcast(const float*, float* out, std::size_t count) {
  ccl::broadcast(out, count, 0, *world).wait();
}

void shim_allgather(const float* given, float* out, std::size_t count) {
  ccl::allgather(given, out, count, *world).wait();
}

void shim_reduce_scatter(const float* given, float* out, std::size_t count) {
  ccl::reduce_scatter(given, out, count, ccl::reduction::sum, *world).wait();
}

void shim_alltoall(const float* given, float* out, std::size_t count) {
  ccl::alltoall(given, out, count, *world).wait();
}

}  // extern "C"
