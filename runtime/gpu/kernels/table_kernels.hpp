// SPDX-License-Identifier: Apache-2.0
// Kernels on any Machine (staging.hpp): on CUDA's, or on a test's.
#pragma once

#include "runtime/gpu/kernels/arithmetic_body.hpp"
#include "runtime/gpu/kernels/families.hpp"
#include "runtime/gpu/kernels/pack_body.hpp"
#include "runtime/gpu/kernels/squares_body.hpp"
#include "runtime/gpu/kernels/steps.hpp"
#include "runtime/gpu/kernels/tree_sum_body.hpp"
#include "runtime/optimizers/rule.hpp"

namespace tutti::gpus::kernels {

template <class Machine>
Purpose purpose_of(const Optimizer* optimizer) {
  Purpose purpose;
  if (optimizer != nullptr) {
    purpose = {true, static_cast<std::uint32_t>(optimizer->num_states())};
  }
  purpose.vectors_per_tile = Machine::Shape::kVectorsPerTile;
  return purpose;
}

template <class Machine>
double* doubles(DeviceMemory<Machine>& memory, std::size_t count) {
  return reinterpret_cast<double*>(memory.get(count * sizeof(double)));
}
template <class Machine>
double* norms_of(Table<Machine>& table, std::size_t rows) {
  return doubles(table.norms, rows * optimizer::Norms::kMost);
}
template <class Machine>
double* partials_of(Table<Machine>& table) {
  return doubles(table.partials, table.cut().tiles().size());
}

/// The purpose of rows that are packed. A residual counts as a state of an update.
inline Purpose purpose_of(const Packing& packing) {
  return {.is_update = true,
          .num_states = packing.has_residual() ? std::uint32_t{1} : 0,
          .is_packed = true};
}

/// Calls visit(format) with the format that PackBody takes.
template <class Visit>
void visit_format(const Packing& packing, Visit visit) {
  switch (packing.format) {
    case Packing::Format::one_bit:
      return visit(BitFormat<collectives::OneBitRule>{{packing.threshold}});
    case Packing::Format::two_bit:
      return visit(BitFormat<collectives::TwoBitRule>{{packing.threshold}});
    case Packing::Format::float16:
      return visit(HalfFormat<Float16>());
    case Packing::Format::bfloat16:
      return visit(HalfFormat<BFloat16>());
  }
}

/// Kernels::sum of the table's rows of type T, by this body.
template <template <class, class> class Body, class T, class Machine>
void run_sum(Machine& machine, Stream stream, const Table<Machine>& table) {
  const std::uint32_t num_tiles = table.cut().part(dtype_of<T>).num_tiles;
  if (num_tiles == 0) return;
  machine.run(stream, num_tiles, Body<T, typename Machine::Shape>{table.view(dtype_of<T>)});
}

/// Kernels::update. planner.plan<Real>(optimizer, steps, plan) notes the passes of one type.
template <class Machine, class Planner>
void run_update(Machine& machine, Stream stream, Table<Machine>& table,
                std::span<const TensorRow> rows, const Optimizer& optimizer,
                std::span<const UpdateStep> steps, const Planner& planner) {
  table.set(stream, rows, purpose_of<Machine>(&optimizer));
  const DifferentSteps different =
      different_steps(steps, table.cut().places(), optimizer::depends_on_key(optimizer));
  const auto& of_place = different.of_place;
  const std::byte* step_of_row = nullptr;
  if (different.steps.size() > 1) {
    step_of_row = table.steps.send(table.staging, stream, of_place.data(),
                                   of_place.size() * sizeof(of_place[0]));
  }
  const bool whole = !optimizer.elementwise();
  const Launch<Machine> all{
      machine,
      stream,
      table,
      {table.view(DType::float16), reinterpret_cast<const std::uint32_t*>(step_of_row),
       whole ? norms_of(table, rows.size()) : nullptr, whole ? partials_of(table) : nullptr}};
  const auto run = [&]<class Real>(Real) {
    Plan<Machine> plan(different.steps.size(), all);
    planner.template plan<Real>(optimizer, different.steps, plan);
    plan.run();
  };
  const std::uint32_t num_double = table.cut().part(DType::float64).num_rows;
  if (num_double > 0) run(double{});
  if (num_double == 0 || num_double < rows.size()) run(float{});
}

template <class Machine>
class TableKernels final : public Kernels {
 public:
  template <class... Arguments>
  explicit TableKernels(Arguments... arguments) : machine_(arguments...) {}

