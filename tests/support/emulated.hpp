// SPDX-License-Identifier: Apache-2.0
// Tells whether an emulator of another processor runs the tests: scripts/aarch64.sh.
#pragma once

#include <cstdlib>

namespace test {

/// True under an emulator. qemu-user has no process_vm_readv, and keeps a note of each reserved
/// page, so that terabytes of address space cost it gigabytes.
inline bool is_emulated() { return std::getenv("TEST_EMULATED") != nullptr; }

}  // namespace test
