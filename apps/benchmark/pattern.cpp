// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/pattern.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace apps::benchmark {
namespace {

using tutti::DType;
using tutti::ReduceOp;

constexpr std::uint64_t kMaxFactors = 6;  // 2^6 is in the range of int8
constexpr double kMaxInput = 7.0;
constexpr int kPoisonByte = 0xA5;

/// A well-mixed function of its arguments. Source: Steele, Lea, Flood, OOPSLA 2014 (splitmix64).
std::uint64_t mix(std::uint64_t rank, std::uint64_t turn, std::uint64_t phase) {
  std::uint64_t bits = (rank * 1000003 + turn) * 1009 + phase + 0x9E3779B97F4A7C15;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return bits ^ (bits >> 31);
}

bool is_unsigned(DType dtype) { return dtype == DType::uint8; }

double combine(ReduceOp op, double left, double right) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return left + right;
    case ReduceOp::prod:
      return left * right;
    case ReduceOp::min:
      return std::min(left, right);
    case ReduceOp::max:
      return std::max(left, right);
  }
  return left;
}

/// A factor of a product: 1 or 2, with a sign where the type has one. At most kMaxFactors ranks
/// have a 2.
double factor(DType dtype, int rank, int ranks, std::uint64_t turn, std::size_t phase) {
  const auto job = static_cast<std::uint64_t>(ranks);
  const std::uint64_t common = mix(job, turn, phase);
  const std::uint64_t twos = common % (std::min(job, kMaxFactors) + 1);
  const std::uint64_t place = (static_cast<std::uint64_t>(rank) + common / 64) % job;
  const bool negative =
      !is_unsigned(dtype) && mix(static_cast<std::uint64_t>(rank), turn, phase) % 2 == 1;
  return (place < twos ? 2.0 : 1.0) * (negative ? -1.0 : 1.0);
}

/// Walks over a tensor's bytes in pieces of at most a period, each beside its bytes in the pattern.
template <class Visitor>
void for_each_piece(std::size_t count, std::size_t element, std::size_t first,
                    const std::vector<std::byte>& periods, Visitor&& visitor) {
  const std::byte* const expected = periods.data() + first % kPeriod * element;
  for (std::size_t done = 0; done < count; done += kPeriod) {
    visitor(done * element, expected, std::min(kPeriod, count - done) * element);
  }
}

std::size_t count_different(const std::byte* left, const std::byte* right, std::size_t bytes,
                            std::size_t element) {
  if (std::memcmp(left, right, bytes) == 0) return 0;
  std::size_t different = 0;
  for (std::size_t at = 0; at < bytes; at += element) {
    different += std::memcmp(left + at, right + at, element) != 0 ? 1 : 0;
  }
  return different;
}

}  // namespace

double Pattern::sum_limit() const {
  switch (dtype_) {
    case DType::int8:
      return 127.0;
    case DType::uint8:
      return 255.0;
    case DType::bfloat16:
      return 256.0;
    case DType::float16:
      return 2048.0;
    case DType::float32:
    case DType::float64:
    case DType::int32:
    case DType::int64:
      return 16777216.0;
  }
  return 0.0;
}

double Pattern::value(int rank, std::uint64_t turn, std::size_t phase) const {
  if (op_ == ReduceOp::prod) return factor(dtype_, rank, ranks_, turn, phase);
  const std::uint64_t bits = mix(static_cast<std::uint64_t>(rank), turn, phase);
  double largest = 120.0;      // min and max do not grow
  if (op_ == ReduceOp::avg) {  // multiples of the number of ranks have whole averages
    const double each = sum_limit() / (1.0 * ranks_ * ranks_);
    const double steps = std::clamp(std::floor(each), 1.0, kMaxInput);
    if (rank * (1.0 * ranks_) >= sum_limit()) return 0.0;
    const auto all = static_cast<std::uint64_t>(2.0 * steps + 1.0);
    return ranks_ * (static_cast<double>(bits % all) - steps);
  }
  if (op_ == ReduceOp::sum) {
    // Where there are more ranks than the type has integers, the later ones contribute zeros.
    if (rank >= static_cast<int>(sum_limit())) return 0.0;
    const int each = static_cast<int>(sum_limit()) / ranks_;
    largest = std::clamp(static_cast<double>(each), 1.0, kMaxInput);
  }
  const auto steps = static_cast<std::uint64_t>(largest);
  if (is_unsigned(dtype_)) return static_cast<double>(bits % (steps + 1));
  return static_cast<double>(bits % (2 * steps + 1)) - largest;
}

double Pattern::reduced(std::uint64_t turn, std::size_t phase) const {
  double result = value(0, turn, phase);
  for (int rank = 1; rank < ranks_; ++rank) {
    result = combine(op_, result, value(rank, turn, phase));
  }
  if (op_ == ReduceOp::avg) result /= ranks_;
  return result;
}

std::vector<std::byte> Pattern::two_periods(int source, std::uint64_t turn) const {
  return tutti::visit(dtype_, [&]<class T>(T) {
    std::vector<std::byte> bytes(2 * kPeriod * sizeof(T));
    for (std::size_t phase = 0; phase < kPeriod; ++phase) {
      const double exact = source == kReduced ? reduced(turn, phase) : value(source, turn, phase);
      const T element = static_cast<T>(static_cast<float>(exact));  // a small integer
      std::memcpy(bytes.data() + phase * sizeof(T), &element, sizeof(T));
      std::memcpy(bytes.data() + (kPeriod + phase) * sizeof(T), &element, sizeof(T));
    }
    return bytes;
  });
}

void Pattern::Values::write(const tutti::TensorView& tensor, std::size_t first) const {
  std::byte* const place = tensor.bytes();
  for_each_piece(tensor.count(), tutti::size_of(dtype_), first, periods_,
                 [&](std::size_t at, const std::byte* values, std::size_t bytes) {
                   std::memcpy(place + at, values, bytes);
                 });
}

std::size_t Pattern::count_wrong(const tutti::ConstTensorView& tensor, std::uint64_t turn,
                                 const std::vector<Stretch>& stretches) const {
  const std::size_t element = tutti::size_of(dtype_);
  const std::byte* place = tensor.bytes();
  std::size_t wrong = 0;
  for (const Stretch& stretch : stretches) {
    const auto periods = two_periods(stretch.source, turn);
    for_each_piece(stretch.count, element, stretch.first, periods,
                   [&](std::size_t at, const std::byte* expected, std::size_t bytes) {
                     wrong += count_different(place + at, expected, bytes, element);
                   });
    place += stretch.count * element;
  }
  return wrong;
}

void poison(const tutti::TensorView& tensor) {
  if (tensor.size_bytes() > 0) std::memset(tensor.bytes(), kPoisonByte, tensor.size_bytes());
}

}  // namespace apps::benchmark
