// SPDX-License-Identifier: Apache-2.0
// Whether an emulator of another processor runs the tests: scripts/aarch64.sh.
#pragma once

#include <cstdlib>

namespace test {

/// qemu-user has no process_vm_readv, and keeps a note of each reserved page: terabytes of address
/// space cost it gigabytes.
inline bool is_emulated() { return std::getenv("TEST_EMULATED") != nullptr; }

}  // namespace test
