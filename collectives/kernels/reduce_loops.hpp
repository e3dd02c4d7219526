// SPDX-License-Identifier: Apache-2.0
// The reduction loop, written once as scalar code. Every instruction set inlines it into functions
// of its own target, where the compiler vectorises it (reduce_plain.cpp, reduce_avx2.cpp,
// reduce_avx512.cpp). Each element is computed by the same operations at any position, so that
// vector bodies, tails and instruction sets give the same bits.
//
// One result is left open by the processor: which of two NaN operands determines the payload of a
// sum, because a compiler may exchange the operands. Therefore every NaN result becomes the same
// quiet NaN.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#include "collectives/kernels/reduce_float16.hpp"
#include "collectives/kernels/reduce_kernels.hpp"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // below -O2 no loop is vectorised
#endif

namespace tutti::collectives {

/// An element type: its representation in memory, and the type in which it is computed.
template <class T>
struct Element {
  using Stored = T;
  [[gnu::always_inline]] static T load(T stored) noexcept { return stored; }
  [[gnu::always_inline]] static T store(T value) noexcept { return value; }
};

template <>
struct Element<Float16> {
  using Stored = std::uint16_t;
  [[gnu::always_inline]] static float load(Stored stored) noexcept {
    return float_from_float16(stored);
  }
  [[gnu::always_inline]] static Stored store(float value) noexcept {
    return float16_from_float(value);
  }
};

template <>
struct Element<BFloat16> {
  using Stored = std::uint16_t;
  [[gnu::always_inline]] static float load(Stored stored) noexcept {
    return float_from_bfloat16(stored);
  }
  [[gnu::always_inline]] static Stored store(float value) noexcept {
    return bfloat16_from_float(value);
  }
};

template <std::floating_point T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
[[gnu::always_inline]] inline T with_one_nan(T value) noexcept {
  if constexpr (std::floating_point<T>) {
    // Selects bits, because a compiler may consider two floating-point NaNs the same value.
    constexpr auto kQuiet = std::bit_cast<BitsOf<T>>(std::numeric_limits<T>::quiet_NaN());
    const auto bits = std::bit_cast<BitsOf<T>>(value);
    return std::bit_cast<T>(std::isunordered(value, value) ? kQuiet : bits);
  } else {
    return value;
  }
}

struct Sum {
  template <class T>
  [[gnu::always_inline]] static T apply(T left, T right) noexcept {
    if constexpr (std::floating_point<T>) {
      return left + right;
    } else {
      using Wrapping = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Wrapping>(left) + static_cast<Wrapping>(right));
    }
  }
};

struct Prod {
  template <class T>
  [[gnu::always_inline]] static T apply(T left, T right) noexcept {
    if constexpr (std::floating_point<T>) {
      return left * right;
    } else {
      using Wrapping = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Wrapping>(left) * static_cast<Wrapping>(right));
    }
  }
};

struct Min {
  /// Floating point: each half is one instruction that returns its second operand if the two are
  /// unordered or equal. OR leaves equal numbers unchanged, turns two different zeros into -0, and
  /// keeps a NaN a NaN, because its exponent is all ones.
  template <class T>
  [[gnu::always_inline]] static T apply(T left, T right) noexcept {
    if constexpr (std::floating_point<T>) {
      const auto one = std::bit_cast<BitsOf<T>>(left < right ? left : right);
      const auto other = std::bit_cast<BitsOf<T>>(right < left ? right : left);
      return std::bit_cast<T>(one | other);
    } else {
      return left < right ? left : right;
    }
  }
};

struct Max {
  template <class T>
  [[gnu::always_inline]] static T apply(T left, T right) noexcept {
    if constexpr (std::floating_point<T>) {
      return -Min::apply(-left, -right);
    } else {
      return left < right ? right : left;
    }
  }
};

/// A sum over all sources that finished() divides. Only for floating-point types.
struct Avg : Sum {};

/// Returns element `i` of the canonical tree over sources kFirst .. kFirst + kCount - 1.
template <class Op, class From, std::size_t kFirst, std::size_t kCount, class Stored>
[[gnu::always_inline]] inline auto tree(const Stored* const* sources, std::size_t i) noexcept {
  if constexpr (kCount == 1) {
    return Element<From>::load(sources[kFirst][i]);
  } else {
    constexpr std::size_t kLeft = std::bit_floor(kCount - 1);
    return Op::apply(tree<Op, From, kFirst, kLeft>(sources, i),
                     tree<Op, From, kFirst + kLeft, kCount - kLeft>(sources, i));
  }
}

