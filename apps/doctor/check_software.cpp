// SPDX-License-Identifier: Apache-2.0
// What must be equal on all ranks: libraries and settings.
#include <algorithm>
#include <functional>

#include <tutti/error.hpp>
#include <tutti/settings.hpp>

#include "apps/doctor/by_host.hpp"
#include "apps/doctor/checks.hpp"

namespace apps::doctor {
namespace {

constexpr int kFunneled = 1;  // MPI_THREAD_FUNNELED, the second of four levels

using Value = std::function<std::string(const Facts&)>;

std::string place(const Facts& facts) {
  return "rank " + std::to_string(facts.rank) + " (host " + facts.host + ")";
}

/// The first rank that has another value than rank 0; null if all are alike.
const Facts* first_other(const std::vector<Facts>& ranks, const Value& value) {
  const std::string expected = value(ranks.front());
  const auto other =
      std::ranges::find_if(ranks, [&](const Facts& facts) { return value(facts) != expected; });
  return other == ranks.end() ? nullptr : &*other;
}

bool check_equal(const std::vector<Facts>& ranks, const std::string& what, const Value& value,
                 Findings& findings) {
  const Facts* other = first_other(ranks, value);
  if (other == nullptr) return true;
  findings.push_back({Level::error, "software",
                      what + ": " + place(ranks.front()) + " has " + value(ranks.front()) + ", " +
                          place(*other) + " has " + value(*other),
                      "install the same on every host, and check PATH, LD_LIBRARY_PATH and modules "
                      "of shells that mpirun starts there"});
  return false;
}

std::string setting_of(const Facts& facts, const std::string& name) {
  const auto found = facts.settings.find(name);
  return found == facts.settings.end() ? "nothing" : name + "=" + found->second;
}

/// The variables that this library does not know, and values that it cannot read.
bool check_known(const Facts& facts, Findings& findings) {
  std::vector<std::string> warnings;
  try {
    tutti::Settings::from_variables(facts.settings, warnings);
  } catch (const tutti::Error& error) {
    findings.push_back({Level::error, "settings", place(facts) + ": " + error.what(),
                        "change it, or unset the variable"});
    return false;
  }
  for (const std::string& warning : warnings) {
    findings.push_back(
        {Level::warning, "settings", place(facts) + ": " + warning, "rename it, or unset it"});
  }
  return warnings.empty();
}

}  // namespace

void check_software(const std::vector<Facts>& ranks, Findings& findings) {
  const auto library = [](const Facts& facts) { return "Tutti " + facts.library; };
  const auto mpi = [](const Facts& facts) { return facts.mpi; };
  bool all_good = check_equal(ranks, "library", library, findings);
  all_good = check_equal(ranks, "MPI", mpi, findings) && all_good;
  const auto low = std::ranges::find_if(
      ranks, [](const Facts& facts) { return facts.thread_level < kFunneled; });
  if (low != ranks.end()) {
    all_good = false;
    findings.push_back({Level::error, "software",
                        place(*low) + ": MPI gives thread level single, expected at least funneled",
                        "use an MPI library that was built with threads"});
  }
  if (!all_good) return;
  findings.push_back(
      {Level::ok, "software",
       "Tutti " + ranks.front().library + ", " + ranks.front().mpi + ", the same on all ranks",
       ""});
}

void check_settings(const std::vector<Facts>& ranks, Findings& findings) {
  bool all_good = check_known(ranks.front(), findings);
  for (const Facts& facts : ranks) {
    if (facts.settings == ranks.front().settings) continue;
    std::string name;
    for (const auto& [key, value] : facts.settings) {
      if (setting_of(facts, key) != setting_of(ranks.front(), key)) name = key;
    }
    for (const auto& [key, value] : ranks.front().settings) {
      if (setting_of(facts, key) != setting_of(ranks.front(), key)) name = key;
    }
    findings.push_back({Level::error, "settings",
                        place(ranks.front()) + " has " + setting_of(ranks.front(), name) + ", " +
                            place(facts) + " has " + setting_of(facts, name),
                        "pass it to all ranks: mpirun -x " + name +
                            " ..., or launch.sh, which "
                            "passes every TUTTI_ variable on"});
    all_good = false;
    break;
  }
  if (!all_good) return;
  const std::size_t count = ranks.front().settings.size();
  findings.push_back({Level::ok, "settings",
                      std::to_string(count) + " TUTTI_ variables set, the same on all ranks", ""});
}

}  // namespace apps::doctor
