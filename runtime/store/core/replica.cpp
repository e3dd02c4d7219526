// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/replica.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <sys/mman.h>

#include "tutti/error.hpp"

#include "runtime/base/tensor_bytes.hpp"

namespace tutti {

namespace {

[[noreturn]] void throw_out_of_memory(const Shape& shape, DType dtype, const std::string& why) {
  throw Error(ErrorCode::out_of_memory, "row-sparse table: no memory for shape " +
                                            to_string(shape) + " of " + to_string(dtype) + ": " +
                                            why);
}

std::size_t table_bytes(const Shape& shape, DType dtype) {
  const std::optional<std::size_t> bytes = bytes_of(shape, dtype);
  if (!bytes) throw_out_of_memory(shape, dtype, "no address space has so much");
  return *bytes;
}

/// A table of zeros on a GPU. It holds itself, because row-sparse keys are recognised by memory of
/// their own.
Replica zero_table_on(Device device, const Shape& shape, DType dtype) {
  const auto table = std::make_shared<Tensor>(Tensor::zeros(shape, dtype, device));
  return {Tensor::adopt(table, table->bytes(), shape, dtype, device), table};
}

}  // namespace

/// The table has no huge pages, because each of 1,000 rows in as many places would fill 2 MiB with
/// zeros.
Replica zero_table(const Shape& shape, DType dtype) {
  const std::size_t bytes = std::max<std::size_t>(table_bytes(shape, dtype), 1);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_out_of_memory(shape, dtype, std::strerror(errno));
  madvise(memory, bytes, MADV_NOHUGEPAGE);  // only advice: the kernel may not know it
  std::shared_ptr<void> pages(memory, [bytes](void* mapped) { munmap(mapped, bytes); });
  return {Tensor::adopt(pages, memory, shape, dtype), pages};
}

Replica new_replica(Group& group, Storage storage, const Shape& shape, DType dtype, Device device) {
  const bool is_on_gpu = device.kind == DeviceKind::gpu;
  if (storage == Storage::dense) {
    return {is_on_gpu ? Tensor::zeros(shape, dtype, device) : group.allocate(shape, dtype),
            nullptr};
  }
  if (shape.dimensions().empty()) {
    throw Error(ErrorCode::invalid_argument,
                "a row-sparse key is a table, of one dimension at least; got a scalar");
  }
  return is_on_gpu ? zero_table_on(device, shape, dtype) : zero_table(shape, dtype);
}

}  // namespace tutti
