// SPDX-License-Identifier: Apache-2.0
// The sum over all ranks by a NodeLibrary. The hosts move nothing, so on one node no host waits. On
// several nodes they wait, since only a thread in the engine can tell the others of a failure.
#pragma once

#include <memory>
#include <vector>

#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/gpu_sum/sums_in_flight.hpp"

namespace tutti::gpus {

/// Sums by NCCL. A sum that goes wrong fails the group, whenever that is noticed: see SumsInFlight.
class NodeReducer final : public Reducer {
 public:
  /// Errors: out_of_memory.
  NodeReducer(Group& group, std::shared_ptr<Gpus> gpus, int device,
              std::shared_ptr<NodeCollectives> node);
  ~NodeReducer() override;

  [[nodiscard]] bool takes_turns() const override { return true; }
  void allreduce(std::span<const Sum> sums) override;
  [[nodiscard]] bool takes_inputs() const override { return true; }
  void finish() override;
  void await() override;
  void check() override;
  [[nodiscard]] std::string describe() const override;

 private:
  template <class Body>
  void carry_out(Body body) {
    gpus::carry_out(group_, body, [&] { in_flight_.abort(); });
  }

  Group& group_;
  std::shared_ptr<Gpus> gpus_;
  int device_;
  std::shared_ptr<NodeCollectives> node_;
  Patience patience_;
  SumsInFlight in_flight_;
};

}  // namespace tutti::gpus
