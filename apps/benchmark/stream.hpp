// SPDX-License-Identifier: Apache-2.0
// The memory's own speed, to measure collectives against.
#pragma once

#include <cstddef>
#include <span>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

/// sum[i] = left[i] + right[i], with stores that bypass the caches where the processor has them.
/// The spans are equally long and aligned to 64 bytes.
void add_streaming(std::span<const float> left, std::span<const float> right, std::span<float> sum);

/// An addition as in STREAM, on all ranks at once, of arrays that together are much larger than the
/// last-level cache; counts two reads and a write of each element. Median of several. Collective.
MemorySpeed measure_memory(tutti::Communicator& world, MPI_Comm comm, std::size_t cache_bytes);

}  // namespace apps::benchmark
