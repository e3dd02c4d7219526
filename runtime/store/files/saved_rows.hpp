// SPDX-License-Identifier: Apache-2.0
// The names of row-sparse keys in a checkpoint. Their tables are saved whole, like all other
// tensors.
#pragma once

#include <set>
#include <span>
#include <string>

#include "runtime/checkpoint/tensor_file.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// Adds the text "tutti.row_sparse", a JSON list of the row-sparse keys, if there are any.
void add_row_sparse_names(checkpoint::Content& content, std::span<Entry* const> entries);

/// The names in that text; empty without it. Errors  corrupt_file: the text is not a list of
/// strings.
std::set<std::string> row_sparse_names(const checkpoint::Header& header);

}  // namespace tutti
