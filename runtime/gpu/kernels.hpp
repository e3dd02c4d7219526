// SPDX-License-Identifier: Apache-2.0
// The kernels of a GPU for the store: sums, updates by an optimizer, and the arithmetic of tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tutti/dtype.hpp"
#include "tutti/optimizer.hpp"

namespace tutti::gpus {

/// A queue of a device's work; null is the device's default stream.
using Stream = void*;

/// One tensor of a launch that covers many tensors. All pointers are to memory of the launch's
/// device.
struct TensorRow {
  static constexpr int kMostInputs = 8;
  static constexpr int kMostStates = Optimizer::kMostStates + 1;

  std::array<const std::byte*, kMostInputs> inputs{};  ///< summed from left to right or in a tree
  /// Inputs are summed in the canonical order (collectives/README.md), like the values of ranks.
  /// False for rows that are packed.
  bool in_tree = false;
  int num_inputs = 1;                            ///< 1 to kMostInputs
  std::byte* output = nullptr;                   ///< the target of a sum, or an update's weight
  std::array<std::byte*, kMostStates> states{};  ///< an update's states; the float32 copy of a
                                                 ///< 16-bit weight comes last
  std::size_t count = 0;
  DType dtype = DType::float32;  ///< the type of inputs and output

  friend bool operator==(const TensorRow&, const TensorRow&) = default;
};

/// A format of gradient compression (collectives/compression/codec.hpp) that GPUs pack, too.
struct Packing {
  enum class Format : std::uint8_t { one_bit, two_bit, float16, bfloat16 };
  Format format;
  float threshold = 0;  ///< the threshold of formats of bits

  [[nodiscard]] bool has_residual() const {
    return format == Format::one_bit || format == Format::two_bit;
  }
};

/// The rows of a launch as the device has them, cut into tiles. Kept from launch to launch: rows
/// that are as in the last launch are not sent again.
class LaunchTable {
 public:
  virtual ~LaunchTable() = default;
};

/// Puts kernels into streams. Nothing here waits for the device, or allocates once a table has seen
/// its rows, but for a few KiB.
class Kernels {
 public:
  virtual ~Kernels() = default;

  [[nodiscard]] virtual std::unique_ptr<LaunchTable> make_table() = 0;

  /// Does the steps that may fail for want of memory before sum() (`optimizer` null) or update() of
  /// these rows. Errors: out_of_memory.
  virtual void prepare(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
                       const Optimizer* optimizer) = 0;

  /// output = input 0 + input 1 + ..., of every row, in one launch; one input is copied. 16-bit
  /// floats add in float32 and round once. Integers wrap. An output may be one of its inputs.
  virtual void sum(Stream stream, LaunchTable& table, std::span<const TensorRow> rows) = 0;

  /// True if update() can run this optimizer, which holds for those of tutti/optimizers.hpp.
  [[nodiscard]] virtual bool can_update(const Optimizer& optimizer) const = 0;

  /// Sums each row's inputs as sum() does and updates its output (the weight) and states by the
  /// optimizer; the sum itself is not written anywhere. steps[i] belongs to rows[i]. Elementwise
  /// optimizers take one launch whatever the number of rows.
  virtual void update(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
                      const Optimizer& optimizer, std::span<const UpdateStep> steps) = 0;

  /// The sum of the squares of each row's sum, as update() takes it and in the order of
  /// optimizers/squares.hpp: results[i], in pinned memory of the host, is that of rows[i] once the
  /// stream has come so far. Rows of floats; their outputs are not touched. Null results: does the
  /// steps that may fail for want of memory, and launches nothing. Errors: out_of_memory.
  virtual void squares(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
                       double* results) = 0;

  /// Packs the sum of each row's inputs, as sum() makes it, and the residual, which is states[0] if
  /// the packing has one, into the row's output, in one launch and with the bits of Codec::pack().
  /// Rows of float32. Outputs of 16-bit formats begin at an even address, others anywhere.
  virtual void pack(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
                    const Packing& packing) = 0;
  /// Codec::feed_back() after pack() of the same rows by the same table, with unchanged inputs: one
  /// launch, or none without a residual. A NaN stays one, but its bits may be others than on a CPU.
  /// Nothing is sent or allocated.
  virtual void feed_back(Stream stream, LaunchTable& table, std::span<const TensorRow> rows,
                         const Packing& packing) = 0;

  /// output = the sum of 1 to TensorRow::kMostInputs inputs of `count` elements in the canonical
  /// order (collectives/README.md), with the bits of a node's sum on the cpu. The output is none of
  /// the inputs, which may be memory of other GPUs.
  virtual void tree_sum(Stream stream, std::span<const std::byte* const> inputs, std::byte* output,
                        DType dtype, std::size_t count) = 0;

  /// The arithmetic of TensorView (tensor.hpp), with its conversions, in the same bits.
  virtual void fill(Stream stream, std::byte* target, DType dtype, std::size_t count,
                    double value) = 0;
  virtual void scale(Stream stream, std::byte* target, DType dtype, std::size_t count,
                     double factor) = 0;
  /// target += factor * source
  virtual void add_scaled(Stream stream, std::byte* target, DType dtype, std::size_t count,
                          double factor, const std::byte* source) = 0;
  /// target -= factor * source
  virtual void subtract_scaled(Stream stream, std::byte* target, DType dtype, std::size_t count,
                               double factor, const std::byte* source) = 0;
  virtual void convert(Stream stream, std::byte* target, DType to, const std::byte* source,
                       DType from, std::size_t count) = 0;
};

}  // namespace tutti::gpus
