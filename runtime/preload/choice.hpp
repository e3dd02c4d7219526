// SPDX-License-Identifier: Apache-2.0
// Which is faster for a communicator's calls of one kind and size: the library or the MPI.
//
// The first calls of each size go one way, and then as many the other: in turn, a call would begin
// as the other way's had left the ranks. Only the last of them count: the library still tries its
// paths in the others, and the MPI's are cold, which is much of the time of a small call. Then
// ranks add up their median times, and the way that is faster carries out all later calls. What a
// rank does follows from the number of such calls that the engine or MPI has carried out and from
// that sum, which are equal on all ranks.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <vector>

#include "collectives/job/operation.hpp"

namespace tutti::preload {

/// The kinds and sizes whose calls the engine has once declined on a communicator, on all ranks
/// alike.
class LeftToMpi {
 public:
  [[nodiscard]] bool has(collectives::Kind kind, std::size_t bytes) const {
    return (sizes_[static_cast<std::size_t>(kind)] & bit_of(bytes)) != 0;
  }
  void add(collectives::Kind kind, std::size_t bytes) {
    sizes_[static_cast<std::size_t>(kind)] |= bit_of(bytes);
  }

 private:
  static std::uint64_t bit_of(std::size_t bytes) {
    return std::uint64_t{1} << (static_cast<std::size_t>(std::bit_width(bytes)) % 64);
  }
  std::array<std::uint64_t, static_cast<std::size_t>(collectives::Kind::refusal)> sizes_{};
};

class Choice {
 public:
  /// Carries out a call by `own` or by `by_mpi`; both return MPI's code. `own` sets its argument
  /// once the engine has carried out the call, which it does on all ranks or on none. If it cannot,
  /// `own` returns without an error, and all calls of the size are MPI's from then on. Collective
  /// over `comm`.
  template <class Own, class ByMpi>
  int run(collectives::Kind kind, std::size_t bytes, MPI_Comm comm, Own own, ByMpi by_mpi) {
    Size& size = size_of_call(kind, bytes);
    bool is_done = false;
    const auto by_own = [&] {
      const int code = own(is_done);
      if (is_done || code != MPI_SUCCESS) return code;
      size = {.is_decided = true, .is_mpis = true};
      return by_mpi();
    };
    if (size.is_decided) return size.is_mpis ? by_mpi() : by_own();
    using Clock = std::chrono::steady_clock;
    const std::uint32_t turn = bytes < kSmall ? kTurnOfSmall : kTurn;
    const bool is_mpis_turn = size.calls >= turn;
    const auto begun = Clock::now();
    const int code = is_mpis_turn ? by_mpi() : by_own();
    const std::chrono::duration<float, std::micro> spent = Clock::now() - begun;
    // Ranks whose calls differ, and all fail, count different ones, and a rank whose arguments are
    // refused calls again: if these counted, ranks would take other ways in later calls.
    if (is_mpis_turn ? code != MPI_SUCCESS : !is_done) return code;
    size.microseconds[is_mpis_turn ? 1 : 0][size.calls % kKept] = spent.count();
    if (++size.calls == 2 * turn) decide(size, comm);
    return code;
  }

 private:
  static constexpr std::uint32_t kKept = 8;          ///< times, in the place of earlier ones
  static constexpr std::uint32_t kTurn = 2 * kKept;  ///< calls of a way
  static constexpr std::size_t kSmall = 16 << 10;    ///< bytes, a power of two
  static constexpr std::uint32_t kTurnOfSmall = 64;
  static constexpr std::size_t kSizes = 32;  ///< powers of two; a call has up to 2 GiB
  static constexpr std::size_t kKinds = static_cast<std::size_t>(collectives::Kind::refusal);

  struct Size {
    std::uint32_t calls = 0;
    bool is_decided = false;
    bool is_mpis = false;
    std::array<std::array<float, kKept>, 2> microseconds{};  ///< own, MPI's
  };

  Size& size_of_call(collectives::Kind kind, std::size_t bytes) {
    auto& sizes = kinds_[static_cast<std::size_t>(kind)];
    if (sizes.empty()) sizes.resize(kSizes);
    return sizes[static_cast<std::size_t>(std::bit_width(bytes)) % kSizes];
  }
  static void decide(Size& size, MPI_Comm comm);

  std::array<std::vector<Size>, kKinds> kinds_;
};

}  // namespace tutti::preload
