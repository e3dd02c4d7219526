// SPDX-License-Identifier: Apache-2.0
// The implementation of KVStore.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "tutti/kvstore.hpp"
#include "tutti/optimizer_states.hpp"
#include "tutti/snapshot.hpp"

#include "runtime/job/group.hpp"
#include "runtime/optimizers/uses.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/pull_plan.hpp"
#include "runtime/store/core/push_plan.hpp"
#include "runtime/store/core/replica.hpp"
#include "runtime/store/core/resolve.hpp"
#include "runtime/store/core/updates.hpp"
#include "runtime/store/dense/async_pushes.hpp"
#include "runtime/store/dense/dense_push.hpp"
#include "runtime/store/device/device_copies.hpp"
#include "runtime/store/device/device_push.hpp"
#include "runtime/store/files/store_files.hpp"
#include "runtime/store/sparse/row_pull.hpp"
#include "runtime/store/sparse/sparse_push.hpp"

namespace tutti {

// Hidden, since a nested class would be exported with KVStore.
class TUTTI_INTERNAL KVStore::Impl {
 public:
  Impl(std::string store_type, std::shared_ptr<Group> members)
      : type(std::move(store_type)),
        group(std::move(members)),
        push_plan_(*group, table_),
        outputs_(table_),
        pull_plan_(table_),
        dense_push_(state_, push_plan_),
        device_push_(state_, push_plan_),
        sparse_push_(*group, table_, rule_),
        row_pull_(*group),
        files_(state_),
        async_pushes_(std::make_unique<AsyncPushes>(state_)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    async_pushes_.reset();
    if (!group->failed()) return;
    device_push_.leak_until_exit();
    copies_.leak_until_exit();
    copies_beside_.leak_until_exit();
    sparse_push_.leak_until_exit();
    row_pull_.leak_until_exit();
  }

  /// Makes keys. Outputs that a pull will fill are checked before there are keys.
  void init(const Keys& keys, const Values& values, Storage storage,
            const Outputs* outputs = nullptr);
  void push(const Keys& keys, const Values& values, const Outputs* outputs);
  Pending push_async(const Keys& keys, const Values& values, const Outputs* outputs, int priority,
                     AsyncPushes::Stays stays);
  /// The push() of the public API: with Settings::asynchronous it goes on after returning, if its
  /// keys are on the host.
  void push_as_set(const Keys& keys, const Values& values, int priority);
  void pull(const Keys& keys, const Outputs& outputs, const PullOptions& options);
  void init_rows(const Key& key, const Shape& shape, DType dtype, Device device);
  void push_rows(const Keys& keys, const RowSparseValues& values);
  void pull_rows(const Keys& keys, const RowSparseOutputs& outputs, const Values& row_ids);
  const Entry& entry(const Key& key);
  [[nodiscard]] std::vector<Key> keys();
  void set_rule(UpdateRule rule);
  [[nodiscard]] UpdateRule& rule() { return rule_; }
  void set_compression(const Compression& options);
  void barrier();
  void agree(const std::function<void()>& body);
  VerifyResult verify();

  void save(const std::filesystem::path& directory, const Metadata& metadata);
  void snapshot(const std::filesystem::path& directory, const Metadata& metadata);
  bool snapshot_when_due(const std::filesystem::path& directory,
                         const std::function<Metadata()>& metadata);
  Pending save_async(const std::filesystem::path& directory, const Metadata& metadata);
  LoadResult load(const std::filesystem::path& directory, const LoadOptions& options);
  void save_optimizer_states(const std::filesystem::path& path);
  void load_optimizer_states(const std::filesystem::path& path, const LoadOptions& options);
  void set_optimizer_states(std::span<const KeyStates> given);

  const std::string type;
  const std::shared_ptr<Group> group;

 private:
  class CallScope;

  /// Runs a body that may fail on one rank alone, while the others go on: its error names this
  /// rank.
  template <class Body>
  decltype(auto) locally(const char* call, Body body) const;
  void warn_of_ignored(const Entry& entry);
  void count_pull(PullPlan& plan);
  void copy_out(const PullPlan& plan, std::size_t written);
  /// The device on which a key lives whose first value is `value`.
  [[nodiscard]] Device home_of(const ConstTensorView& value) const;
  [[nodiscard]] collectives::Engine& engine() const { return group->engine(); }
  [[nodiscard]] std::vector<Entry> new_entries(const std::vector<KeyGroup<ConstTensorView>>& groups,
                                               Storage storage);
  void drop_unused_states();
  VerifyResult compare(std::span<Entry* const> entries);
  /// Returns when no push of a key is under way.
  void await(const Key& key);
  /// Called in a pull: throws the errors of the key's pushes, see UnheldPushes.
  void throw_failed(const Key& key);
  void fold_pulls();
  [[nodiscard]] bool has_key_on_gpu(const Keys& keys);

  KeyTable table_;
  UpdateRule rule_;
  std::optional<OptimizerUse> use_;  ///< the use of the rule's optimizer
  GradientCompression compression_;
  const StoreState state_{group, table_, rule_, compression_};
  PushPlan push_plan_;
  PullPlan outputs_;    ///< outputs of a pushpull
  PullPlan pull_plan_;  ///< pulls of the program's thread
  DensePush dense_push_;
  DevicePush device_push_;
  DeviceCopies copies_;
  DeviceCopies copies_beside_;  ///< copies for updaters that pull while the program does
  SparsePush sparse_push_;
  RowPull row_pull_;
  StoreFiles files_;
  std::set<Key> ignored_;  ///< row-sparse keys with a warning that pull() ignores them
  std::mutex mutex_of_ignored_;
  int calls_under_way_ = 0;  ///< above 1 inside an updater
  std::atomic<std::thread::id> thread_{};
  std::uint64_t healed_ = 0;  ///< chunks healed, without those that pushes healed
  UnheldPushes unheld_;
  struct {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
  } uncounted_pulls_;  ///< pulls that were made while pushes were under way
  std::unique_ptr<AsyncPushes> async_pushes_;
};

}  // namespace tutti
