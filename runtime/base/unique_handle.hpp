// SPDX-License-Identifier: Apache-2.0
// UniqueHandle: owns a handle of a C library.
#pragma once

#include <unistd.h>
#include <utility>

namespace tutti {

/// Traits have a type Handle, static Handle null(), and static void close(Handle) noexcept.
template <class Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() noexcept = default;
  explicit UniqueHandle(Handle owned) noexcept : handle_(owned) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~UniqueHandle() {
    if (handle_ != Traits::null()) Traits::close(handle_);
  }

  [[nodiscard]] Handle get() const noexcept { return handle_; }
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Traits::null()); }

 private:
  Handle handle_ = Traits::null();
};

struct FileDescriptorTraits {
  using Handle = int;
  static Handle null() { return -1; }
  static void close(Handle handle) noexcept { ::close(handle); }
};
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

}  // namespace tutti
