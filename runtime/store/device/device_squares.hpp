// SPDX-License-Identifier: Apache-2.0
// The squares of the sums of a push that are on one GPU, for GradientScaler, which needs them on
// the host.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/base/unique_handle.hpp"
#include "runtime/gpu/gpus.hpp"

namespace tutti {

class DeviceSquares {
 public:
  DeviceSquares(std::shared_ptr<gpus::Gpus> gpus, int device);

  /// Takes the steps that may fail for want of memory. Errors: out_of_memory.
  void prepare(std::span<const gpus::TensorRow> rows);
  /// Puts the launch into the device's stream.
  void launch(std::span<const gpus::TensorRow> rows);
  /// True once values() are those of the last launch.
  [[nodiscard]] bool done() const { return gpus_->accelerator().done(copied_.get().event); }
  /// The sum of squares of each row.
  [[nodiscard]] std::span<const double> values() const;

 private:
  struct PinnedTraits {
    struct Handle {
      gpus::Accelerator* accelerator = nullptr;
      std::byte* memory = nullptr;
      friend bool operator==(const Handle&, const Handle&) = default;
    };
    static Handle null() { return {}; }
    static void close(Handle handle) noexcept { handle.accelerator->release_pinned(handle.memory); }
  };

  [[nodiscard]] double* results() const { return reinterpret_cast<double*>(results_.get().memory); }

  std::shared_ptr<gpus::Gpus> gpus_;
  int device_;
  std::unique_ptr<gpus::LaunchTable> table_;
  UniqueHandle<gpus::EventTraits> copied_;
  UniqueHandle<PinnedTraits> results_;
  std::size_t room_ = 0;   ///< number of results that fit
  std::size_t count_ = 0;  ///< number of results of the last launch
};

}  // namespace tutti
