// SPDX-License-Identifier: Apache-2.0
// Divides a reduction into calls of the compiled loops: tiles that stay in the first-level cache,
// and blocks of sources whose tree fits into registers.
#include "collectives/kernels/reduce.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "collectives/kernels/reduce_kernels.hpp"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tutti::collectives {
namespace {

constexpr std::size_t kTileBytes = 4096;
constexpr std::size_t kLeastByLines = 8192;
// A stack of kLevels partial results serves 8 * 2^(kLevels - 2) sources.
constexpr std::size_t kLevels = 16;

using SourceList = std::span<const std::byte* const>;
using Destinations = std::span<std::byte* const>;

/// The parameters of one call of reduce() that every tile needs.
class Job {
 public:
  Job(const Kernels& kernels, const Reduction& reduction, SourceList sources) noexcept
      : kernels_(kernels.cached[static_cast<std::size_t>(reduction.op)]),
        combining_(kernels.cached[static_cast<std::size_t>(combining(reduction.op))]),
        divides_(reduction.op == ReduceOp::avg),
        from_(reduction.from),
        to_(reduction.to),
        accumulator_(size_of(from_) == 2 ? DType::float32 : from_),
        sources_(sources) {}

  [[nodiscard]] std::size_t tile_count() const noexcept {
    return kTileBytes / size_of(accumulator_);
  }
  [[nodiscard]] std::size_t to_bytes(std::size_t count) const noexcept {
    return count * size_of(to_);
  }

  /// Reduces elements begin .. begin + count - 1 into `target`; count <= tile_count().
  void reduce_tile(std::size_t begin, std::size_t count, std::byte* target) const noexcept {
    if (sources_.size() <= kMaxSources) {
      reduce_block(kernels_[pair_index(from_, to_)], 0, sources_.size(), begin, count, target);
    } else {
      reduce_blocks(begin, count, target);
    }
  }

 private:
  using KernelsOfTypes = const Kernel (&)[kPairs];

  void reduce_block(Kernel kernel, std::size_t first, std::size_t num_sources, std::size_t begin,
                    std::size_t count, std::byte* target) const noexcept;
  void reduce_blocks(std::size_t begin, std::size_t count, std::byte* target) const noexcept;
  void convert(const std::byte* accumulated, std::size_t count, std::byte* target) const noexcept {
    if (accumulator_ == to_) {
      std::memcpy(target, accumulated, to_bytes(count));
    } else {
      combining_[pair_index(accumulator_, to_)](&accumulated, 1, &target, 1, count);
    }
  }
  void merge(DType to, const std::byte* left, const std::byte* right, std::size_t count,
             std::byte* target) const noexcept {
    const std::byte* const operands[] = {left, right};
    combining_[pair_index(accumulator_, to)](operands, 2, &target, 1, count);
  }

