// SPDX-License-Identifier: Apache-2.0
// BuildId: identifies the build of the library, because versions stay the same for months.
#pragma once

#include <string>

namespace tutti {

/// `file` is the name, without folder, of the shared library or program that this code is in; `id`
/// is the build ID that the linker gave it, in hexadecimal. Both are empty if it has none.
struct BuildId {
  std::string file;
  std::string id;
};

BuildId build_id();

}  // namespace tutti
