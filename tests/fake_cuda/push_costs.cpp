// SPDX-License-Identifier: Apache-2.0
// What a push costs besides the GPU's own work, counted on the fake CUDA runtime: launches, copies
// and their bytes, sums by NCCL; and host microseconds, which have the fake's own locks in them.
//
//   push_costs                    one rank
//   mpirun -np 2 push_costs       with TUTTI_GPU_PATH
//
// "new": each push has gradients at other addresses, as PyTorch makes them; "same": at those of the
// last one. "host_us" is the median over pushes of the slowest rank, on a GPU that is idle before.
// Rank 0 prints a table. Exit code 3: a push has other counts than is_as_promised() says.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tutti.hpp"

#include "apps/benchmark/models.hpp"
#include "tests/fake_cuda/fake_cuda.hpp"

namespace {

using tutti::Communicator;
using tutti::DType;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

constexpr int kWarmup = 3;
constexpr int kRounds = 5;
constexpr int kExitOtherCounts = 3;
constexpr std::size_t kOfResnet = 256;  ///< kernels are slow here, and counts follow from the keys

struct Case {
  const char* name;
  const char* optimizer;
  std::vector<std::int64_t> counts;
};

std::vector<Case> cases() {
  std::vector<std::int64_t> resnet;
  for (const tutti::Shape& shape : apps::benchmark::resnet50()) {
    resnet.push_back(static_cast<std::int64_t>(shape.count() / kOfResnet + 1));
  }
  return {{"8 KiB", "adamw", {2048}},
          {"1,000 x 64", "sgd", std::vector<std::int64_t>(1'000, 64)},
          {"161 keys", "adamw", resnet}};
}

/// Calls and bytes of one push.
struct Counts {
  int launches = 0;
  int copies = 0;
  std::size_t copied_bytes = 0;
  int sums = 0;  ///< by NCCL

  static Counts now() {
    return {fake_cuda::calls("cudaLaunchKernelEx"), fake_cuda::calls("cudaMemcpyAsync"),
            fake_cuda::copied_bytes(), fake_cuda::calls("cudaLaunchHostFunc")};
  }
  [[nodiscard]] Counts since(const Counts& before) const {
    return {launches - before.launches, copies - before.copies, copied_bytes - before.copied_bytes,
            sums - before.sums};
  }
};

struct Cost {
  Counts counts;
  double host_us = 0;
};

/// Pushes again and again; `push` gets the number of the round.
template <class Push>
Cost measure_pushes(Communicator& communicator, KVStore& kv, Push push) {
  std::vector<double> times;
  Counts counts;
  for (int round = 0; round < kWarmup + kRounds; ++round) {
    tutti::synchronize(gpu(0));
    kv.barrier();
    const Counts before = Counts::now();
    const auto begin = std::chrono::steady_clock::now();
    push(round);
    const std::chrono::duration<double, std::micro> passed =
        std::chrono::steady_clock::now() - begin;
    counts = Counts::now().since(before);
    if (round >= kWarmup) times.push_back(passed.count());
  }
  tutti::synchronize(gpu(0));
  Tensor all = Tensor::from(std::span<const double>(times));
  communicator.allreduce(all, tutti::ReduceOp::max);
  std::ranges::nth_element(all.values<double>(), all.values<double>().begin() + kRounds / 2);
  return {counts, all.values<double>()[kRounds / 2]};
}

/// Two sets of gradients, in turn: the addresses are new in each push.
Cost measure(Communicator& communicator, const Case& now, bool are_new,
             const char* compression = "none") {
  KVStore kv = KVStore::create(communicator);
  kv.set_optimizer(tutti::optimizer::create(now.optimizer));
  kv.set_gradient_compression(compression);
  std::vector<Key> keys;
  std::array<std::vector<Tensor>, 2> gradients;
  for (std::size_t i = 0; i < now.counts.size(); ++i) {
    keys.emplace_back(static_cast<int>(i));
    for (auto& set : gradients)
      set.push_back(Tensor::ones({now.counts[i]}, DType::float32, gpu(0)));
  }
  kv.init(keys, gradients[0]);
  return measure_pushes(communicator, kv,
                        [&](int round) { kv.push(keys, gradients[are_new ? round % 2 : 0]); });
}

constexpr std::int64_t kRows = 1'000;

/// In each push all ranks have the same rows, and no two of them are neighbours.
Cost measure_rows(Communicator& communicator, tutti::Device rows_on) {
  KVStore kv = KVStore::create(communicator);
  kv.set_optimizer(tutti::optimizer::create("adam"));
  kv.init_row_sparse(1, {100'000, 16}, DType::float32, gpu(0));
  const Tensor rows = Tensor::ones({kRows, 16}, DType::float32, rows_on);
  return measure_pushes(communicator, kv, [&](int round) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < kRows; ++i) ids.push_back(i * 97 % 1'000 * 89 + round);
    kv.push(1, tutti::row_sparse(tutti::view(ids.data(), {kRows}), rows));
  });
}

/// The sums and the launch's table cross once, and so do rows that are on the GPU. Several ranks
/// also compare some of the old rows: a launch gathers them, from addresses that are sent, and the
/// next push fetches them.
bool are_rows_as_promised(bool are_on_gpu, int ranks, const Counts& counts) {
  const int compared = ranks == 1 ? 0 : 1;
  return counts.launches == 1 + compared &&
         counts.copies == 4 + (are_on_gpu ? 1 : 0) + 2 * compared;
}

/// One launch with one rank; with several, the sum of values and the update. Of new gradients a
/// table of addresses is sent.
bool is_as_promised(const Case& now, bool are_new, int ranks, const Counts& counts) {
  const std::size_t addresses = are_new ? now.counts.size() * sizeof(void*) : 0;
  const int launches = ranks == 1 ? 1 : 2;
  return counts.launches == launches && counts.copied_bytes <= addresses &&
         counts.copies == (are_new ? 1 : 0);
}

constexpr const char* kCompressions[] = {"1bit", "2bit", "fp16"};

/// Packing, feedback where there is a residual, and the update. Packed bytes go to the host, and
/// the sums to the GPU, each in one copy; a key's sum begins at a multiple of 256 bytes.
bool is_compressed_as_promised(const Case& now, const char* compression, bool are_new,
                               const Counts& counts) {
  std::size_t bytes = are_new ? now.counts.size() * sizeof(void*) : 0;
  for (const std::int64_t count : now.counts) {
    const auto elements = static_cast<std::size_t>(count);
    bytes += tutti::compression::packed_bytes(tutti::compression::create(compression), elements) +
             (elements * sizeof(float) + 255) / 256 * 256;
  }
  return counts.launches == (compression == std::string("fp16") ? 2 : 3) &&
         counts.copies == (are_new ? 3 : 2) && counts.copied_bytes <= bytes + 512;
}

/// False if a count is not as promised.
bool measure_compressed(Communicator& communicator, const Case& now) {
  bool is_right = true;
  for (const char* compression : kCompressions) {
    for (const bool are_new : {false, true}) {
      const Cost cost = measure(communicator, now, are_new, compression);
      const bool is_kept = is_compressed_as_promised(now, compression, are_new, cost.counts);
      is_right = is_right && is_kept;
      if (communicator.rank() != 0) continue;
      std::printf("| %s, %s, %s | %s | %d | %d | %zu | %d | %.0f |%s\n", now.name, now.optimizer,
                  compression, are_new ? "new" : "same", cost.counts.launches, cost.counts.copies,
                  cost.counts.copied_bytes, cost.counts.sums, cost.host_us,
                  is_kept ? "" : " not as promised");
    }
  }
  return is_right;
}

int run() {
  Communicator world = Communicator::world();
  const std::string host = "rank" + std::to_string(world.rank());  // NCCL wants a GPU for each
  setenv("NCCL_HOSTID", host.c_str(), 1);
  const bool speaks = world.rank() == 0;
  bool is_right = true;
  if (speaks) std::printf("| push | gradients | launches | copies | bytes | NCCL | host us |\n");
  for (const Case& now : cases()) {
    for (const bool are_new : {false, true}) {
      const Cost cost = measure(world, now, are_new);
      const bool is_kept = is_as_promised(now, are_new, world.size(), cost.counts);
      is_right = is_right && is_kept;
      if (!speaks) continue;
      std::printf("| %s, %s | %s | %d | %d | %zu | %d | %.0f |%s\n", now.name, now.optimizer,
                  are_new ? "new" : "same", cost.counts.launches, cost.counts.copies,
                  cost.counts.copied_bytes, cost.counts.sums, cost.host_us,
                  is_kept ? "" : " not as promised");
    }
  }
  is_right = measure_compressed(world, cases().back()) && is_right;
  for (const tutti::Device rows_on : {tutti::cpu(), gpu(0)}) {
    const bool are_on_gpu = rows_on == gpu(0);
    const Cost cost = measure_rows(world, rows_on);
    const bool is_kept = are_rows_as_promised(are_on_gpu, world.size(), cost.counts);
    is_right = is_right && is_kept;
    if (!speaks) continue;
    std::printf("| 1,000 rows of 16, adam | %s | %d | %d | %zu | %d | %.0f |%s\n",
                are_on_gpu ? "on the GPU" : "on the host", cost.counts.launches, cost.counts.copies,
                cost.counts.copied_bytes, cost.counts.sums, cost.host_us,
                is_kept ? "" : " not as promised");
  }
  return is_right ? 0 : kExitOtherCounts;
}

}  // namespace

int main() { return tutti::run_program("push_costs", run); }
