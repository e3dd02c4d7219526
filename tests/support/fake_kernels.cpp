// SPDX-License-Identifier: Apache-2.0
// The kernels of the fake GPUs: plain loops, written independently of the real kernels.
#include <bit>
#include <cmath>
#include <cstring>

#include "tutti/optimizers.hpp"
#include "tutti/tensor.hpp"

#include "collectives/compression/codec.hpp"
#include "runtime/optimizers/squares.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/support/oracle.hpp"

namespace test {

namespace {

using tutti::DType;
using tutti::Optimizer;
using tutti::UpdateStep;

/// The type in which sums are made.
template <class T>
using Wide = std::conditional_t<is_half<T>, float,
                                std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>>;

/// The sum along the canonical tree, whose left subtree is the largest power of two below the
/// number of leaves.
template <class Sum, class Leaf>
Sum tree(const Leaf& leaf, std::size_t first, std::size_t count) {
  if (count == 1) return leaf(first);
  const std::size_t left = std::bit_floor(count - 1);
  return tree<Sum>(leaf, first, left) + tree<Sum>(leaf, first + left, count - left);
}

template <class T>
Wide<T> sum_at(const gpus::TensorRow& row, std::size_t i) {
  const auto at = [&](std::size_t input) {
    return static_cast<Wide<T>>(reinterpret_cast<const T*>(row.inputs[input])[i]);
  };
  const auto num_inputs = static_cast<std::size_t>(row.num_inputs);
  if (row.in_tree) return tree<Wide<T>>(at, 0, num_inputs);
  Wide<T> sum = at(0);
  for (std::size_t input = 1; input < num_inputs; ++input) sum = sum + at(input);
  return sum;
}

void sum_row(const gpus::TensorRow& row) {
  tutti::visit(row.dtype, [&]<class T>(T) {
    std::vector<T> sums(row.count);
    for (std::size_t i = 0; i < row.count; ++i) {
      const bool is_copy = row.num_inputs == 1;
      sums[i] = is_copy ? reinterpret_cast<const T*>(row.inputs[0])[i]
                        : static_cast<T>(sum_at<T>(row, i));
    }
    std::copy(sums.begin(), sums.end(), reinterpret_cast<T*>(row.output));
  });
}

std::vector<std::byte> summed(gpus::TensorRow row) {
  std::vector<std::byte> sums(row.count * tutti::size_of(row.dtype));
  row.output = sums.data();
  sum_row(row);
  return sums;
}

std::unique_ptr<tutti::collectives::Codec> codec_of(const gpus::Packing& packing) {
  using Format = gpus::Packing::Format;
  switch (packing.format) {
    case Format::one_bit:
      return tutti::collectives::one_bit_codec(packing.threshold);
    case Format::two_bit:
      return tutti::collectives::two_bit_codec(packing.threshold);
    case Format::float16:
      return tutti::collectives::half_codec(DType::float16);
    case Format::bfloat16:
      return tutti::collectives::half_codec(DType::bfloat16);
  }
  return nullptr;
}

double squares_of(const gpus::TensorRow& row) {
  const std::vector<std::byte> sums = summed(row);
  std::vector<double> tiles(tutti::optimizer::squares_tiles(row.dtype, row.count));
  tutti::optimizer::add_squares(row.dtype, sums.data(), row.count, tiles);
  return tutti::optimizer::total_squares(tiles);
}

template <class Real>
void update_range(const Optimizer& optimizer, const UpdateStep& step, const gpus::TensorRow& row,
                  const std::vector<Real>& gradient, std::byte* weight) {
  std::array<Real*, Optimizer::kMostStates> states{};
  for (int i = 0; i < optimizer.num_states(); ++i) {
    states[i] = reinterpret_cast<Real*>(row.states[i]);
  }
  optimizer.update(step,
                   tutti::ElementRange<Real>{
                       .gradient = gradient,
                       .weight = {reinterpret_cast<Real*>(weight), row.count},
                       .states = {states.data(), static_cast<std::size_t>(optimizer.num_states())},
                       .first = 0});
}

void update_row(const Optimizer& optimizer, const UpdateStep& step, const gpus::TensorRow& row) {
  tutti::visit(row.dtype, [&]<class T>(T) {
    if constexpr (!std::is_integral_v<T>) {
      using Real = Wide<T>;
      std::vector<Real> gradient(row.count);
      for (std::size_t i = 0; i < row.count; ++i) gradient[i] = sum_at<T>(row, i);
      std::byte* master = is_half<T> ? row.states[optimizer.num_states()] : row.output;
      update_range<Real>(optimizer, step, row, gradient, master);
      if constexpr (is_half<T>) {
        for (std::size_t i = 0; i < row.count; ++i) {
          reinterpret_cast<T*>(row.output)[i] = static_cast<T>(reinterpret_cast<float*>(master)[i]);
        }
      }
    }
  });
}

class FakeTable final : public gpus::LaunchTable {};

class FakeKernels final : public gpus::Kernels {
 public:
  FakeKernels(FakeAccelerator& accelerator, int device)
      : accelerator_(accelerator), device_(device) {}

  std::unique_ptr<gpus::LaunchTable> make_table() override { return std::make_unique<FakeTable>(); }

  void prepare(gpus::Stream /*stream*/, gpus::LaunchTable& /*table*/,
               std::span<const gpus::TensorRow> /*rows*/,
               const tutti::Optimizer* /*optimizer*/) override {}

