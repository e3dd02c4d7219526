// SPDX-License-Identifier: Apache-2.0
// Two ways to sum on one node, of which one is faster for small sums: all ranks make the same sums,
// and so choose alike. Both put their work into the device's stream, where it stays in order.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "runtime/gpu_sum/reducer.hpp"

namespace tutti::gpus {

class SizedReducer final : public Reducer {
 public:
  /// Sums of up to `most_bytes` by `smaller`. Both take parts with a `from`, or neither.
  SizedReducer(std::unique_ptr<Reducer> smaller, std::size_t most_bytes,
               std::unique_ptr<Reducer> larger)
      : smaller_(std::move(smaller)), most_bytes_(most_bytes), larger_(std::move(larger)) {}

  void allreduce(std::span<const Part> parts) override {
    std::size_t bytes = 0;
    for (const Part& part : parts) bytes += part.count * size_of(part.dtype);
    (bytes <= most_bytes_ ? smaller_ : larger_)->allreduce(parts);
  }
  [[nodiscard]] bool takes_inputs() const override { return larger_->takes_inputs(); }
  [[nodiscard]] bool has_registered() const override { return larger_->has_registered(); }
  [[nodiscard]] std::byte* registered(std::size_t bytes) override {
    return larger_->registered(bytes);
  }
  [[nodiscard]] std::span<std::byte* const> windows() const override { return smaller_->windows(); }
  [[nodiscard]] std::size_t window_bytes() const override {
    return std::min(smaller_->window_bytes(), most_bytes_);
  }
  void begin_reading() override { smaller_->begin_reading(); }
  void finish() override {
    smaller_->finish();
    larger_->finish();
  }
  void await() override {
    smaller_->await();
    larger_->await();
  }
  void check() override {
    smaller_->check();
    larger_->check();
  }
  [[nodiscard]] std::string describe() const override {
    return smaller_->describe() + " up to " + std::to_string(most_bytes_) + " bytes, larger ones " +
           larger_->describe();
  }

 private:
  std::unique_ptr<Reducer> smaller_;
  std::size_t most_bytes_;
  std::unique_ptr<Reducer> larger_;
};

}  // namespace tutti::gpus