  KernelsOfTypes kernels_;    ///< for all sources at once
  KernelsOfTypes combining_;  ///< for some of them
  bool divides_;
  DType from_;
  DType to_;
  DType accumulator_;
  SourceList sources_;
};

void Job::reduce_block(Kernel kernel, std::size_t first, std::size_t num_sources, std::size_t begin,
                       std::size_t count, std::byte* target) const noexcept {
  const std::byte* block[kMaxSources];
  for (std::size_t s = 0; s < num_sources; ++s) {
    block[s] = sources_[first + s] + begin * size_of(from_);
  }
  kernel(block, num_sources, &target, 1, count);
}

// The tree over n > 8 sources is the tree over the partial results of its ceil(n/8) blocks of 8:
// the largest power of two below n is 8q, with q the largest power of two below n/8. Since q is
// whole, q < n/8 and q < ceil(n/8) are the same, so both trees split after block q. The left side
// has 8q sources and q blocks, the right side again starts at a block; so on down to one block.
//
// The blocks come in order and form a stack, like the digits of a binary counter: before block b is
// pushed, subtrees of equal size at the top are merged, so that the stack holds one subtree for
// each 1 in the binary form of b, the largest at the bottom. That is how the canonical tree splits
// b blocks and what follows them. At the end the stack is merged from the top.
void Job::reduce_blocks(std::size_t begin, std::size_t count, std::byte* target) const noexcept {
  alignas(kCacheLineBytes) std::byte stack[kLevels][kTileBytes];
  const std::size_t num_blocks = (sources_.size() + kMaxSources - 1) / kMaxSources;
  assert(num_blocks <= std::size_t{1} << (kLevels - 2));
  std::size_t height = 0;
  for (std::size_t block = 0; block < num_blocks; ++block) {
    for (std::size_t rest = block; rest != 0 && rest % 2 == 0; rest /= 2) {
      merge(accumulator_, stack[height - 2], stack[height - 1], count, stack[height - 2]);
      --height;
    }
    const std::size_t first = block * kMaxSources;
    const std::size_t num_sources = std::min(kMaxSources, sources_.size() - first);
    reduce_block(combining_[pair_index(from_, accumulator_)], first, num_sources, begin, count,
                 stack[height++]);
  }
  for (; height > 2; --height) {
    merge(accumulator_, stack[height - 2], stack[height - 1], count, stack[height - 2]);
  }
  if (divides_) {
    merge(accumulator_, stack[0], stack[1], count, stack[0]);
    divide(accumulator_, stack[0], count, sources_.size());
    return convert(stack[0], count, target);
  }
  merge(to_, stack[0], stack[1], count, target);  // the only rounding of a 16-bit type
}

/// True if copies of kLeastByLines bytes and more go by the kernels' own loops. The memcpy() of
/// glibc 2.36 takes `rep movsb` for them on AMD processors, too, which may read the lines of
/// another core's cache at less than half the speed, see collectives/measurements.md.
bool copies_by_lines() noexcept {
#if defined(__x86_64__)
  static const bool is_amd = __builtin_cpu_is("amd");
  return is_amd;
#else
  return false;
#endif
}

/// Copies by a kernel that takes whole lines of the destination, and the rest at both ends by
/// memcpy().
void copy_by_lines(void (*copy_lines)(std::byte*, const std::byte*, std::size_t), std::byte* to,
                   const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t head = std::min(bytes, bytes_to_line(to));
  const std::size_t lines = (bytes - head) / kCacheLineBytes * kCacheLineBytes;
  const std::size_t done = head + lines;
  std::memcpy(to, from, head);
  copy_lines(to + head, from + head, lines);
  std::memcpy(to + done, from + done, bytes - done);
}

void copy_bytes(const Kernels& kernels, std::byte* to, const std::byte* from,
                std::size_t bytes) noexcept {
  if (to == from) return;
  if (bytes < kLeastByLines || !copies_by_lines()) {
    std::memcpy(to, from, bytes);
  } else {
    copy_by_lines(kernels.copy_lines, to, from, bytes);
  }
}

/// Copies past the caches, except for incomplete lines at both ends.
void stream_bytes(const Kernels& kernels, std::byte* to, const std::byte* from,
                  std::size_t bytes) noexcept {
  if (to != from) copy_by_lines(kernels.stream_lines, to, from, bytes);
}

/// Copies a single source of the destinations' type; NaNs are unchanged.
void copy_all(const Kernels& kernels, const std::byte* source, Destinations destinations,
              std::size_t bytes, WritePolicy stores) noexcept {
  // Several destinations are written in tiles, so that the source is read from memory only once.
  const std::size_t step = destinations.size() == 1 ? bytes : kTileBytes;
  for (std::size_t begin = 0; begin < bytes; begin += step) {
    const std::size_t now = std::min(step, bytes - begin);
    for (std::byte* destination : destinations) {
      if (stores == WritePolicy::streaming) {
        stream_bytes(kernels, destination + begin, source + begin, now);
      } else {
        copy_bytes(kernels, destination + begin, source + begin, now);
      }
    }
  }
}

/// Reduces each tile into the first destination, and copies it to the others while it is in the
/// cache.
void reduce_tiles(const Job& job, Destinations destinations, std::size_t count) noexcept {
  const std::size_t step = job.tile_count();
  for (std::size_t begin = 0; begin < count; begin += step) {
    const std::size_t now = std::min(step, count - begin);
    const std::size_t offset = job.to_bytes(begin);
    std::byte* const first = destinations[0] + offset;
    job.reduce_tile(begin, now, first);
    for (std::byte* other : destinations.subspan(1)) {
      if (other + offset != first) std::memcpy(other + offset, first, job.to_bytes(now));
    }
  }
}

/// Does the same with writes past the caches, for reductions that no streaming kernel supports.
void stream_tiles(const Kernels& kernels, const Job& job, Destinations destinations,
                  std::size_t count) noexcept {
  alignas(kCacheLineBytes) std::byte tile[kTileBytes];
  const std::size_t step = job.tile_count();
  for (std::size_t begin = 0; begin < count; begin += step) {
    const std::size_t now = std::min(step, count - begin);
    job.reduce_tile(begin, now, tile);
    for (std::byte* destination : destinations) {
      stream_bytes(kernels, destination + job.to_bytes(begin), tile, job.to_bytes(now));
    }
  }
}

/// True if lines begin at the same element in all destinations. In memory that is not aligned to an
/// element, no line does.
bool lines_begin_alike(Destinations destinations, std::size_t element_bytes) noexcept {
  const std::size_t head = bytes_to_line(destinations[0]);
  return head % element_bytes == 0 &&
         std::all_of(destinations.begin(), destinations.end(),
                     [&](const std::byte* each) { return bytes_to_line(each) == head; });
}

void reduce_by(const Kernels& kernels, const Reduction& reduction, SourceList sources,
               Destinations destinations, std::size_t count, WritePolicy stores) noexcept {
  assert(!sources.empty());
  assert(pair_index(reduction.from, reduction.to) < kPairs);
  if (destinations.empty() || count == 0) return;
  const std::size_t op = static_cast<std::size_t>(reduction.op);
  const std::size_t pair = pair_index(reduction.from, reduction.to);
  const bool cached = stores == WritePolicy::cached;
  const bool in_registers =
      sources.size() <= kMaxSources &&
      (destinations.size() == 1 ||
       (destinations.size() == sources.size() && stores_from_registers(destinations.size())));
  if (sources.size() == 1 && reduction.from == reduction.to) {
    copy_all(kernels, sources[0], destinations, count * size_of(reduction.from), stores);
  } else if (cached && in_registers) {
    kernels.cached[op][pair](sources.data(), sources.size(), destinations.data(),
                             destinations.size(), count);
  } else if (cached) {
    reduce_tiles(Job(kernels, reduction, sources), destinations, count);
  } else if (sources.size() <= kMaxSources &&
             lines_begin_alike(destinations, size_of(reduction.to))) {
    kernels.streaming[op][pair](sources.data(), sources.size(), destinations.data(),
                                destinations.size(), count);
  } else {
    stream_tiles(kernels, Job(kernels, reduction, sources), destinations, count);
  }
}

struct ChosenKernels {
  const Kernels* kernels;
  const char* name;
};

const Kernels* kernels_of(Isa isa) noexcept {
  if (!has_isa(isa)) return nullptr;
#if defined(__x86_64__)
  if (isa == Isa::avx512) return &avx512_kernels();
  if (isa == Isa::avx2) return &avx2_kernels();
#endif
  return &plain_kernels();
}

ChosenKernels choose() noexcept {
  if (const Kernels* kernels = kernels_of(Isa::avx512)) return {kernels, "AVX-512"};
  if (const Kernels* kernels = kernels_of(Isa::avx2)) return {kernels, "AVX2"};
#if defined(__aarch64__)
  return {&plain_kernels(), "NEON"};
#else
  return {&plain_kernels(), "plain"};
#endif
}

const ChosenKernels& choice() noexcept {
  static const ChosenKernels chosen = choose();
  return chosen;
}

}  // namespace

