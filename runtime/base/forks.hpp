// SPDX-License-Identifier: Apache-2.0
// Detects that this process was forked after it had made something. Comparing process IDs would do
// that, too, but needs a call of the kernel each time.
#pragma once

namespace tutti {

/// Returns the number of forks that lie between the first call of this function and the current
/// process. Callable from any thread.
[[nodiscard]] unsigned num_forks() noexcept;

/// Throws invalid_argument: objects of this rank cannot be used by processes that it forks.
[[noreturn]] void throw_forked(int rank);

}  // namespace tutti
