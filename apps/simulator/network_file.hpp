// SPDX-License-Identifier: Apache-2.0
// Networks as files: a JSON object with the numbers of a network, each with its unit in its name.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/simulated/network.hpp"

namespace apps::simulator {

struct NamedNetwork {
  std::string name;
  tutti::simulated::Network network;
};

/// Reads a network. Errors  invalid_argument: the file cannot be read, it is no such object, a
/// number is missing, unknown or out of its range, with the file and the name.
NamedNetwork read_network(const std::filesystem::path& path);

/// read_network() of a text; `where` names it in errors.
NamedNetwork network_of(const std::string& text, const std::string& where);

}  // namespace apps::simulator
