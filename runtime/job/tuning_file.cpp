// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/tuning_file.hpp"

#include <array>
#include <bit>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/node/call.hpp"
#include "collectives/text/numbers.hpp"
#include "runtime/base/digest.hpp"

namespace tutti {

using namespace collectives;

namespace {

constexpr std::string_view kFirstLine = "# tutti tuning 1";

template <class Value>
struct Named {
  const char* name;
  Value value;
};

constexpr std::array<Named<Kind>, 8> kKinds = {{{"allreduce", Kind::allreduce},
                                                {"broadcast", Kind::broadcast},
                                                {"reduce", Kind::reduce},
                                                {"reduce_scatter", Kind::reduce_scatter},
                                                {"allgather", Kind::allgather},
                                                {"gather", Kind::gather},
                                                {"scatter", Kind::scatter},
                                                {"alltoall", Kind::alltoall}}};
constexpr std::array<Named<Location>, 3> kLocations = {
    {{"shared", Location::shared}, {"ordinary", Location::ordinary}, {"mixed", Location::mixed}}};
/// Two flags: results go to a consumer, and its updates are shared.
using Consumed = std::pair<bool, bool>;
constexpr std::array<Named<Consumed>, 3> kConsumed = {
    {{"no", {false, false}}, {"yes", {true, false}}, {"shared", {true, true}}}};
constexpr std::array<Named<bool>, 2> kAnswers = {{{"no", false}, {"yes", true}}};
constexpr std::array<Named<Inputs>, 4> kInputs = {{{"announced", Inputs::announced},
                                                   {"staged", Inputs::staged},
                                                   {"swapped", Inputs::swapped},
                                                   {"fetched", Inputs::fetched}}};
constexpr std::array<Named<Results>, 4> kResults = {{{"spread", Results::spread},
                                                     {"own", Results::own},
                                                     {"fetched", Results::fetched},
                                                     {"updated", Results::updated}}};
constexpr std::array<Named<WritePolicy>, 2> kWrites = {
    {{"cached", WritePolicy::cached}, {"streamed", WritePolicy::streaming}}};

template <class Table, class Value>
const char* name_in(const Table& table, Value value) {
  for (const auto& row : table) {
    if (row.value == value) return row.name;
  }
  return "";
}

/// The words of one row, which are taken by name.
class Words {
 public:
  Words(const std::string& line, std::string where) : where_(std::move(where)) {
    std::istringstream in(line);
    for (std::string word; in >> word;) {
      const auto equals = word.find('=');
      if (equals == std::string::npos) refuse(word, "NAME=VALUE");
      if (!words_.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
        refuse(word, "every name once");
      }
    }
  }

  template <class Table>
  auto one_of(const char* name, const Table& table) {
    const std::string text = take(name);
    std::string known;
    for (const auto& row : table) {
      if (text == row.name) return row.value;
      known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    refuse(name + ("=" + text), "one of " + known);
  }

  template <class Number>
  Number number(const char* name, Number least, const char* expected) {
    const std::string text = take(name);
    const auto value = number_of<Number>(text);
    if (value && *value >= least) return *value;
    refuse(name + ("=" + text), expected);
  }

  void require_all_taken() const {
    if (!words_.empty()) refuse(words_.begin()->first, "a name of the rows before it");
  }

 private:
  std::string take(const char* name) {
    const auto found = words_.find(name);
    if (found == words_.end()) refuse("a row", std::string("also ") + name + "=...");
    std::string value = found->second;
    words_.erase(found);
    return value;
  }
  [[noreturn]] void refuse(const std::string& what, const std::string& expected) const {
    throw Error(ErrorCode::invalid_argument, where_ + ": '" + what + "': expected " + expected);
  }

  std::string where_;
  std::map<std::string, std::string, std::less<>> words_;
};

TuningRow read_row(Words words) {
  TuningRow row;
  row.ranks = words.number("ranks", 1, "a number above 0");
  CallClass& call = row.learnt.call;
  call.kind = words.one_of("kind", kKinds);
  call.inputs = words.one_of("data", kLocations);
  call.in_place = words.one_of("in-place", kAnswers);
  std::tie(call.consumed, call.shares_updates) = words.one_of("consumed", kConsumed);
  call.apart = words.one_of("apart", kAnswers);
  const auto bytes = words.number<std::uint64_t>("bytes", 1, "a number above 0");
  call.size = static_cast<std::uint8_t>(std::bit_width(bytes) - 1);
  Path& path = row.learnt.path;
  path.inputs = words.one_of("inputs", kInputs);
  path.results = words.one_of("results", kResults);
  path.slots = words.one_of("slots", kWrites);
  path.outputs = words.one_of("outputs", kWrites);
  row.learnt.margin = words.number("margin", 0.0, "a number");
  words.require_all_taken();
  return row;
}

std::string text_of(const TuningRow& row) {
  const CallClass& call = row.learnt.call;
  return "ranks=" + std::to_string(row.ranks) + " kind=" + name_in(kKinds, call.kind) +
         " data=" + name_in(kLocations, call.inputs) +
         " in-place=" + name_in(kAnswers, call.in_place) +
         " consumed=" + name_in(kConsumed, Consumed(call.consumed, call.shares_updates)) +
         " apart=" + name_in(kAnswers, call.apart) +
         " bytes=" + std::to_string(std::uint64_t{1} << call.size) + " " +
         to_string(row.learnt.path) + " margin=" + fixed(row.learnt.margin, 2) + "\n";
}

}  // namespace

std::vector<TuningRow> parse_tuning(std::string_view text, const std::string& name) {
  std::istringstream in{std::string(text)};
  std::string line;
  if (!std::getline(in, line) || line != kFirstLine) {
    throw Error(ErrorCode::invalid_argument, name + ", line 1: '" + line + "': expected '" +
                                                 std::string(kFirstLine) +
                                                 "', as tutti-doctor --tuning writes it");
  }
  std::vector<TuningRow> rows;
  for (int number = 2; std::getline(in, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    rows.push_back(read_row(Words(line, name + ", line " + std::to_string(number))));
  }
  return rows;
}

std::string tuning_text(const std::vector<TuningRow>& rows, const std::string& comment) {
  std::string text = std::string(kFirstLine) + "\n# " + comment + "\n";
  for (const TuningRow& row : rows) text += text_of(row);
  return text;
}

KnownPaths read_known_paths(const std::string& tuning, int ranks_of_node) {
  if (tuning == "learn" || tuning == "at-once" || tuning == "static") return {};
  std::ifstream file(tuning, std::ios::binary);
  std::string text;
  // read() reports errors that an iterator would throw, for a folder for example.
  std::array<char, 4096> block{};
  while (file.read(block.data(), block.size()) || file.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    throw Error(ErrorCode::io,
                "TUTTI_TUNING=" + tuning +
                    ": cannot read this file; expected learn, at-once, static, or a file "
                    "that tutti-doctor --tuning FILE wrote");
  }
  KnownPaths known;
  known.digest = Digest().add(std::string_view(text)).value();
  known.rows = std::make_shared<const std::vector<TuningRow>>(parse_tuning(text, tuning));
  return known.for_ranks(ranks_of_node);
}

KnownPaths KnownPaths::for_ranks(int ranks_of_node) const {
  KnownPaths known;
  known.digest = digest;
  known.rows = rows;
  if (rows == nullptr) return known;
  for (const TuningRow& row : *rows) {
    if (row.ranks == ranks_of_node) known.paths.push_back(row.learnt);
  }
  return known;
}

}  // namespace tutti
