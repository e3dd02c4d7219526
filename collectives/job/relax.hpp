// SPDX-License-Identifier: Apache-2.0
// The pause between two looks at a line that another core will write.
#pragma once

namespace tutti::collectives {

/// Lets the other hardware thread of the core, and a line that others write, have a moment: polled
/// without it, a line changes owner in the middle of being written.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tutti::collectives
