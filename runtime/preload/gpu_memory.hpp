// SPDX-License-Identifier: Apache-2.0
// Which of the program's buffers are in a GPU's memory, which the engine can neither read nor
// write.
#pragma once

namespace tutti::preload {

/// True for memory of a GPU or managed by CUDA, according to the CUDA driver that the program has
/// loaded; false for null. Nobody is asked about the program's image, its heap and the stack of its
/// first thread. For other memory it takes as long as a call of the driver or, as long as there is
/// none, of the dynamic loader: a part of a microsecond.
bool is_on_gpu(const void* address) noexcept;

}  // namespace tutti::preload
