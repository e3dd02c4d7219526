// SPDX-License-Identifier: Apache-2.0
// Which build of the library this is: versions are the same for months.
#pragma once

#include <string>

namespace tutti {

/// The file that this library is in, its shared one or the program, without its folder; and the
/// number that the linker gave it, in hexadecimal digits. Both are empty where it gave none.
struct BuildId {
  std::string file;
  std::string id;
};

BuildId build_id();

}  // namespace tutti
