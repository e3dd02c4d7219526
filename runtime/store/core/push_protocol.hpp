// SPDX-License-Identifier: Apache-2.0
// The steps of a push, for all kinds of values and wherever they lie.
//
//   take     local        Finds the values and keys: PushPlan, or the rows of a SparsePush. Then
//                         the steps that may fail on one rank alone: sums of values, memory,
//                         states.
//   agree    collective   All ranks make this push: the same keys, shapes, dtypes, rule of update
//                         and compression, and replicas that are alike where this push compares
//                         them. Else all throw the same error, or the minority is healed.
//   prepare  local        The steps that may fail on one rank alone and depend on the others'
//                         pushes.
//   sum      collective   The values of all ranks become one sum.
//   update   local        Every replica is assigned the sum, or is updated with it.
//
// On GPUs the last two are one step, sum_and_update: there a launch may sum over the ranks and
// update, and large keys are summed and updated in rounds.
//
//                      agree                       sum                       update
//   DensePush          with the sum: its own announcement carries the        as pieces of the sum
//                      signature, so small pushes take one round             arrive, or after it
//     compressed       with the sum, which is an allgather of packed values  as packets arrive
//   DevicePush         an operation without data   sum_and_update: see device_push.cpp
//     compressed       with the sum, as above: packed and summed by the hosts, then one launch
//   SparsePush         an allgather of how many    an allgather of the rows  row by row, or on a
//                      rows each rank has                                    GPU in one launch
//
// A step before `sum` changes nothing that the caller could see, so an error of it leaves the store
// as it was. An error of `sum`, `update` or `sum_and_update` fails the group.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>

#include "collectives/node/call.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/updates.hpp"

namespace tutti {

template <class Path>
concept SumsAndUpdates = requires(Path& path) {
  path.sum_and_update();
};
template <class Path>
concept SumsThenUpdates = requires(Path& path) {
  path.sum();
  path.update();
};
template <class Path>
concept PushPath = (SumsAndUpdates<Path> || SumsThenUpdates<Path>)&&requires(Path& path) {
  path.agree();
  path.prepare();
};

/// Carries out the steps after `take`. `together(body)` runs a body whose error all ranks throw.
/// Collective.
template <PushPath Path, class Together>
void carry_out(Path& path, Together together) {
  path.agree();
  together([&] { path.prepare(); });
  if constexpr (SumsAndUpdates<Path>) {
    path.sum_and_update();
  } else {
    path.sum();
    path.update();
  }
}

/// Errors  invalid_argument: an optimizer that scales gradients, of a store that compresses them.
void require_unscaled(const UpdateRule& rule, const GradientCompression& compression);

/// The announcement of a push, on which the ranks agree.
class PushAnnouncement {
 public:
  PushAnnouncement(const UpdateRule& rule, const GradientCompression& compression)
      : rule_(rule), compression_(compression) {}
  PushAnnouncement(const PushAnnouncement&) = delete;
  PushAnnouncement& operator=(const PushAnnouncement&) = delete;

  /// Notes how the push updates and compresses, in the step that takes its settings from the
  /// optimizer.
  void take() { fingerprint_ = rule_.fingerprint() ^ compression_.fingerprint(); }
  /// An operation without data, equal on all ranks that make the same push. `digest` is digest_of()
  /// the entries, which must outlive the operation, as this must.
  [[nodiscard]] collectives::Operation operation(const char* call, std::span<Entry* const> entries,
                                                 std::uint64_t digest);

 private:
  struct Describe {
    const PushAnnouncement& push;
    std::string operator()() const;
  };

  const UpdateRule& rule_;
  const GradientCompression& compression_;
  std::uint64_t fingerprint_ = 0;
  const char* call_ = nullptr;
  std::span<Entry* const> entries_;
  Describe describe_{*this};
};

}  // namespace tutti
