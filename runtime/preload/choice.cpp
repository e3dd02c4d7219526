// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/choice.hpp"

#include <algorithm>

namespace tutti::preload {

/// The library's way unless the MPI's is clearly faster: its calls are seen in reports, and a rank
/// that differs is named.
void Choice::decide(Size& size, MPI_Comm comm) {
  constexpr double kClearly = 0.95;
  std::array<double, 2> medians{};
  for (std::size_t way = 0; way < medians.size(); ++way) {
    auto& times = size.microseconds[way];
    std::ranges::nth_element(times, times.begin() + kKept / 2);
    medians[way] = static_cast<double>(times[kKept / 2]);
  }
  const int code = PMPI_Allreduce(MPI_IN_PLACE, medians.data(), static_cast<int>(medians.size()),
                                  MPI_DOUBLE, MPI_SUM, comm);
  size.is_decided = true;
  size.is_mpis = code == MPI_SUCCESS && medians[1] < kClearly * medians[0];
}

}  // namespace tutti::preload
