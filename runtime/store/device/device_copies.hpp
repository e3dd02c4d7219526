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
  /// False, and nothing added, if the two are not of one type on one GPU.
  bool add(const ConstTensorView& from, const TensorView& to);
  /// Elements of one type, both on `device`. What goes on where the last ones added ended, on both
  /// sides, is copied with them.
  void add(int device, const std::byte* from, std::byte* to, std::size_t count, DType dtype);
  /// Puts what was added into the devices' streams.
  void run();
  /// Nothing is added. A call that failed before run() leaves what it has added.
  void clear();
  /// After a failure: to free what a stream uses would wait for the stream.
  void leak_until_exit();

 private:
  struct OnDevice {
    std::vector<gpus::TensorRow> rows;
    std::unique_ptr<gpus::LaunchTable> table;
  };
  std::map<int, OnDevice> devices_;
};

}  // namespace tutti