  [[nodiscard]] std::unique_ptr<LaunchTable> make_table() override {
    return std::make_unique<Table<Machine>>(machine_);
  }

  void prepare(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
               const Optimizer* optimizer) override {
    auto& own = static_cast<Table<Machine>&>(table);
    own.set(stream, rows, purpose_of<Machine>(optimizer));
    if (optimizer == nullptr) return;
    own.steps.reserve(rows.size() * sizeof(std::uint32_t));
    if (!optimizer->elementwise()) {
      norms_of(own, rows.size());
      partials_of(own);
    }
  }

  void sum(Stream stream, LaunchTable& table, std::span<const TensorRow> rows) override {
    auto& own = static_cast<Table<Machine>&>(table);
    own.set(stream, rows, purpose_of<Machine>(nullptr));
    if (own.cut().has_tree()) {
      each_dtype([&]<class T>(T) { run_sum<AnyOrderSumBody, T>(machine_, stream, own); });
    } else {
      each_dtype([&]<class T>(T) { run_sum<SumBody, T>(machine_, stream, own); });
    }
  }

  [[nodiscard]] bool can_update(const Optimizer& optimizer) const override {
    return plan_any<float, Machine>(optimizer, {}, nullptr);
  }

  void update(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
              const Optimizer& optimizer, std::span<const UpdateStep> steps) override {
    run_update(machine_, stream, static_cast<Table<Machine>&>(table), rows, optimizer, steps,
               PlanAny());
  }

  void squares(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
               double* results) override {
    auto& own = static_cast<Table<Machine>&>(table);
    own.set(stream, rows, Purpose{});
    const std::vector<std::uint32_t>& places = own.cut().places();
    std::vector<std::uint32_t> row_of_place(places.size());
    for (std::uint32_t i = 0; i < places.size(); ++i) row_of_place[places[i]] = i;
    const std::byte* numbers = own.steps.send(own.staging, stream, row_of_place.data(),
                                              row_of_place.size() * sizeof(std::uint32_t));
    double* const of_tiles = partials_of(own);
    double* const of_rows = doubles(own.norms, rows.size());
    if (results == nullptr) return;
    each_dtype([&]<class T>(T) {
      if constexpr (!std::is_integral_v<T>) {
        const DTypeTiles& part = own.cut().part(dtype_of<T>);
        if (part.num_rows == 0) return;
        machine_.template run_sums<kLanes>(
            stream, part.num_tiles,
            SquaresBody<T>{own.view(dtype_of<T>), of_tiles + part.first_tile});
        machine_.template run_sums<kBlockThreads>(
            stream, part.num_rows,
            TotalSquaresBody{own.view(dtype_of<T>).rows, part.first_row,
                             reinterpret_cast<const std::uint32_t*>(numbers), of_tiles, of_rows,
                             static_cast<std::uint32_t>(sizeof(T))});
      }
    });
    machine_.copy(stream, reinterpret_cast<std::byte*>(results),
                  reinterpret_cast<const std::byte*>(of_rows), rows.size() * sizeof(double));
  }

  void pack(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
            const Packing& packing) override {
    const Tiles tiles = packing_tiles(stream, table, rows, packing);
    if (tiles.count == 0) return;
    visit_format(packing, [&]<class Format>(const Format& format) {
      machine_.run(stream, tiles.count, PackBody<Format>{tiles.view, format});
    });
  }

  void feed_back(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
                 const Packing& packing) override {
    const Tiles tiles = packing_tiles(stream, table, rows, packing);
    if (tiles.count == 0) return;
    visit_format(packing, [&]<class Format>(const Format& format) {
      if constexpr (Format::kHasResidual) {
        machine_.run(stream, tiles.count,
                     FeedBackBody<typename Format::Rule>{tiles.view, format.rule});
      }
    });
  }

