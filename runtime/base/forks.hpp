// SPDX-License-Identifier: Apache-2.0
// Whether this process was forked by one that had made something. A process number would say so,
// too, by a call of the kernel each time.
#pragma once

namespace tutti {

/// How often the process that is running now came from a fork since this was first called by it or
/// by one that it came from. Any thread.
[[nodiscard]] unsigned num_forks() noexcept;

/// Throws invalid_argument: what this rank has made is not for the processes that it forks.
[[noreturn]] void throw_forked(int rank);

}  // namespace tutti
