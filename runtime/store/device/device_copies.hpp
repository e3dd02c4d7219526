// SPDX-License-Identifier: Apache-2.0
// Many copies within a GPU as one launch.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runtime/gpu/gpus.hpp"

namespace tutti {

class DeviceCopies {
 public:
  /// Adds a copy. Returns false, and adds nothing, if the two are not of one type on one GPU.
  bool add(const ConstTensorView& from, const TensorView& to);
  /// Adds a copy of elements of one type, both on `device`. Elements that follow those of the last
  /// add(), on both sides, are copied together with them.
  void add(int device, const std::byte* from, std::byte* to, std::size_t count, DType dtype);
  /// Puts all copies that were added into the devices' streams.
  void run();
  /// Forgets copies that were added. A call that failed before run() leaves them.
  void clear();
  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
  void leak_until_exit();

 private:
  struct OnDevice {
    std::vector<gpus::TensorRow> rows;
    std::unique_ptr<gpus::LaunchTable> table;
  };
  std::map<int, OnDevice> devices_;
};

}  // namespace tutti
