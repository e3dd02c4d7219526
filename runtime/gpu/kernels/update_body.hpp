// SPDX-License-Identifier: Apache-2.0
// A formula of an optimizer over the rows of a table: sums the gradients, reads the tensors that
// the formula reads, and writes those that it writes, each element once.
#pragma once

#include <cmath>
#include <utility>

#include "runtime/gpu/kernels/sum_body.hpp"
#include "runtime/optimizers/formula.hpp"

namespace tutti::gpus::kernels {

/// A formula for one UpdateStep; or none, where the step does not need this formula.
template <class Formula>
struct StepFormula {
  Formula formula;
  std::uint32_t present;
};

/// The formulas of a launch: a few are parameters of the kernel, more are in the device's memory.
template <class Formula>
struct StepFormulas {
  static constexpr std::size_t kFew = 4;

  alignas(StepFormula<Formula>) std::byte few[kFew * sizeof(StepFormula<Formula>)];
  const StepFormula<Formula>* many;  ///< null for few

  TUTTI_HOST_DEVICE const StepFormula<Formula>& operator[](std::uint32_t index) const {
    return (many == nullptr ? reinterpret_cast<const StepFormula<Formula>*>(few) : many)[index];
  }
};

/// Data that the rows of a launch share.
struct UpdateView {
  TableView table;
  const std::uint32_t* step_of_row;  ///< null: all rows have the first step
  double* norms;                     ///< Norms::kMost for each row
  double* partials;                  ///< each tile's part of the norm that this launch computes
};

/// Updates a tile. Returns the tile's part of the sum of squares, if the formula is one of a norm.
template <class Formula, class Stored, class Shape = UsualShape>
struct UpdateBody {
  using Actual = optimizer::Resolved<Formula>;
  using Uses = optimizer::UsesOf<Actual>;
  using Real = std::conditional_t<elements::is_half<Stored>, float, Stored>;
  static constexpr std::uint32_t kTile = tile_count(sizeof(Real), Shape::kVectorsPerTile);
  static constexpr int kWidth = Shape::kVectorBytes / sizeof(Real);
  static constexpr int kUsualPacks = Uses::kNumRead == 1 ? 4 : Uses::kNumRead <= 3 ? 2 : 1;
  static constexpr int kPacks = Shape::kPacks == 0 ? kUsualPacks : Shape::kPacks;
  // Launches have fewer threads, with more registers, where each thread has enough in flight (see
  // sum_body.hpp), and where a formula has many numbers: nadam's would not all stay in registers
  // beside 16-bit packs.
  static constexpr bool kManyNumbers = sizeof(Actual) > 11 * sizeof(Real);
  // Nor would 16-bit weights beside two states, or a formula that makes random numbers.
  static constexpr bool kHalves = elements::is_half<Stored> && Uses::kTensors * kPacks == 4;
  static constexpr bool kIsLong = requires { Actual::kIsLong; };
  static constexpr bool kFewThreads = Uses::kTensors * kPacks > 4 || Uses::kGivesValue ||
                                      kManyNumbers || kHalves || Uses::kTakesPosition || kIsLong;
  static constexpr int kUsualBlocks = sizeof(Real) == 8 ? 2 : kFewThreads ? 3 : 4;
  static constexpr int kBlocksPerSm = Shape::kBlocksPerSm == 0 ? kUsualBlocks : Shape::kBlocksPerSm;

  UpdateView view;
  StepFormulas<Formula> formulas;

  TUTTI_HOST_DEVICE double operator()(std::uint32_t tile, std::uint32_t lane) const {
    const TileWork work = view.table.work<Shape::kVectorsPerTile>(tile, sizeof(Real));
    const auto row = static_cast<std::uint32_t>(work.row - view.table.rows);
    const StepFormula<Formula>& stored =
        formulas[view.step_of_row == nullptr ? 0 : view.step_of_row[row]];
    if (stored.present == 0) return 0;
    const optimizer::Norms norms{view.norms + std::size_t{row} * optimizer::Norms::kMost};
    Lane own(work, optimizer::resolved(stored.formula, norms));
    const ManyInputs<Stored, 2> many{work};
    const auto step_many = [&](const auto& where) { step(many, InPlace(), own, where); };
    if (!work.whole) {
      for_short_tile<2>(lane, work.count, step_many);
    } else if (work.row->num_inputs == 1 || !Uses::kRead[0]) {
      const Inputs<Stored, 1> one(work);
      for_whole_tile<kWidth, kPacks, kTile, Shape::kStreams>(
          lane, [&](const auto& where) { step(one, InPlace(), own, where); });
    } else {
      for_whole_tile<kWidth, 1, kTile, Shape::kStreams>(lane, step_many);
    }
    return own.squares;
  }

  TUTTI_HOST_DEVICE void store_sum(std::uint32_t tile, double squares) const {
    view.partials[tile] = squares;
  }

 protected:
  /// The data that a lane keeps for all of its tile.
  struct Lane {
    TUTTI_HOST_DEVICE Lane(const TileWork& work, const Actual& now)
        : formula(now), begin(work.begin), rounded(nullptr) {
      tiles[0] = nullptr;  // the gradient has inputs
      tiles[1] = reinterpret_cast<Real*>(work.row->exact) + begin;
      TUTTI_UNROLLED
      for (int i = 2; i < Uses::kTensors; ++i) {
        tiles[i] = reinterpret_cast<Real*>(work.row->states[i - 2]) + begin;
      }
      if constexpr (elements::is_half<Stored>) {
        rounded = reinterpret_cast<Stored*>(work.row->output) + begin;
      }
    }

