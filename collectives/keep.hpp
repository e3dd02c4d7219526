// SPDX-License-Identifier: Apache-2.0
// What must outlive its owner.
#pragma once

#include <memory>

namespace tutti::collectives {

/// Keeps an object until the process ends: after a failure, messages may still be under way to its
/// buffers, and a peer that was stopped may still read or write its memory. Any thread.
void keep_until_exit(std::shared_ptr<const void> object);

}  // namespace tutti::collectives