/// Returns the result of an operation from the tree over all of its sources.
template <class Op, std::size_t kSources, class T>
[[gnu::always_inline]] inline T finished(T value) noexcept {
  if constexpr (std::is_same_v<Op, Avg>) {
    return value / static_cast<T>(kSources);
  } else {
    return value;
  }
}

/// Reduces kSources sources. The pragmas declare the iterations independent: if a destination is a
/// source, element i is read and written in the same iteration.
template <class Op, class From, class To, std::size_t kSources, std::size_t kDestinations = 1>
[[gnu::always_inline]] inline void reduce_loop(const std::byte* const* sources,
                                               std::byte* const* destinations,
                                               std::size_t count) noexcept {
  using In = typename Element<From>::Stored;
  using Out = typename Element<To>::Stored;
  // Local copies of the pointers, which the stores below cannot change, so that they stay in
  // registers.
  const In* in[kSources];
  for (std::size_t s = 0; s < kSources; ++s) in[s] = reinterpret_cast<const In*>(sources[s]);
  Out* out[kDestinations];
  for (std::size_t d = 0; d < kDestinations; ++d) out[d] = reinterpret_cast<Out*>(destinations[d]);
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) {
    auto value = finished<Op, kSources>(tree<Op, From, 0, kSources>(in, i));
    // Conversions to 16 bits already produce a single NaN.
    if constexpr (kSources > 1 && sizeof(Out) == sizeof(value)) value = with_one_nan(value);
    const Out result = Element<To>::store(value);
    out[0][i] = result;
    if constexpr (kDestinations > 1) out[1][i] = result;
    if constexpr (kDestinations > 2) out[2][i] = out[3][i] = result;
  }
}

/// The body of a Kernel that stores through the caches.
template <class Op, class From, class To>
[[gnu::always_inline]] inline void reduce_cached(const std::byte* const* sources,
                                                 std::size_t num_sources,
                                                 std::byte* const* destinations,
                                                 std::size_t num_destinations,
                                                 std::size_t count) noexcept {
  if (num_destinations == 2) return reduce_loop<Op, From, To, 2, 2>(sources, destinations, count);
  if (num_destinations == 4) return reduce_loop<Op, From, To, 4, 4>(sources, destinations, count);
  switch (num_sources) {
    case 1:
      return reduce_loop<Sum, From, To, 1>(sources, destinations, count);
    case 2:
      return reduce_loop<Op, From, To, 2>(sources, destinations, count);
    case 3:
      return reduce_loop<Op, From, To, 3>(sources, destinations, count);
    case 4:
      return reduce_loop<Op, From, To, 4>(sources, destinations, count);
    case 5:
      return reduce_loop<Op, From, To, 5>(sources, destinations, count);
    case 6:
      return reduce_loop<Op, From, To, 6>(sources, destinations, count);
    case 7:
      return reduce_loop<Op, From, To, 7>(sources, destinations, count);
    case 8:
      return reduce_loop<Op, From, To, 8>(sources, destinations, count);
  }
}

/// Bytes that a streaming loop reduces before it stores them. With a few lines, the processor reads
/// the next block while they are written to memory; with blocks of 4 KiB it does not, and takes a
/// third longer.
inline constexpr std::size_t kBlockBytes = 256;

/// Reduces whole blocks of two sources. The number of destinations is a constant, which saves a
/// tenth of the time.
template <class Target, class Op, class From, class To, std::size_t kDestinations>
[[gnu::always_inline]] inline void stream_pair(const std::byte* const* sources,
                                               std::byte* const* destinations,
                                               std::size_t num_blocks) noexcept {
  constexpr std::size_t kCount = kBlockBytes / sizeof(typename Element<To>::Stored);
  constexpr std::size_t kSourceBytes = kCount * sizeof(typename Element<From>::Stored);
  alignas(kCacheLineBytes) std::byte block[kBlockBytes];
  std::byte* const target[] = {block};
  const std::byte* left = sources[0];
  const std::byte* right = sources[1];
  std::byte* const first = destinations[0];
  std::byte* const second = destinations[kDestinations - 1];
  for (std::size_t at = 0; at < num_blocks * kBlockBytes; at += kBlockBytes) {
    const std::byte* const both[] = {left, right};
    reduce_loop<Op, From, To, 2>(both, target, kCount);
    Target::stream_lines(first + at, block, kBlockBytes);
    if constexpr (kDestinations == 2) Target::stream_lines(second + at, block, kBlockBytes);
    left += kSourceBytes;
    right += kSourceBytes;
  }
}

