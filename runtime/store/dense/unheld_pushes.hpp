// SPDX-License-Identifier: Apache-2.0
// Asynchronous pushes for which the program has no handle: those of TUTTI_ASYNC=1.
//
// Ranks learn at different times that a push has failed. They throw its error where all of them are
// at one point of the program: in collective calls, before which all pushes are complete, and in
// pulls of a key, before which that key's pushes are. So no rank throws an error that another one
// does not.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/job/async_state.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// The pushes of a store that have no handle. For the program's thread.
class UnheldPushes {
 public:
  [[nodiscard]] bool is_empty() const { return keys_.empty(); }
  /// Adds a push of one key.
  void add(const Entry& entry, std::shared_ptr<AsyncState> push);
  /// Called in a pull of the key, whose pushes are complete: throws the error of the first that has
  /// failed, unless a pull has thrown it.
  void throw_of(const Entry& entry);
  /// Called in a collective call, when all pushes are complete: throws the first error since the
  /// last such call. It ignores pulls, since other ranks may not have pulled.
  void throw_of_all();

 private:
  struct Push {
    std::shared_ptr<AsyncState> state;
    bool is_told = false;  ///< a pull has thrown its error
  };
  struct PushesOfKey {
    std::vector<Push> pushes;  ///< none that is known to have succeeded
    std::size_t settle_at = 0;
  };
  void settle(PushesOfKey& key);

  std::unordered_map<const Entry*, PushesOfKey> keys_;
  /// The first to fail since the last collective call, if known.
  std::shared_ptr<AsyncState> first_;
};

}  // namespace tutti
