// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/files/saved_rows.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/error.hpp"

namespace tutti {

namespace {

constexpr const char* kRowSparseName = "tutti.row_sparse";

}  // namespace

void add_row_sparse_names(checkpoint::Content& content, std::span<Entry* const> entries) {
  auto names = nlohmann::json::array();
  for (const Entry* entry : entries) {
    if (entry->is_row_sparse()) names.push_back(to_string(entry->key));
  }
  if (!names.empty()) content.texts.emplace_back(kRowSparseName, names.dump());
}

std::set<std::string> row_sparse_names(const checkpoint::Header& header) {
  const auto& texts = header.metadata;
  const auto is_there = [](const auto& text) { return text.first == kRowSparseName; };
  if (std::ranges::none_of(texts, is_there)) return {};
  std::set<std::string> names;
  const auto list = nlohmann::json::parse(header.text(kRowSparseName), nullptr,
                                          /*allow_exceptions=*/false);
  const auto is_string = [](const auto& name) { return name.is_string(); };
  if (!list.is_array() || !std::ranges::all_of(list, is_string)) {
    throw Error(ErrorCode::corrupt_file,
                std::string(kRowSparseName) + " is not a JSON list of strings");
  }
  for (const auto& name : list) names.insert(name.get<std::string>());
  return names;
}

}  // namespace tutti
