// SPDX-License-Identifier: Apache-2.0
// Sums and updates of one variant, which the kernel benchmark and a test run beside the library's.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/gpu/kernels.hpp"

namespace test::variants {

/// sum() and update() as those of gpus::Kernels.
class Variant {
 public:
  virtual ~Variant() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Why it cannot run this; empty if it can. Null: a sum.
  [[nodiscard]] virtual std::string obstacle(const tutti::Optimizer* optimizer) const = 0;
  [[nodiscard]] virtual std::unique_ptr<tutti::gpus::LaunchTable> make_table() = 0;
  virtual void sum(tutti::gpus::Stream stream, tutti::gpus::LaunchTable& table,
                   std::span<const tutti::gpus::TensorRow> rows) = 0;
  virtual void update(tutti::gpus::Stream stream, tutti::gpus::LaunchTable& table,
                      std::span<const tutti::gpus::TensorRow> rows,
                      const tutti::Optimizer& optimizer,
                      std::span<const tutti::UpdateStep> steps) = 0;
};

using Variants = std::vector<std::unique_ptr<Variant>>;

/// The library's own kernels.
class Plain final : public Variant {
 public:
  explicit Plain(tutti::gpus::Kernels& kernels) : kernels_(kernels) {}
  [[nodiscard]] std::string name() const override { return "plain"; }
  [[nodiscard]] std::string obstacle(const tutti::Optimizer* /*optimizer*/) const override {
    return {};
  }
  [[nodiscard]] std::unique_ptr<tutti::gpus::LaunchTable> make_table() override {
    return kernels_.make_table();
  }
  void sum(tutti::gpus::Stream stream, tutti::gpus::LaunchTable& table,
           std::span<const tutti::gpus::TensorRow> rows) override {
    kernels_.sum(stream, table, rows);
  }
  void update(tutti::gpus::Stream stream, tutti::gpus::LaunchTable& table,
              std::span<const tutti::gpus::TensorRow> rows, const tutti::Optimizer& optimizer,
              std::span<const tutti::UpdateStep> steps) override {
    kernels_.update(stream, table, rows, optimizer, steps);
  }

 private:
  tutti::gpus::Kernels& kernels_;
};

}  // namespace test::variants
