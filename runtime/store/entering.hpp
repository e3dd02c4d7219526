// SPDX-License-Identifier: Apache-2.0
// How a call of the store begins.
#pragma once

#include <string>

#include "runtime/job/agree.hpp"
#include "runtime/store/kvstore_impl.hpp"

namespace tutti {

/// The scope of a call: at most one thread is in the store, an updater makes no collective call,
/// and what the call costs is counted, unless it is a look at a value.
class KVStore::Impl::Entering {
 public:
  /// change: collective, and what pushes know of keys and their memory may not hold afterwards.
  enum class Kind { look, local, collective, change };

  Entering(Impl& store, Kind kind, const char* call)
      : store_(store), is_counted_(kind != Kind::look) {
#ifndef NDEBUG
    const auto inside = store.thread_.load();
    if (inside != std::thread::id() && inside != std::this_thread::get_id()) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(call) + ": another thread is in this store; one thread at a time");
    }
#endif
    const bool is_collective = kind == Kind::collective || kind == Kind::change;
    if (is_collective && store.calls_under_way_ > 0) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(call) +
                      " is a collective call, which an updater cannot make; it may "
                      "pull and view");
    }
    store.engine().check_usable();
    if (kind == Kind::change) store.push_list_.forget();
    store_.thread_ = std::this_thread::get_id();
    ++store_.calls_under_way_;
    if (is_counted_) store_.engine().meter().enter(call);
  }
  ~Entering() {
    if (is_counted_) store_.engine().meter().leave();
    if (--store_.calls_under_way_ == 0) store_.thread_ = std::thread::id();
  }
  Entering(const Entering&) = delete;
  Entering& operator=(const Entering&) = delete;

 private:
  Impl& store_;
  bool is_counted_;
};

template <class Body>
void KVStore::Impl::validate(const char* call, Body body) {
  if (const auto error = collectives::caught(body)) {
    engine().throw_on_all_ranks(error->code, std::string(call) + ": " + error->text);
  }
}

}  // namespace tutti