namespace {

template <class T>
void divide_elements(std::byte* elements, std::size_t count, std::size_t divisor) noexcept {
  constexpr T kQuiet = std::numeric_limits<T>::quiet_NaN();
  auto* const values = reinterpret_cast<T*>(elements);
  for (std::size_t i = 0; i < count; ++i) {
    const T quotient = values[i] / static_cast<T>(divisor);
    values[i] = std::isnan(quotient) ? kQuiet : quotient;
  }
}

/// Divides 16-bit elements, with the same conversions as sums.
void divide_halves(DType dtype, std::byte* elements, std::size_t count,
                   std::size_t divisor) noexcept {
  constexpr std::size_t kTile = kTileBytes / sizeof(float);
  alignas(kCacheLineBytes) std::byte tile[kTileBytes];
  std::byte* const wide = tile;
  for (std::size_t begin = 0; begin < count; begin += kTile) {
    const std::size_t now = std::min(kTile, count - begin);
    std::byte* const part = elements + begin * size_of(dtype);
    const std::byte* const from = part;
    const std::byte* const quotients = tile;
    reduce({ReduceOp::sum, dtype, DType::float32}, {&from, 1}, {&wide, 1}, now,
           WritePolicy::cached);
    divide_elements<float>(tile, now, divisor);
    reduce({ReduceOp::sum, DType::float32, dtype}, {&quotients, 1}, {&part, 1}, now,
           WritePolicy::cached);
  }
}

}  // namespace

void divide(DType dtype, std::byte* elements, std::size_t count, std::size_t divisor) noexcept {
  if (dtype == DType::float32) return divide_elements<float>(elements, count, divisor);
  if (dtype == DType::float64) return divide_elements<double>(elements, count, divisor);
  assert(size_of(dtype) == 2);  // only floating-point types have averages
  divide_halves(dtype, elements, count, divisor);
}

void streaming_fence() noexcept {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

void reduce(const Reduction& reduction, SourceList sources, Destinations destinations,
            std::size_t count, WritePolicy stores) {
  const Kernels& kernels = *choice().kernels;
  const bool is_one_sum = destinations.size() == 1 && count > 0 && sources.size() > 1 &&
                          sources.size() <= kMaxSources && stores == WritePolicy::cached;
  if (!is_one_sum) return reduce_by(kernels, reduction, sources, destinations, count, stores);
  kernels.cached[static_cast<std::size_t>(reduction.op)][pair_index(reduction.from, reduction.to)](
      sources.data(), sources.size(), destinations.data(), 1, count);
}

const char* vector_instructions() noexcept { return choice().name; }

bool has_isa(Isa isa) noexcept {
  if (isa == Isa::plain) return true;
#if defined(__x86_64__)
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

bool reduce_with(Isa isa, const Reduction& reduction, SourceList sources, Destinations destinations,
                 std::size_t count, WritePolicy stores) {
  const Kernels* const kernels = kernels_of(isa);
  if (kernels == nullptr) return false;
  reduce_by(*kernels, reduction, sources, destinations, count, stores);
  return true;
}

bool copy_with(Isa isa, std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const Kernels* const kernels = kernels_of(isa);
  if (kernels == nullptr) return false;
  copy_by_lines(kernels->copy_lines, to, from, bytes);
  return true;
}

}  // namespace tutti::collectives
