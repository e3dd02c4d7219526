// SPDX-License-Identifier: Apache-2.0
// The address of a Unix socket in the abstract namespace: no file, and gone with its last socket.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>

namespace tutti::mpi::sockets {

constexpr std::size_t kNameBytes = 48;  ///< of any name here, with a zero at its end

class Address {
 public:
  explicit Address(std::string_view name)
      : length_(offsetof(sockaddr_un, sun_path) + 1 + name.size()) {
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path + 1, name.data(), name.size());  // the first byte is zero
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] socklen_t length() const { return static_cast<socklen_t>(length_); }

 private:
  sockaddr_un address_{};
  std::size_t length_;
};

}  // namespace tutti::mpi::sockets
