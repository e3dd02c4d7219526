// SPDX-License-Identifier: Apache-2.0
// Statistics of all ranks as one table.
#pragma once

#include <string>
#include <vector>

#include "tutti/statistics.hpp"

#include "collectives/job/topology.hpp"

namespace tutti::observe {

/// Statistics as text that another rank can read, and back. Errors of the latter: invalid_argument.
std::string to_json(const Statistics& statistics);
Statistics from_json(const std::string& text);

/// A table for people: each kind of call and list of keys, over all ranks, and the ranks that the
/// others waited for. `group` is how many stores and communicators this job has made for itself
/// before: a second one says so in its title.
std::string summary_table(const std::vector<Statistics>& ranks, const collectives::RankNames& names,
                          int group = 0);

/// Writes to standard error if the name is "1", else to a file of this name.
void print_summary(const std::string& target, const std::string& table);

}  // namespace tutti::observe