  void sum(gpus::Stream stream, gpus::LaunchTable& /*table*/,
           std::span<const gpus::TensorRow> rows) override {
    launch(stream, [rows = std::vector(rows.begin(), rows.end())] {
      for (const gpus::TensorRow& row : rows) sum_row(row);
    });
  }

  bool can_update(const Optimizer& optimizer) const override {
    return optimizer.name() != "custom";
  }

  void update(gpus::Stream stream, gpus::LaunchTable& /*table*/,
              std::span<const gpus::TensorRow> rows, const Optimizer& optimizer,
              std::span<const UpdateStep> steps) override {
    launch(stream, [rows = std::vector(rows.begin(), rows.end()),
                    steps = std::vector(steps.begin(), steps.end()),
                    copy = tutti::optimizer::create(optimizer.describe())] {
      for (std::size_t i = 0; i < rows.size(); ++i) update_row(*copy, steps[i], rows[i]);
    });
  }

  /// Adds the squares in the library's own order, whose numbers for GPUs are those for CPUs.
  void squares(gpus::Stream stream, gpus::LaunchTable& /*table*/,
               std::span<const gpus::TensorRow> rows, double* results) override {
    if (results == nullptr) return;
    launch(stream, [rows = std::vector(rows.begin(), rows.end()), results] {
      for (std::size_t i = 0; i < rows.size(); ++i) results[i] = squares_of(rows[i]);
    });
  }

  void pack(gpus::Stream stream, gpus::LaunchTable& /*table*/,
            std::span<const gpus::TensorRow> rows, const gpus::Packing& packing) override {
    launch(stream, [rows = std::vector(rows.begin(), rows.end()), packing] {
      const auto codec = codec_of(packing);
      for (const gpus::TensorRow& row : rows) {
        const std::vector<std::byte> sums = summed(row);
        codec->pack(reinterpret_cast<const float*>(sums.data()),
                    reinterpret_cast<const float*>(row.states[0]), row.count, row.output);
      }
    });
  }

  /// The packed bytes are not read, as on a GPU.
  void feed_back(gpus::Stream stream, gpus::LaunchTable& /*table*/,
                 std::span<const gpus::TensorRow> rows, const gpus::Packing& packing) override {
    if (!packing.has_residual()) return;
    launch(stream, [rows = std::vector(rows.begin(), rows.end()), packing] {
      const auto codec = codec_of(packing);
      for (const gpus::TensorRow& row : rows) {
        const std::vector<std::byte> sums = summed(row);
        codec->feed_back(reinterpret_cast<const float*>(sums.data()),
                         reinterpret_cast<float*>(row.states[0]), row.count, nullptr);
      }
    });
  }

  void tree_sum(gpus::Stream stream, std::span<const std::byte* const> inputs, std::byte* output,
                DType dtype, std::size_t count) override {
    launch(stream, [inputs = std::vector(inputs.begin(), inputs.end()), output, dtype, count] {
      tutti::visit(dtype, [&]<class T>(T) {
        for (std::size_t i = 0; i < count; ++i) {
          const auto leaf = [&](std::size_t input) {
            return static_cast<Wide<T>>(reinterpret_cast<const T*>(inputs[input])[i]);
          };
          reinterpret_cast<T*>(output)[i] = static_cast<T>(tree<Wide<T>>(leaf, 0, inputs.size()));
        }
      });
    });
  }

  void fill(gpus::Stream stream, std::byte* target, DType dtype, std::size_t count,
            double value) override {
    launch(stream, [=] { view(target, dtype, count).fill(value); });
  }
  void scale(gpus::Stream stream, std::byte* target, DType dtype, std::size_t count,
             double factor) override {
    launch(stream, [=] { view(target, dtype, count) *= factor; });
  }
  void add_scaled(gpus::Stream stream, std::byte* target, DType dtype, std::size_t count,
                  double factor, const std::byte* source) override {
    launch(stream, [=] { view(target, dtype, count) += factor * view(source, dtype, count); });
  }
  void subtract_scaled(gpus::Stream stream, std::byte* target, DType dtype, std::size_t count,
                       double factor, const std::byte* source) override {
    launch(stream, [=] { view(target, dtype, count) -= factor * view(source, dtype, count); });
  }
  void convert(gpus::Stream stream, std::byte* target, DType to, const std::byte* source,
               DType from, std::size_t count) override {
    launch(stream, [=] { view(target, to, count).copy_from(view(source, from, count)); });
  }

 private:
  static tutti::TensorView view(std::byte* data, DType dtype, std::size_t count) {
    return {data, {static_cast<std::int64_t>(count)}, dtype};
  }
  static tutti::ConstTensorView view(const std::byte* data, DType dtype, std::size_t count) {
    return {data, {static_cast<std::int64_t>(count)}, dtype};
  }
  template <class Body>
  void launch(gpus::Stream stream, Body body) {
    accelerator_.count_launch();
    accelerator_.enqueue(device_, stream, [body = std::move(body)] {
      body();
      return true;
    });
  }

  FakeAccelerator& accelerator_;
  int device_;
};

}  // namespace

std::unique_ptr<gpus::Kernels> make_fake_kernels(FakeAccelerator& accelerator, int device) {
  return std::make_unique<FakeKernels>(accelerator, device);
}

}  // namespace test