/// The body of a Kernel that stores past the caches.
template <class Target, class Op, class From, class To>
[[gnu::always_inline]] inline void reduce_streaming(const std::byte* const* sources,
                                                    std::size_t num_sources,
                                                    std::byte* const* destinations,
                                                    std::size_t num_destinations,
                                                    std::size_t count) noexcept {
  using In = typename Element<From>::Stored;
  using Out = typename Element<To>::Stored;
  constexpr std::size_t kWhole = kBlockBytes / sizeof(Out);
  alignas(kCacheLineBytes) std::byte block[kBlockBytes];
  std::byte* const target[] = {block};
  // The first step may be short, so that it ends at the end of a line; the last one may be short,
  // too.
  std::size_t step = bytes_to_line(destinations[0]) / sizeof(Out);
  if (step == 0) step = kWhole;
  for (std::size_t begin = 0; begin < count; begin += step, step = kWhole) {
    step = std::min(step, count - begin);
    const std::byte* now[kMaxSources];
    for (std::size_t s = 0; s < num_sources; ++s) now[s] = sources[s] + begin * sizeof(In);
    if (step == kWhole && num_sources == 2 && num_destinations <= 2) {
      const std::size_t num_blocks = (count - begin) / kWhole;
      std::byte* const to[] = {destinations[0] + begin * sizeof(Out),
                               destinations[num_destinations - 1] + begin * sizeof(Out)};
      if (num_destinations == 1) {
        stream_pair<Target, Op, From, To, 1>(now, to, num_blocks);
      } else {
        stream_pair<Target, Op, From, To, 2>(now, to, num_blocks);
      }
      step = num_blocks * kWhole;
      continue;
    }
    Target::template cached<Op, From, To>(now, num_sources, target, 1, step);
    for (std::size_t d = 0; d < num_destinations; ++d) {
      std::byte* const destination = destinations[d] + begin * sizeof(Out);
      if (step == kWhole) {
        Target::stream_lines(destination, block, kBlockBytes);
      } else {
        std::memcpy(destination, block, step * sizeof(Out));
      }
    }
  }
}

/// Fills in the kernels of one operation for all pairs of types. Target::cached<Op, From, To> and
/// Target::streaming compile the two bodies above for its instruction set.
template <class Target, class Op>
constexpr void fill(Kernels& kernels, ReduceOp op) noexcept {
  const auto add = [&kernels, op]<class From, class To>(From, To) {
    const std::size_t pair = pair_index(dtype_of<From>, dtype_of<To>);
    const std::size_t row = static_cast<std::size_t>(op);
    kernels.cached[row][pair] = &Target::template cached<Op, From, To>;
    kernels.streaming[row][pair] = &Target::template streaming<Op, From, To>;
  };
  const auto add_same = [&add]<class... T>(T... type) { (add(type, type), ...); };
  add_same(Float16{}, BFloat16{}, float{}, double{});
  if constexpr (!std::is_same_v<Op, Avg>) {
    add_same(std::int8_t{}, std::uint8_t{}, std::int32_t{}, std::int64_t{});
  }
  add(Float16{}, float{});
  add(BFloat16{}, float{});
  add(float{}, Float16{});
  add(float{}, BFloat16{});
}

template <class Target>
constexpr Kernels make_kernels() noexcept {
  Kernels kernels{};
  fill<Target, Sum>(kernels, ReduceOp::sum);
  fill<Target, Prod>(kernels, ReduceOp::prod);
  fill<Target, Min>(kernels, ReduceOp::min);
  fill<Target, Max>(kernels, ReduceOp::max);
  fill<Target, Avg>(kernels, ReduceOp::avg);
  kernels.stream_lines = &Target::stream_lines;
  kernels.copy_lines = &Target::copy_lines;
  return kernels;
}

}  // namespace tutti::collectives
