// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/network.hpp"

#include <arpa/inet.h>
#include <array>
#include <bit>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>

namespace apps::doctor {
namespace {

std::uint32_t address_in(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

std::string network_to_string(std::uint32_t network, int bits) {
  const in_addr address{htonl(network)};
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address, text.data(), text.size());
  return std::string(text.data()) + "/" + std::to_string(bits);
}

}  // namespace

std::vector<Interface> interfaces_up() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool is_ipv4 = one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET;
    const bool is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_ipv4 || !is_up || one->ifa_netmask == nullptr) continue;
    const std::uint32_t mask = address_in(one->ifa_netmask);
    found.push_back(
        {one->ifa_name, network_to_string(address_in(one->ifa_addr) & mask, std::popcount(mask))});
  }
  return found;
}

}  // namespace apps::doctor
