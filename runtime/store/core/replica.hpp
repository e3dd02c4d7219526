// SPDX-License-Identifier: Apache-2.0
// The memory of a new key.
#pragma once

#include <memory>

#include "tutti/tensor.hpp"

#include "runtime/job/group.hpp"

namespace tutti {

/// How a key is stored. Dense replicas lie in the arena, where peers write them. Row-sparse tables
/// lie in ordinary memory, because few of their rows may ever be written. Either lies in the memory
/// of a GPU if its first value does.
enum class Storage : bool { dense, row_sparse };

/// The memory of a new key, all zero.
struct Replica {
  Tensor tensor;
  std::shared_ptr<void> pages;  ///< a row-sparse replica's memory; null for a dense one
};

/// Makes the memory of a key, for a device that is a GPU in its memory. Errors  out_of_memory;
/// invalid_argument for a row-sparse scalar.
Replica new_replica(Group& group, Storage storage, const Shape& shape, DType dtype,
                    Device device = cpu());

/// A tensor whose pages exist only once they are written, so making one takes the same time for any
/// size. Errors  out_of_memory: more than the machine could ever have.
Replica zero_table(const Shape& shape, DType dtype);

}  // namespace tutti
