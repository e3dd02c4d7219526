// SPDX-License-Identifier: Apache-2.0
// Several launches of collective-benchmark as one: Tutti beside the best of MPI's configurations.
//
// MPI reads its configuration when it starts, so that each needs a launch of its own. Machines
// drift, so that the launches take turns, in rounds. A time is the median over launches: Tutti's
// over all of them, MPI's over those of one configuration. The best configuration of a size has the
// smallest of MPI's times. Every launch times Tutti and MPI in turn, so that a ratio is made of
// neighbours: of one launch, and then the median over those of the configuration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace apps::benchmark {

/// What must be alike in all launches, as a name and a text each: the collective, the ranks, the
/// machine, ...
using Conditions = std::vector<std::pair<std::string, std::string>>;

/// One result of a launch.
struct Measured {
  std::string backend;
  std::string buffers;
  std::size_t bytes = 0;
  double p50_us = 0.0;
};

struct Launch {
  std::string configuration;  ///< its --label
  Conditions conditions;
  std::string started;
  std::vector<Measured> results;
  std::uint64_t wrong = 0;
  bool checked = true;  ///< every result was
};

/// Reads the text of a --json file.
/// Errors  invalid_argument: it is none, it has no label, or a time that is not above 0.
Launch parse_launch(const std::string& text);

struct MpiTime {
  std::string configuration;
  double p50_us = 0.0;
  /// How many times longer MPI takes than Tutti beside it; unset if no launch has both.
  std::optional<double> store_ratio = std::nullopt;
  std::optional<double> user_ratio = std::nullopt;
};

/// One size.
struct Line {
  std::size_t bytes = 0;
  std::optional<double> store_us;  ///< Tutti, in the store's memory
  std::optional<double> user_us;   ///< Tutti, in ordinary memory
  std::vector<MpiTime> mpi;        ///< in the order of configurations; without those that lack it

  /// The fastest; nullptr if MPI has no result.
  [[nodiscard]] const MpiTime* best() const;
  /// Those of the best; unset without one.
  [[nodiscard]] std::optional<double> store_ratio() const;
  [[nodiscard]] std::optional<double> user_ratio() const;
};

struct Configuration {
  std::string name;
  std::size_t launches = 0;
};

struct Merged {
  Conditions conditions;
  std::string started;                        ///< the first launch
  std::vector<Configuration> configurations;  ///< in the order of the first launch of each
  std::vector<Line> lines;                    ///< by size
  std::uint64_t wrong = 0;                    ///< elements, over all launches
  bool checked = true;
  std::vector<std::string> missing;  ///< "ob1 has no result at 8 B": a text for each
};

/// Errors  invalid_argument: no launch; launches under different conditions; no size at all.
Merged merge(std::span<const Launch> launches);

/// The middle value, or the mean of the two. `values` is not empty.
double median(std::vector<double> values);

/// Sizes from `above` (which is not among them) to `up_to`.
struct Band {
  const char* name;
  std::size_t above;
  std::size_t up_to;
};
std::span<const Band> bands();

/// Geometric means of the ratios of a band; unset where no size has one.
struct Means {
  std::optional<double> store;
  std::optional<double> user;
};
Means means_of(const Merged& merged, const Band& band);

}  // namespace apps::benchmark
