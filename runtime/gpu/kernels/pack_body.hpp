// SPDX-License-Identifier: Apache-2.0
// Gradient compression of a row: the packed sum that is sent, and the residual that is left for
// later, with the bits of collectives/compression/codec.hpp:
//
//   s = residual + (input 0 + input 1 + ...)      packed = q(s)      later: residual = s - q(s)
//
// A lane packs eight elements at a time, which are whole bytes in all formats and lie side by side:
//
//   elements | 0 .. 7           | 8 .. 15 | ...     lane 0, lane 1, ...
//   packed   | 1, 2 or 16 bytes |         | ...
//
// Bytes per element of N inputs: packing reads 4N, and 4 more if there is a residual; feedback
// reads 4N + 4 and writes 4. Packing changes no residual, so feedback reads the inputs again.
#pragma once

#include "collectives/compression/bit_rules.hpp"
#include "runtime/gpu/kernels/sum_body.hpp"

namespace tutti::gpus::kernels {

inline constexpr int kPackedTogether = 8;

/// The elements that a lane packs at a time, in vectors of kTheWidth elements.
template <int kTheWidth, bool kIsChecked>
struct Group {
  static constexpr int kWidth = kTheWidth;
  static constexpr int kPacks = kPackedTogether / kWidth;
  static constexpr bool kStreams = false;

  std::uint32_t first;  ///< index in the tile
  std::uint32_t count;  ///< elements of the tile

  TUTTI_HOST_DEVICE std::uint32_t index(int pack) const {
    return first + static_cast<std::uint32_t>(pack * kWidth);
  }
  TUTTI_HOST_DEVICE bool exists(int pack) const { return !kIsChecked || index(pack) < count; }
};

/// A format of codes of a few bits, the first in the most significant bits of its byte.
template <class TheRule>
struct BitFormat {
  using Rule = TheRule;
  using Unit = std::uint8_t;
  static constexpr int kPerByte = static_cast<int>(Rule::kPerByte);
  static constexpr int kBits = 8 / kPerByte;
  static constexpr int kUnits = kPackedTogether / kPerByte;
  static constexpr bool kHasResidual = true;

  Rule rule;

  TUTTI_HOST_DEVICE static int units(int count) { return (count + kPerByte - 1) / kPerByte; }
  TUTTI_HOST_DEVICE void put(Pack<Unit, kUnits>& packed, int i, float s) const {
    const unsigned code = rule.code(s);
    packed.values[i / kPerByte] |=
        static_cast<std::uint8_t>(code << (8 - kBits * (i % kPerByte + 1)));
  }
};

/// A format of elements that are rounded to 16 bits.
template <class T>
struct HalfFormat {
  using Unit = T;
  static constexpr int kUnits = kPackedTogether;
  static constexpr bool kHasResidual = false;

  TUTTI_HOST_DEVICE static int units(int count) { return count; }
  TUTTI_HOST_DEVICE void put(Pack<Unit, kUnits>& packed, int i, float s) const {
    packed.values[i] = narrow<T>(s);
  }
};

/// Inputs of a row are loaded one after the other: two at once would not all stay in registers.
using PackedInputs = ManyInputs<float, 1>;

TUTTI_HOST_DEVICE inline float* residual_of(const TileWork& work) {
  return reinterpret_cast<float*>(work.row->states[0]) + work.begin;
}

template <class Where, class Sources>
TUTTI_HOST_DEVICE void load_with_residual(Held<float, Where>& held, const Sources& inputs,
                                          const float* residual, const Where& where) {
  Held<float, Where> residuals;
  load(residuals, residual, where);
  inputs.load_sum(held, where);
  each_element<Where>(
      [&](int pack, int k) { held.at(pack, k) = residuals.at(pack, k) + held.at(pack, k); });
}

template <class Format>
struct PackBody {
  static constexpr int kBlocksPerSm = 4;
  using Unit = typename Format::Unit;
  using Packed = Pack<Unit, Format::kUnits>;

  TableView table;
  Format format;

  TUTTI_HOST_DEVICE void operator()(std::uint32_t tile, std::uint32_t lane) const {
    const TileWork work = table.work(tile, sizeof(float));
    if (work.row->num_inputs == 1) {
      pack_tile(work, Inputs<float, 1>(work), lane);
    } else {
      pack_tile(work, PackedInputs{work}, lane);
    }
  }

 private:
  template <class Sources>
  TUTTI_HOST_DEVICE void pack_tile(const TileWork& work, const Sources& inputs,
                                   std::uint32_t lane) const {
    TUTTI_NOT_UNROLLED
    for (std::uint32_t at = lane * kPackedTogether; at < work.count;
         at += kLanes * kPackedTogether) {
      if (work.whole) {
        pack(work, inputs, Group<4, false>{at, work.count});
      } else {
        pack(work, inputs, Group<1, true>{at, work.count});
      }
    }
  }

  template <class Sources, class Where>
  TUTTI_HOST_DEVICE void pack(const TileWork& work, const Sources& inputs,
                              const Where& where) const {
    Held<float, Where> elements;
    if constexpr (Format::kHasResidual) {
      load_with_residual(elements, inputs, residual_of(work), where);
    } else {
      inputs.load_sum(elements, where);
    }
    Packed packed{};
    each_element<Where>([&](int pack, int k) {
      if (where.exists(pack)) format.put(packed, pack * Where::kWidth + k, elements.at(pack, k));
    });
    Unit* const to = reinterpret_cast<Unit*>(work.row->output) +
                     (work.begin + where.first) / kPackedTogether * Format::kUnits;
    store_units(to, packed, Format::units(static_cast<int>(work.count - where.first)));
  }

  /// Stores packed units. A key's bytes follow those of the key before, so they may begin anywhere.
  TUTTI_HOST_DEVICE static void store_units(Unit* to, const Packed& packed, int count) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(to) % sizeof packed == 0;
    if (is_aligned && count >= Format::kUnits) return store_pack<Unit, Format::kUnits>(to, packed);
    TUTTI_UNROLLED
    for (int i = 0; i < Format::kUnits; ++i) {
      if (i < count) to[i] = packed.values[i];
    }
  }
};

template <class Rule>
struct FeedBackBody {
  static constexpr int kBlocksPerSm = 4;

  TableView table;
  Rule rule;

  TUTTI_HOST_DEVICE void operator()(std::uint32_t tile, std::uint32_t lane) const {
    const TileWork work = table.work(tile, sizeof(float));
    if (work.row->num_inputs == 1) {
      feed_back(work, Inputs<float, 1>(work), lane);
    } else {
      feed_back(work, PackedInputs{work}, lane);
    }
  }

 private:
  template <class Sources>
  TUTTI_HOST_DEVICE void feed_back(const TileWork& work, const Sources& inputs,
                                   std::uint32_t lane) const {
    float* const residual = residual_of(work);
    const auto step = [&]<class Where>(const Where& where) {
      Held<float, Where> elements;
      load_with_residual(elements, inputs, residual, where);
      each_element<Where>([&](int pack, int k) {
        const float s = elements.at(pack, k);
        elements.at(pack, k) = s - rule.sent(s);
      });
      store(elements, residual, where);
    };
    if (work.whole) {
      for_whole_tile<kVectorBytes / sizeof(float), 2>(lane, step);
    } else {
      for_short_tile<4>(lane, work.count, step);
    }
  }
};

}  // namespace tutti::gpus::kernels