  void tree_sum(Stream stream, std::span<const std::byte* const> inputs, std::byte* output,
                DType dtype, std::size_t count) override {
    if (count == 0) return;
    visit(dtype, [&]<class T>(T) {
      TreeSumBody<T> body{.inputs = {},
                          .output = reinterpret_cast<T*>(output),
                          .count = count,
                          .num_inputs = static_cast<int>(inputs.size()),
                          .aligned = false};
      auto places = reinterpret_cast<std::uintptr_t>(output);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        body.inputs[i] = reinterpret_cast<const T*>(inputs[i]);
        places |= reinterpret_cast<std::uintptr_t>(inputs[i]);
      }
      body.aligned = places % kVectorBytes == 0;
      const std::uint64_t most = tile_count(sizeof(T));
      machine_.run(stream, static_cast<std::uint32_t>((count + most - 1) / most), body);
    });
  }

  void fill(Stream stream, std::byte* target, DType dtype, std::size_t count,
            double value) override {
    visit(dtype, [&]<class T>(T) {
      map<T, T>(stream, target, target, count, FillMap<T>{elements::convert<T>(value)});
    });
  }

  void scale(Stream stream, std::byte* target, DType dtype, std::size_t count,
             double factor) override {
    visit(dtype, [&]<class T>(T) {
      map<T, T>(stream, target, target, count, ScaleMap<T>{elements::convert_factor<T>(factor)});
    });
  }

  void add_scaled(Stream stream, std::byte* target, DType dtype, std::size_t count, double factor,
                  const std::byte* source) override {
    visit(dtype, [&]<class T>(T) {
      map<T, T>(stream, target, source, count, AddMap<T>{elements::convert_factor<T>(factor)});
    });
  }

  void subtract_scaled(Stream stream, std::byte* target, DType dtype, std::size_t count,
                       double factor, const std::byte* source) override {
    visit(dtype, [&]<class T>(T) {
      map<T, T>(stream, target, source, count, AddMap<T>{-elements::convert_factor<T>(factor)});
    });
  }

  void convert(Stream stream, std::byte* target, DType to, const std::byte* source, DType from,
               std::size_t count) override {
    visit(to, [&]<class To>(To) {
      visit(from, [&]<class From>(From) {
        map<To, From>(stream, target, source, count, ConvertMap<To, From>{});
      });
    });
  }

 private:
  template <class Visit>
  static void each_dtype(Visit visit) {
    visit(Float16{}), visit(BFloat16{}), visit(float{}), visit(double{});
    visit(std::int8_t{}), visit(std::uint8_t{}), visit(std::int32_t{}), visit(std::int64_t{});
  }

  struct Tiles {
    TableView view;
    std::uint32_t count;
  };
  /// Sends rows that are packed, or whose residuals are fed back, and returns their tiles: all rows
  /// are float32.
  static Tiles packing_tiles(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
                             const Packing& packing) {
    auto& own = static_cast<Table<Machine>&>(table);
    own.set(stream, rows, purpose_of(packing));
    return {own.view(DType::float32), own.cut().part(DType::float32).num_tiles};
  }

  struct PlanAny {
    template <class Real>
    void plan(const Optimizer& optimizer, std::span<const UpdateStep> steps,
              Plan<Machine>& to) const {
      plan_any<Real, Machine>(optimizer, steps, &to);
    }
  };

  template <class To, class From, class Map>
  void map(Stream stream, std::byte* target, const std::byte* source, std::size_t count,
           const Map& map) {
    using Body = MapBody<To, From, Map>;
    if (count == 0) return;
    constexpr std::size_t kElements = kVectorBytes / Body::kWidest;
    const bool aligned = reinterpret_cast<std::uintptr_t>(target) % (kElements * sizeof(To)) == 0 &&
                         reinterpret_cast<std::uintptr_t>(source) % (kElements * sizeof(From)) == 0;
    const std::uint64_t most = tile_count(Body::kWidest);
    machine_.run(stream, static_cast<std::uint32_t>((count + most - 1) / most),
                 Body{reinterpret_cast<To*>(target), reinterpret_cast<const From*>(source), count,
                      aligned, map});
  }

  Machine machine_;
};

}  // namespace tutti::gpus::kernels
