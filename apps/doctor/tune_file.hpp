// SPDX-License-Identifier: Apache-2.0
// The file of --tuning: its rows, merged with those that it has for other numbers of ranks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace apps::doctor {

/// The rows of a tuning file's text: its lines without comments.
std::vector<std::string> rows_of(const std::string& text);

/// The value of a name in a row: "1.31" of "ranks=2 ... margin=1.31" for "margin"; empty if the row
/// has no such name.
std::string value_in(const std::string& row, const std::string& name);

/// Merges tuning files: the rows of `old` for other numbers of ranks, then those of `learnt`.
/// `comment` describes the machine, in one line.
std::string merged(const std::string& old, const std::string& learnt, int ranks,
                   const std::string& comment);

/// The place and date of a measurement: "AMD EPYC 7003, host a, Open MPI v4.1.4, 2026-11-22".
std::string machine_text(const std::string& host, const std::string& mpi);

/// The file's text; empty if there is none. Errors: io.
std::string read_if_there(const std::filesystem::path& file);

}  // namespace apps::doctor
