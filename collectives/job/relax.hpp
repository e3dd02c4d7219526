// SPDX-License-Identifier: Apache-2.0
// relax: the pause between two polls of a cache line that another core will write.
#pragma once

namespace tutti::collectives {

/// Leaves the other hardware thread of the core, and the polled line, alone for a moment. Without
/// the pause, the line may change owner while another core is in the middle of writing it.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tutti::collectives
