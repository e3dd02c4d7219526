// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/report.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace apps::doctor {
namespace {

struct Style {
  const char* word;
  const char* colour;
};

Style style_of(Level level) {
  switch (level) {
    case Level::ok:
      return {"ok", "\x1b[32m"};
    case Level::warning:
      return {"warning", "\x1b[33m"};
    case Level::error:
      return {"error", "\x1b[31m"};
  }
  return {"", ""};
}

auto count(const Findings& findings, Level level) {
  return std::ranges::count(findings, level, &Finding::level);
}

std::string counted(std::ptrdiff_t number, const std::string& word) {
  return std::to_string(number) + " " + word + (number == 1 ? "" : "s");
}

}  // namespace

std::string to_lines(const Findings& findings, bool colour) {
  constexpr std::size_t kWordColumns = 9;
  constexpr std::size_t kTopicColumns = 15;
  std::string text;
  for (const Finding& finding : findings) {
    const Style style = style_of(finding.level);
    std::string word = style.word;
    word.resize(kWordColumns, ' ');
    std::string topic = finding.topic;
    topic.resize(std::max(kTopicColumns, topic.size() + 1), ' ');
    if (colour) word = style.colour + word + "\x1b[0m";
    text += word + topic + finding.text + "\n";
    if (finding.remedy.empty()) continue;
    text += std::string(kWordColumns + kTopicColumns, ' ') + "-> " + finding.remedy + "\n";
  }
  return text;
}

std::string verdict(const Findings& findings) {
  return counted(count(findings, Level::error), "error") + ", " +
         counted(count(findings, Level::warning), "warning");
}

bool has_error(const Findings& findings) { return count(findings, Level::error) > 0; }

std::string to_json(const Findings& findings, const std::vector<RankInfo>& ranks) {
  nlohmann::json root;
  root["errors"] = count(findings, Level::error);
  root["warnings"] = count(findings, Level::warning);
  root["findings"] = nlohmann::json::array();
  for (const Finding& finding : findings) {
    root["findings"].push_back({{"level", style_of(finding.level).word},
                                {"topic", finding.topic},
                                {"text", finding.text},
                                {"remedy", finding.remedy}});
  }
  root["ranks"] = nlohmann::json::array();
  for (const RankInfo& info : ranks) root["ranks"].push_back(nlohmann::json::parse(to_text(info)));
  return root.dump(2) + "\n";
}

}  // namespace apps::doctor
