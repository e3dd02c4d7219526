// SPDX-License-Identifier: Apache-2.0
// AsyncReduces: allreduces of tensors in the background.
#pragma once

#include "tutti/pending.hpp"
#include "tutti/tensor.hpp"

#include "runtime/job/async_calls.hpp"

namespace tutti {

/// The client has a single queue: its calls have no keys, so all ranks must make them in the same
/// order.
class AsyncReduces : public AsyncClient {
 public:
  AsyncReduces(collectives::Engine& engine, AsyncCalls& calls)
      : engine_(engine), calls_(calls), number_(calls.add(*this)) {}

  /// `what` describes the call. `refusal` tells why this rank's call is invalid, which all ranks
  /// then throw; empty if it is valid.
  Pending allreduce(const ConstTensorView& input, const TensorView& output, ReduceOp op,
                    int priority, std::string what, std::string refusal);

  [[nodiscard]] std::size_t queues() const override { return 1; }
  [[nodiscard]] std::string name_of_queue(std::size_t) const override { return "allreduce_async"; }
  void carry_out(std::span<AsyncJob* const> jobs) override;
  void carry_slice(AsyncJob& job, std::size_t bytes) override;

 private:
  void reduce(const AsyncJob& job, std::size_t bytes);
  void trace(AsyncJob& job);

  collectives::Engine& engine_;
  AsyncCalls& calls_;
  std::size_t number_;
};

}  // namespace tutti
