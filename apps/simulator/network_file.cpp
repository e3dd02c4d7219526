// SPDX-License-Identifier: Apache-2.0
#include "apps/simulator/network_file.hpp"

#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <tutti/error.hpp>

namespace apps::simulator {

namespace {

using Json = nlohmann::json;
using tutti::Error;
using tutti::ErrorCode;
using tutti::simulated::Network;

/// A number of the file: its name, its unit as a factor, and whether it may be 0.
struct Field {
  const char* name;
  double Network::*member;
  double unit;
  bool may_be_zero;
};

constexpr double kMicrosecond = 1e-6;
constexpr double kNanosecond = 1e-9;
constexpr double kMegabit = 1e6 / 8;
constexpr double kGigabyte = 1e9;

constexpr std::array kFields{
    Field{"latency_us", &Network::latency, kMicrosecond, true},
    Field{"overhead_us", &Network::overhead, kMicrosecond, true},
    Field{"receive_us", &Network::receive_overhead, kMicrosecond, true},
    Field{"poll_us", &Network::poll, kMicrosecond, true},
    Field{"gap_us", &Network::gap, kMicrosecond, true},
    Field{"port_mbit_s", &Network::port_rate, kMegabit, false},
    Field{"burst_bytes", &Network::burst_bytes, 1, true},
    Field{"header_bytes", &Network::header_bytes, 1, true},
    Field{"call_ns", &Network::call, kNanosecond, true},
    Field{"signal_ns", &Network::signal, kNanosecond, true},
    Field{"core_gb_s", &Network::core_rate, kGigabyte, false},
    Field{"memory_gb_s", &Network::memory_rate, kGigabyte, false},
    Field{"cache_bytes", &Network::cache_bytes, 1, true},
    Field{"node_gb_s", &Network::node_rate, kGigabyte, false},
    Field{"turn_us", &Network::turn, kMicrosecond, true},
};

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, where + ": " + why);
}

/// Returns the field's value and removes it from the object.
Json take(Json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) {
    refuse(where, std::string("\"") + name + "\" is missing; a network has all its numbers");
  }
  Json value = *found;
  object.erase(found);
  return value;
}

double number_of(Json& object, const char* name, bool may_be_zero, const std::string& where) {
  const Json value = take(object, name, where);
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (!std::isfinite(number) || number < 0 || (number == 0 && !may_be_zero)) {
    refuse(where, std::string("\"") + name + "\" is " + value.dump() + "; expected: a number " +
                      (may_be_zero ? "that is not negative" : "above 0"));
  }
  return number;
}

std::size_t count_of(Json& object, const char* name, const std::string& where) {
  constexpr double kMost = 1e15;
  return static_cast<std::size_t>(std::min(number_of(object, name, true, where), kMost));
}

}  // namespace

NamedNetwork network_of(const std::string& text, const std::string& where) {
  Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) refuse(where, "not a JSON object");
  NamedNetwork result;
  const Json name = take(object, "name", where);
  if (!name.is_string()) refuse(where, "\"name\" is " + name.dump() + "; expected: a text");
  result.name = name.get<std::string>();
  for (const Field& field : kFields) {
    result.network.*field.member =
        field.unit * number_of(object, field.name, field.may_be_zero, where);
  }
  result.network.eager_bytes = count_of(object, "eager_bytes", where);
  result.network.cores = count_of(object, "cores", where);
  const Json limited = take(object, "incoming_limited", where);
  if (!limited.is_boolean()) {
    refuse(where, "\"incoming_limited\" is " + limited.dump() + "; expected: true or false");
  }
  result.network.incoming_limited = limited.get<bool>();
  object.erase("measured");  // what was measured, when and how: for readers
  if (!object.empty()) refuse(where, "\"" + object.begin().key() + "\" is no number of a network");
  return result;
}

NamedNetwork read_network(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw Error(ErrorCode::invalid_argument, "--network: cannot read " + path.string());
  }
  return network_of(text.str(), path.string());
}

}  // namespace apps::simulator
