// SPDX-License-Identifier: Apache-2.0
// Tiles that come into a block's shared memory by copies that no thread waits for (cp.async.bulk,
// from compute capability 9 on): a warp has kStages places, and copies the next tiles into all but
// the one that it computes from.
//
//   place 0   | copy tile 0 | compute 0 | copy tile 2W ...     W warps in the grid
//   place 1   | copy tile W            | compute W | ...
//
// The way through the tiles is walk_tiles() on a GPU and in the test on a CPU alike; an Engine has
// fetch(tile, place), await(place, parity), compute(tile, place) and leave(place).
// Invariant: a place is fetched into after every lane has left it; the n-th fetch into a place ends
// its phase n, whose parity is n % 2.
#pragma once

#include "runtime/gpu/kernels/sum_body.hpp"
#include "runtime/gpu/kernels/update_body.hpp"

namespace test::variants {

namespace kernels = tutti::gpus::kernels;

inline constexpr std::uint32_t kStages = 2;

/// The tiles of warp `first` of `stride` warps.
template <class Engine>
TUTTI_HOST_DEVICE void walk_tiles(std::uint32_t first, std::uint32_t stride,
                                  std::uint32_t num_tiles, Engine& engine) {
  const auto fetch = [&](std::uint64_t tile, std::uint32_t place) {
    if (tile < num_tiles) engine.fetch(static_cast<std::uint32_t>(tile), place);
  };
  for (std::uint32_t place = 0; place < kStages; ++place) {
    fetch(first + std::uint64_t{place} * stride, place);
  }
  std::uint32_t step = 0;
  for (std::uint64_t tile = first; tile < num_tiles; tile += stride, ++step) {
    const std::uint32_t place = step % kStages;
    engine.await(place, step / kStages % 2);
    engine.compute(static_cast<std::uint32_t>(tile), place);
    engine.leave(place);
    fetch(tile + std::uint64_t{kStages} * stride, place);
  }
}

/// As load(), from shared memory.
template <class T, class Where>
TUTTI_HOST_DEVICE void load_staged(kernels::Held<T, Where>& held, const std::byte* tile,
                                   const Where& where) {
  using Pack = kernels::Pack<T, Where::kWidth>;
  TUTTI_UNROLLED
  for (int pack = 0; pack < Where::kPacks; ++pack) {
    const std::byte* const from = tile + std::size_t{where.index(pack)} * sizeof(T);
#if defined(__CUDA_ARCH__)
    held.packs[pack] = *reinterpret_cast<const Pack*>(from);
#else
    std::memcpy(static_cast<void*>(held.packs[pack].values), from, sizeof(Pack));
#endif
  }
}

/// A copy's two addresses, and its bytes, are multiples of this.
inline constexpr std::uintptr_t kBulkGrain = 16;

TUTTI_HOST_DEVICE inline bool can_be_copied(const std::byte* from) {
  return reinterpret_cast<std::uintptr_t>(from) % kBulkGrain == 0;
}

/// A body whose whole tiles are read from a place of kStageBytes. each_copy(tile, visit) calls
/// visit(offset in the place, from, bytes).
template <class Body>
struct BulkBody;

template <class T, class Shape>
struct BulkBody<kernels::SumBody<T, Shape>> : kernels::SumBody<T, Shape> {
  using Usual = kernels::SumBody<T, Shape>;
  static constexpr int kMostInputs = 4;  ///< with more of them a tile is read in place
  static constexpr std::uint32_t kTile = kernels::tile_count(sizeof(T), Shape::kVectorsPerTile);
  static constexpr std::uint32_t kBytes = kTile * sizeof(T);
  static constexpr std::uint32_t kStageBytes = kMostInputs * kBytes;

  TUTTI_HOST_DEVICE explicit BulkBody(const Usual& usual) : Usual(usual) {}

  template <class Visit>
  TUTTI_HOST_DEVICE void each_copy(std::uint32_t tile, Visit&& visit) const {
    const kernels::Work work = this->table.template work<Shape::kVectorsPerTile>(tile, sizeof(T));
    if (!is_staged(work)) return;
    for (int i = 0; i < work.row->num_inputs; ++i) {
      visit(static_cast<std::uint32_t>(i) * kBytes, work.inputs[i] + work.begin * sizeof(T),
            kBytes);
    }
  }

  TUTTI_HOST_DEVICE void compute(std::uint32_t tile, std::uint32_t lane,
                                 const std::byte* stage) const {
    const kernels::Work work = this->table.template work<Shape::kVectorsPerTile>(tile, sizeof(T));
    if (!is_staged(work)) return (*this)(tile, lane);
    T* const output = reinterpret_cast<T*>(work.row->output) + work.begin;
    const int num_inputs = work.row->num_inputs;
    const auto step = [&]<class Where>(const Where& where) {
      kernels::Held<kernels::SummedIn<T>, Where> sums{};
      for (int i = 0; i < num_inputs; ++i) {
        kernels::Held<T, Where> input;
        load_staged(input, stage + static_cast<std::uint32_t>(i) * kBytes, where);
        kernels::add(sums, input, i == 0);
      }
      kernels::Held<T, Where> held;
      kernels::each_element<Where>(
          [&](int pack, int k) { held.at(pack, k) = kernels::narrow<T>(sums.at(pack, k)); });
      kernels::store(held, output, where);
    };
    kernels::for_whole_tile<Shape::kVectorBytes / sizeof(T), 1, kTile>(lane, step);
  }

