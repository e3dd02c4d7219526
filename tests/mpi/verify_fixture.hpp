// SPDX-License-Identifier: Apache-2.0
// Replicas that stop being equal.
#pragma once

#include "tests/mpi/layouts.hpp"
#include "tests/mpi/store_fixture.hpp"

namespace test {

inline tutti::Settings with(tutti::Verify verify, const Layout& layout = one_node()) {
  tutti::Settings settings = settings_for(layout);
  settings.verify = verify;
  settings.log = tutti::LogLevel::quiet;
  return settings;
}

inline tutti::KVStore store_with(tutti::Verify verify) {
  return tutti::KVStore::create("dist", with(verify));
}

/// What a cosmic ray does, on one rank: a bit of a replica.
inline void flip(const tutti::KVStore& kv, const tutti::Key& key, std::size_t bit, int on_rank) {
  if (rank() != on_rank) return;
  auto* bytes = const_cast<std::byte*>(kv.view(key).bytes());
  bytes[bit / 8] ^= std::byte{1} << bit % 8;
}

/// What pushes have healed: nothing is left for verify() to heal.
inline std::uint64_t healed_by_pushes(tutti::KVStore& kv) {
  const tutti::VerifyResult result = kv.verify();
  CHECK(result.healed == 0);
  return result.healed_since_creation;
}

inline int majority() { return size() / 2 + 1; }
inline bool can_heal() { return size() >= 3; }

/// What `push` meets is healed, if a majority can, or all ranks throw it.
template <class Push>
void check_found(tutti::KVStore& kv, Push push, const std::vector<std::string>& words) {
  if (can_heal()) {
    push();
    CHECK(healed_by_pushes(kv) >= 1);
  } else {
    CHECK(throws_on_all(push, tutti::ErrorCode::divergence, words));
  }
}

/// Keeps the sum of gradients as its state, and on one rank flips one bit of it.
class FlippedState final : public tutti::Optimizer {
 public:
  FlippedState(int on_rank, std::uint64_t at_count, std::size_t element)
      : Optimizer("flipped-state", {}), on_rank_(on_rank), at_(at_count), element_(element) {}
  [[nodiscard]] int num_states() const override { return 1; }
  void update(const tutti::UpdateStep& step,
              const tutti::ElementRange<float>& range) const override {
    float* sum = range.states[0];
    for (std::size_t i = 0; i < range.weight.size(); ++i) {
      sum[i] += range.gradient[i];
      range.weight[i] -= 0.5f * sum[i];
    }
    const bool is_here = element_ >= range.first && element_ < range.first + range.weight.size();
    if (is_here && rank() == on_rank_ && step.count == at_) {
      auto* bytes = reinterpret_cast<unsigned char*>(sum + (element_ - range.first));
      bytes[2] ^= 16;
    }
  }
  void update(const tutti::UpdateStep&, const tutti::ElementRange<double>&) const override {}
  [[nodiscard]] bool updates_rows() const override { return true; }

 private:
  int on_rank_;
  std::uint64_t at_;
  std::size_t element_;
};

}  // namespace test
