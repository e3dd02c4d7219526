// SPDX-License-Identifier: Apache-2.0
// Which of the program's buffers are in a GPU's memory, which the engine can neither read nor
// write.
#pragma once

#include <cstddef>

namespace tutti::preload {

/// True for memory of a GPU or managed by CUDA, according to the CUDA driver that the program has
/// loaded. Null is none. `bytes` is what a call has there: a page that a small call has used
/// without a driver in the process is not looked at again.
bool is_on_gpu(const void* address, std::size_t bytes) noexcept;

}  // namespace tutti::preload
