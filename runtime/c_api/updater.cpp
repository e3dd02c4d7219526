// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api/updater.hpp"

#include "runtime/c_api/arguments.hpp"

namespace tutti::c_api {

namespace {

/// While it lives, the store is not destroyed.
class Running {
 public:
  explicit Running(tutti_kvstore& kv) : kv_(kv) { kv_.in_updater = true; }
  ~Running() { kv_.in_updater = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  tutti_kvstore& kv_;
};

}  // namespace

Updater make_updater(tutti_kvstore& kv, tutti_updater function, void* user_data) {
  if (function == nullptr) return nullptr;
  return [&kv, function, user_data](const Key& key, const ConstTensorView& merged,
                                    const TensorView& stored) {
    const tutti_key key_given = to_c(key);
    const tutti_tensor merged_given = to_c(merged);
    const tutti_tensor stored_given = to_c(stored);
    const Running running(kv);
    const int status = function(user_data, &key_given, &merged_given, &stored_given);
    if (status == 0) return;
    throw Error(ErrorCode::user_code,
                "the updater of key " + to_string(key) + ": expected it to return 0, got " +
                    std::to_string(status) + "; the store has failed",
                ErrorScope::failed);
  };
}

}  // namespace tutti::c_api
