// SPDX-License-Identifier: Apache-2.0
// The time of a small urgent push while large ones are under way.
#pragma once

#include <cstdint>
#include <vector>

#include <tutti/tutti.hpp>

namespace apps {

/// Times in seconds, the longest over the ranks.
struct UrgentTimes {
  double idle = 0;               ///< of the urgent push, on an idle link
  std::vector<double> behind{};  ///< of the urgent push, while the others are under way
  double others = 0;             ///< of the others, with urgent pushes between them
  double push = 0;               ///< of the others as one synchronous push
};

/// A store with some large keys and a small one, which is urgent.
class UrgentPush {
 public:
  UrgentPush(tutti::Communicator& world, int keys, std::int64_t elements, std::int64_t urgent);

  /// Pushes the urgent key alone, then all others, and while they are under way the urgent one
  /// again and again. Collective.
  UrgentTimes measure();
  /// The number of elements so far that were not the sum over the ranks, on all ranks. Collective.
  std::int64_t wrong();

 private:
  void begin_turn();
  [[nodiscard]] tutti::Pending push_urgent();
  [[nodiscard]] double longest(double seconds);
  void count_wrong(const tutti::Key& key);

  tutti::Communicator& world_;
  tutti::KVStore kv_;
  std::vector<tutti::Key> keys_;
  std::vector<tutti::Tensor> values_;
  tutti::Key urgent_;
  tutti::Tensor urgent_value_;
  int turn_ = 0;
  std::int64_t wrong_ = 0;
};

}  // namespace apps
