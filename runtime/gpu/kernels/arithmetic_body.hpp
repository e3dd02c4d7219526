// SPDX-License-Identifier: Apache-2.0
// Kernels of one tensor: fill, scale, add, subtract and convert, with the arithmetic of
// elements.hpp.
#pragma once

#include "runtime/base/elements.hpp"
#include "runtime/gpu/kernels/lanes.hpp"

namespace tutti::gpus::kernels {

/// Computes target[i] = map(target[i], source[i]). The map says which of the two it reads.
template <class To, class From, class Map>
struct MapBody {
  static constexpr int kBlocksPerSm = 4;
  static constexpr std::size_t kWidest = sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From);

  To* target;
  const From* source;
  std::uint64_t count;
  bool aligned;
  Map map;

  TUTTI_HOST_DEVICE void operator()(std::uint32_t tile, std::uint32_t lane) const {
    const std::uint64_t begin = std::uint64_t{tile} * tile_count(kWidest);
    const std::uint64_t left = count - begin;
    if (aligned && left >= tile_count(kWidest)) {
      for_whole_tile<kVectorBytes / kWidest, 2>(lane,
                                                [&](const auto& where) { step(begin, where); });
    } else {
      const std::uint32_t most = tile_count(kWidest);
      for_short_tile<4>(lane, left < most ? static_cast<std::uint32_t>(left) : most,
                        [&](const auto& where) { step(begin, where); });
    }
  }

 private:
  template <class Where>
  TUTTI_HOST_DEVICE void step(std::uint64_t begin, const Where& where) const {
    Held<To, Where> targets{};
    Held<From, Where> sources{};
    if constexpr (Map::kReadsTarget) load(targets, target + begin, where);
    if constexpr (Map::kReadsSource) load(sources, source + begin, where);
    each_element<Where>([&](int pack, int k) {
      targets.at(pack, k) = map(targets.at(pack, k), sources.at(pack, k));
    });
    store(targets, target + begin, where);
  }
};

template <class T>
struct FillMap {
  static constexpr bool kReadsTarget = false;
  static constexpr bool kReadsSource = false;
  T value;
  TUTTI_HOST_DEVICE T operator()(T /*mine*/, T /*other*/) const { return value; }
};

template <class T>
struct ScaleMap {
  static constexpr bool kReadsTarget = true;
  static constexpr bool kReadsSource = false;
  elements::ComputedIn<T> factor;
  TUTTI_HOST_DEVICE T operator()(T mine, T /*other*/) const {
    return elements::stored<T>(elements::computed(mine) * factor);
  }
};

/// Computes mine + factor * other. mine - factor * other has the same bits as with -factor.
template <class T>
struct AddMap {
  static constexpr bool kReadsTarget = true;
  static constexpr bool kReadsSource = true;
  elements::ComputedIn<T> factor;
  TUTTI_HOST_DEVICE T operator()(T mine, T other) const {
    return elements::stored<T>(elements::computed(mine) + factor * elements::computed(other));
  }
};

template <class To, class From>
struct ConvertMap {
  static constexpr bool kReadsTarget = false;
  static constexpr bool kReadsSource = true;
  TUTTI_HOST_DEVICE To operator()(To /*mine*/, From other) const {
    return elements::convert<To>(other);
  }
};

}  // namespace tutti::gpus::kernels
