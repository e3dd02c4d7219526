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

/// `call` is the C function with its arguments.
template <class Call>
void run(tutti_kvstore& kv, const Key& key, Call call) {
  const tutti_key given = to_c(key);
  const Running running(kv);
  const int status = call(&given);
  if (status == 0) return;
  throw Error(ErrorCode::user_code,
              "the updater of key " + to_string(key) + ": expected it to return 0, got " +
                  std::to_string(status) + "; the store has failed",
              ErrorScope::failed);
}

}  // namespace

Updater make_updater(tutti_kvstore& kv, tutti_updater function, void* user_data) {
  if (function == nullptr) return nullptr;
  return [&kv, function, user_data](const Key& key, const ConstTensorView& merged,
                                    const TensorView& stored) {
    const tutti_tensor sum = to_c(merged);
    const tutti_tensor target = to_c(stored);
    run(kv, key, [&](const tutti_key* given) { return function(user_data, given, &sum, &target); });
  };
}

RowSparseUpdater make_updater(tutti_kvstore& kv, tutti_row_updater function, void* user_data) {
  if (function == nullptr) return nullptr;
  return [&kv, function, user_data](const Key& key, const RowSparseView& merged,
                                    const TensorView& stored) {
    const tutti_rows sum = {to_c(merged.ids()), to_c(merged.rows())};
    const tutti_tensor target = to_c(stored);
    run(kv, key, [&](const tutti_key* given) { return function(user_data, given, &sum, &target); });
  };
}

}  // namespace tutti::c_api