 private:
  TUTTI_HOST_DEVICE static bool is_staged(const kernels::Work& work) {
    bool staged = work.whole && work.row->num_inputs <= kMostInputs;
    for (int i = 0; staged && i < work.row->num_inputs; ++i) staged = can_be_copied(work.inputs[i]);
    return staged;
  }
};

template <class Formula, class Stored, class Shape>
struct BulkBody<kernels::UpdateBody<Formula, Stored, Shape>>
    : kernels::UpdateBody<Formula, Stored, Shape> {
  using Usual = kernels::UpdateBody<Formula, Stored, Shape>;
  using Real = typename Usual::Real;
  using Uses = typename Usual::Uses;
  static constexpr std::uint32_t kGradientBytes = Usual::kTile * sizeof(Stored);
  static constexpr std::uint32_t kOtherBytes = Usual::kTile * sizeof(Real);
  static constexpr std::uint32_t kStageBytes = kGradientBytes + (Uses::kTensors - 1) * kOtherBytes;

  TUTTI_HOST_DEVICE explicit BulkBody(const Usual& usual) : Usual(usual) {}

  template <class Visit>
  TUTTI_HOST_DEVICE void each_copy(std::uint32_t tile, Visit&& visit) const {
    const kernels::Work work =
        this->view.table.template work<Shape::kVectorsPerTile>(tile, sizeof(Real));
    if (!is_staged(work)) return;
    if constexpr (Uses::kRead[0]) {
      visit(0u, work.inputs[0] + work.begin * sizeof(Stored), kGradientBytes);
    }
    each_other_copy(work, visit, std::make_index_sequence<Uses::kTensors - 1>());
  }

  TUTTI_HOST_DEVICE void compute(std::uint32_t tile, std::uint32_t lane,
                                 const std::byte* stage) const {
    const kernels::Work work =
        this->view.table.template work<Shape::kVectorsPerTile>(tile, sizeof(Real));
    if (!is_staged(work)) {
      static_cast<void>((*this)(tile, lane));
      return;
    }
    const auto row = static_cast<std::uint32_t>(work.row - this->view.table.rows);
    const auto& slot =
        this->slots[this->view.step_of_row == nullptr ? 0 : this->view.step_of_row[row]];
    if (slot.present == 0) return;
    typename Usual::Lane own(
        work, tutti::optimizer::resolved(slot.formula, tutti::optimizer::Norms{nullptr}));
    const Staged staged{stage};
    kernels::for_whole_tile<Usual::kWidth, 1, Usual::kTile>(
        lane, [&](const auto& where) { Usual::step(staged, staged, own, where); });
  }

 private:
  static_assert(!Uses::kGivesValue && !tutti::optimizer::kIsPrologue<Formula>);

  template <class Visit, std::size_t... kOther>
  TUTTI_HOST_DEVICE static void each_other_copy(const kernels::Work& work, Visit& visit,
                                                std::index_sequence<kOther...> /*others*/) {
    (copy_of<static_cast<int>(kOther) + 1>(work, visit), ...);
  }

  template <int kTensor, class Visit>
  TUTTI_HOST_DEVICE static void copy_of(const kernels::Work& work, Visit& visit) {
    if constexpr (Uses::kRead[kTensor]) {
      const std::byte* tensor = work.row->exact;
      if constexpr (kTensor > 1) tensor = work.row->states[kTensor - 2];
      visit(offset(kTensor), tensor + work.begin * sizeof(Real), kOtherBytes);
    }
  }

  TUTTI_HOST_DEVICE static constexpr std::uint32_t offset(int tensor) {
    return kGradientBytes + static_cast<std::uint32_t>(tensor - 1) * kOtherBytes;
  }

  TUTTI_HOST_DEVICE static bool is_staged(const kernels::Work& work) {
    return work.whole && work.row->num_inputs == 1 && can_be_copied(work.inputs[0]);
  }

  struct Staged {
    static constexpr bool kIsLoop = false;
    const std::byte* stage;

    template <class Where>
    TUTTI_HOST_DEVICE void load_sum(kernels::Held<Stored, Where>& held, const Where& where) const {
      load_staged(held, stage, where);
    }
    template <int kTensor, class Where>
    TUTTI_HOST_DEVICE void load_tensor(kernels::Held<Real, Where>& held,
                                       const typename Usual::Lane& /*own*/,
                                       const Where& where) const {
      load_staged(held, stage + offset(kTensor), where);
    }
  };
};

}  // namespace test::variants
