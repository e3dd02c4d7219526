// SPDX-License-Identifier: Apache-2.0
// The pattern: the values that ranks contribute, and the value that every element of a result must
// then have.
//
// Element i of rank r's input in turn t is a small integer that depends on r, t and i modulo 251.
// A turn's inputs and results are therefore a pattern of 251 elements, repeated: fast to write and
// to compare, for every type and operation. 251 is prime: pieces that land in the wrong place are
// noticed, because the libraries cut at powers of two.
//
// The integers are such that no result rounds, whatever the order of the operation: sums stay
// within the type's exact integers, products are powers of two within its range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/tensor.hpp>

namespace apps::benchmark {

inline constexpr std::size_t kPeriod = 251;

/// The source of reduced values, in place of a rank whose inputs are meant.
inline constexpr int kReduced = -1;

/// A part of a tensor: the source's elements from `first` on.
struct Stretch {
  std::size_t count = 0;
  int source = kReduced;
  std::size_t first = 0;
};

/// The values of a job's inputs and results.
class Pattern {
 public:
  Pattern(tutti::DType dtype, tutti::ReduceOp op, int ranks)
      : dtype_(dtype), op_(op), ranks_(ranks) {}

  [[nodiscard]] tutti::DType dtype() const noexcept { return dtype_; }

  /// The element of rank `rank` in turn `turn` whose index is `phase` modulo kPeriod.
  [[nodiscard]] double value(int rank, std::uint64_t turn, std::size_t phase) const;
  /// The reduction of that element over all ranks, exactly.
  [[nodiscard]] double reduced(std::uint64_t turn, std::size_t phase) const;

  /// The number of elements of `tensor` that are not those of the stretches, one after the other.
  [[nodiscard]] std::size_t count_wrong(const tutti::ConstTensorView& tensor, std::uint64_t turn,
                                        const std::vector<Stretch>& stretches) const;

  /// A source's values of one turn, ready to be written again and again, which takes only stores.
  class Values {
   public:
    Values(const Pattern& pattern, int source, std::uint64_t turn)
        : dtype_(pattern.dtype_), turn_(turn), periods_(pattern.two_periods(source, turn)) {}

    [[nodiscard]] std::uint64_t turn() const noexcept { return turn_; }
    /// Stores every element of `tensor`, which begins with the source's element `first`.
    void write(const tutti::TensorView& tensor, std::size_t first) const;

   private:
    tutti::DType dtype_;
    std::uint64_t turn_;
    std::vector<std::byte> periods_;
  };

 private:
  /// Two periods of the source in a row, so that one can be read from any phase on.
  [[nodiscard]] std::vector<std::byte> two_periods(int source, std::uint64_t turn) const;
  [[nodiscard]] double sum_limit() const;

  tutti::DType dtype_;
  tutti::ReduceOp op_;
  int ranks_;
};

/// Fills a tensor with bytes that no result consists of, so that a result that was never written is
/// noticed.
void poison(const tutti::TensorView& tensor);

}  // namespace apps::benchmark