    Actual formula;
    std::uint64_t begin;
    Real* tiles[Uses::kTensors];  ///< parts of g, w and the states in the tile
    Stored* rounded;              ///< the part of a 16-bit weight
    double squares = 0;
  };

  template <class Where>
  using Tensors = Held<Real, Where>[Uses::kTensors];
  using Others = std::make_index_sequence<Uses::kTensors - 1>;

  /// Reads w and the states in place.
  struct InPlace {
    template <int kTensor, class Where>
    TUTTI_HOST_DEVICE void load_tensor(Held<Real, Where>& held, const Lane& own,
                                       const Where& where) const {
      load(held, own.tiles[kTensor], where);
    }
  };

  template <class Gradient, class Sources, class Where>
  TUTTI_HOST_DEVICE static void step(const Gradient& inputs, const Sources& others, Lane& own,
                                     const Where& where) {
    Tensors<Where> tensors{};
    Held<Stored, Where> sums{};
    if constexpr (Uses::kRead[0] && Gradient::kIsLoop) inputs.load_sum(sums, where);
    load_read(others, own, where, tensors, Others());
    if constexpr (Uses::kRead[0] && !Gradient::kIsLoop) inputs.load_sum(sums, where);
    each_element<Where>([&](int pack, int k) { tensors[0].at(pack, k) = widen(sums.at(pack, k)); });
    compute(own, where, tensors, std::make_index_sequence<Uses::kTensors>());
    store_written(own, where, tensors, Others());
    if constexpr (elements::is_half<Stored> && Uses::kWritten[1]) {
      store_rounded(own, where, tensors[1]);
    }
  }

  template <class Sources, class Where, std::size_t... kOther>
  TUTTI_HOST_DEVICE static void load_read(const Sources& others, const Lane& own,
                                          const Where& where, Tensors<Where>& tensors,
                                          std::index_sequence<kOther...> /*others*/) {
    const auto one = [&]<std::size_t kIndex>(std::integral_constant<std::size_t, kIndex>) {
      if constexpr (Uses::kRead[kIndex]) {
        others.template load_tensor<static_cast<int>(kIndex)>(tensors[kIndex], own, where);
      }
    };
    (one(std::integral_constant<std::size_t, kOther + 1>()), ...);
  }

  template <class Where, std::size_t... kOther>
  TUTTI_HOST_DEVICE static void store_written(const Lane& own, const Where& where,
                                              Tensors<Where>& tensors,
                                              std::index_sequence<kOther...> /*others*/) {
    const auto one = [&]<std::size_t kIndex>(std::integral_constant<std::size_t, kIndex>) {
      if constexpr (Uses::kWritten[kIndex]) store(tensors[kIndex], own.tiles[kIndex], where);
    };
    (one(std::integral_constant<std::size_t, kOther + 1>()), ...);
  }

  template <class Where, std::size_t... kTensor>
  TUTTI_HOST_DEVICE static void compute(Lane& own, const Where& where, Tensors<Where>& tensors,
                                        std::index_sequence<kTensor...> /*tensors*/) {
    TUTTI_UNROLLED
    for (int pack = 0; pack < Where::kPacks; ++pack) {
      if (!where.exists(pack)) continue;
      TUTTI_UNROLLED
      for (int k = 0; k < Where::kWidth; ++k) {
        if constexpr (Uses::kTakesPosition) {
          const std::uint64_t index = own.begin + where.index(pack) + static_cast<std::uint32_t>(k);
          own.formula(optimizer::Position{index}, tensors[kTensor].at(pack, k)...);
        } else if constexpr (Uses::kGivesValue) {
          const double value = own.formula(tensors[kTensor].at(pack, k)...);
          own.squares += value * value;
        } else {
          own.formula(tensors[kTensor].at(pack, k)...);
        }
      }
    }
  }

  template <class Where>
  TUTTI_HOST_DEVICE static void store_rounded(const Lane& own, const Where& where,
                                              Held<Real, Where>& exact) {
    Held<Stored, Where> weight;
    each_element<Where>(
        [&](int pack, int k) { weight.at(pack, k) = narrow<Stored>(exact.at(pack, k)); });
    store(weight, own.rounded, where);
  }
};

/// The norms of the rows from the partial sums of their tiles, always in the same order: one row's
/// threads add every kBlockThreads-th, then a tree adds the threads.
struct NormBody {
  static constexpr int kBlocksPerSm = 4;

  const DeviceRow* rows;
  const double* partials;
  double* norms;  ///< norms of the first row
  std::uint32_t elements_per_tile;
  int which;

  TUTTI_HOST_DEVICE double operator()(std::uint32_t row, std::uint32_t thread) const {
    const DeviceRow& own = rows[row];
    const auto num_tiles =
        static_cast<std::uint32_t>((own.count + elements_per_tile - 1) / elements_per_tile);
    double sum = 0;
    for (std::uint32_t i = thread; i < num_tiles; i += kBlockThreads) {
      sum += partials[own.first_tile + i];
    }
    return sum;
  }

  TUTTI_HOST_DEVICE void store_sum(std::uint32_t row, double sum) const {
    norms[std::size_t{row} * optimizer::Norms::kMost + static_cast<std::size_t>(which)] =
        std::sqrt(sum);
  }
};

}  // namespace tutti::gpus::kernels
