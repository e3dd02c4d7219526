// SPDX-License-Identifier: Apache-2.0
// The statistics of all ranks as one table.
#pragma once

#include <string>
#include <vector>

#include "tutti/statistics.hpp"

#include "collectives/job/topology.hpp"

namespace tutti::observe {

/// Convert statistics to text that another rank can read, and back. Errors of from_json():
/// invalid_argument.
std::string to_json(const Statistics& statistics);
Statistics from_json(const std::string& text);

/// Returns a table for people: each kind of call and list of keys, over all ranks, with the ranks
/// that others waited for. `group` is the number of stores and communicators that this job has made
/// before; if it is not 0, the title says so.
std::string summary_table(const std::vector<Statistics>& ranks, const collectives::RankNames& names,
                          int group = 0);

/// Writes the table to standard error if the name is "1", otherwise to a file of this name.
void print_summary(const std::string& target, const std::string& table);

}  // namespace tutti::observe
