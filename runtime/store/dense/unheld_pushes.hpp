// SPDX-License-Identifier: Apache-2.0
// Asynchronous pushes that the program has no handle of: those of TUTTI_ASYNC=1.
//
// Ranks learn at different times what a push has failed with. They throw it where all of them are
// at one point of the program: in collective calls, before which all pushes are complete, and in
// pulls of a key, before which that key's are. So no rank throws what another one does not.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/job/async_state.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// For the program's thread.
class UnheldPushes {
 public:
  [[nodiscard]] bool is_empty() const { return keys_.empty(); }
  /// A push of one key.
  void add(const Entry& entry, std::shared_ptr<AsyncState> push);
  /// In a pull of the key, whose pushes are complete: throws what the first of them failed with,
  /// unless a pull has thrown that.
  void throw_of(const Entry& entry);
  /// In a collective call, when all are complete: throws what the first has failed with since the
  /// last such call. Other ranks may not have pulled, so it counts no pull.
  void throw_of_all();

 private:
  struct Push {
    std::shared_ptr<AsyncState> state;
    bool is_told = false;  ///< by a pull
  };
  struct PushesOfKey {
    std::vector<Push> pushes;  ///< none that is known to have gone well
    std::size_t settle_at = 0;
  };
  void settle(PushesOfKey& key);

  std::unordered_map<const Entry*, PushesOfKey> keys_;
  std::shared_ptr<AsyncState> first_;  ///< that has failed since the last collective call, if known
};

}  // namespace tutti
