// SPDX-License-Identifier: Apache-2.0
// The calls of the store. A push goes: PushPlan (which values of which keys) -> DensePush (one
// fused operation; see core/push_protocol.hpp) -> Engine::run (collectives/engine/engine.cpp) ->
// update.
#include "runtime/store/kvstore_impl.hpp"

#include <algorithm>
#include <cstdio>
#include <unordered_set>

#include "runtime/base/digest.hpp"
#include "runtime/base/throw.hpp"
#include "runtime/job/agree.hpp"
#include "runtime/store/core/call_totals.hpp"
#include "runtime/store/core/first_values.hpp"
#include "runtime/store/core/given_states.hpp"
#include "runtime/store/core/push_protocol.hpp"
#include "runtime/store/core/together.hpp"
#include "runtime/store/verify/comparison.hpp"

namespace tutti {

namespace {

void require_distinct(std::span<const Key> keys) {
  std::unordered_set<Key> seen;
  for (const Key& key : keys) {
    if (seen.insert(key).second) continue;
    throw Error(ErrorCode::invalid_argument,
                "key " + to_string(key) + " occurs twice; a key is initialised once");
  }
}

}  // namespace

// --- the scope of a call -------------------------------------------------------------------------

/// The rules of every call: at most one thread of the program is in the store, an updater makes no
/// collective call, no asynchronous call is under way, the plan of the last push is dropped, and
/// the call's cost is counted. A new call gets all of this by default; a call that is an exception
/// says so with Traits.
class KVStore::Impl::CallScope {
 public:
  struct Traits {
    bool is_collective = true;
    bool waits = true;        ///< a collective call waits for the asynchronous calls before it
    bool keeps_plan = false;  ///< keys, their memory and the rule of update stay as they are
    bool is_counted = true;
  };
  /// Traits of a call that goes on when it returns.
  static Traits of_async_call() {
    return {.waits = false, .keeps_plan = true, .is_counted = false};
  }

  CallScope(Impl& store, const char* call) : CallScope(store, call, Traits{}) {}
  CallScope(Impl& store, const char* call, Traits traits)
      : store_(store),
        is_in_updater_(store.group->is_async_thread()),
        is_counted_(traits.is_counted && !is_in_updater_) {
    if (traits.is_collective && (is_in_updater_ || store.calls_under_way_ > 0)) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(call) +
                      " is a collective call, which neither an updater nor the body of agree() can "
                      "make; they may pull and view");
    }
    if (is_in_updater_) return;
#ifndef NDEBUG
    const auto inside = store.thread_.load();
    if (inside != std::thread::id() && inside != std::this_thread::get_id()) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(call) + ": another thread is in this store; one thread at a time");
    }
#endif
    const bool comes_last = traits.is_collective && traits.waits;
    if (comes_last) store.group->await_async();
    store.group->check_usable();
    if (comes_last) store.unheld_.throw_of_all();
    if (!traits.keeps_plan) store.push_plan_.drop();
    is_counted_ = is_counted_ && store.group->has_engine();
    if (is_counted_) {
      store_.fold_pulls();
      store_.engine().statistics().enter(call);
    }
    store_.thread_ = std::this_thread::get_id();
    ++store_.calls_under_way_;
  }
  ~CallScope() {
    if (is_in_updater_) return;
    if (is_counted_) store_.engine().statistics().leave();
    if (--store_.calls_under_way_ == 0) store_.thread_ = std::thread::id();
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  Impl& store_;
  bool is_in_updater_;  ///< updater of an asynchronous push, which has the engine
  bool is_counted_;
};

template <class Body>
decltype(auto) KVStore::Impl::locally(const char* call, Body body) const {
  try {
    return body();
  } catch (const Error& error) {
    if (error.scope() != ErrorScope::caller) throw;
    throw Error(error.code(), name_of(group->topology(), group->topology().rank) + ": " + call +
                                  ": " + error.what());
  }
}

// --- tensors -------------------------------------------------------------------------------------

std::vector<Entry> KVStore::Impl::new_entries(const std::vector<KeyGroup<ConstTensorView>>& groups,
                                              Storage storage) {
  std::vector<Entry> entries;
  for (const auto& [key, values] : groups) {
    table_.require_new(key);
    const ConstTensorView& value = values.front();
    Replica replica = new_replica(*group, storage, value.shape(), value.dtype(), home_of(value));
    entries.push_back({.key = key,
                       .order = table_.size() + entries.size(),
                       .replica = std::move(replica.tensor),
                       .pages = std::move(replica.pages)});
    for (const ConstTensorView& other : values) {
      require_like(entries.back(), other, "a value");
    }
  }
  return entries;
}

void KVStore::Impl::init(const Keys& keys, const Values& values, Storage storage,
                         const Outputs* outputs) {
  const char* call = storage == Storage::dense ? "init" : "init_row_sparse";
  const CallScope scope(*this, call);
  if (outputs != nullptr) call = "broadcast";
  std::vector<KeyGroup<ConstTensorView>> groups;
  std::vector<Entry> entries;
  throw_together(engine(), call, [&] {
    groups = resolve(keys, values);
    require_distinct(keys.list());
    entries = new_entries(groups, storage);
    if (outputs == nullptr) return;
    const auto destinations = resolve(keys, *outputs);  // in the order of `groups`
    for (std::size_t i = 0; i < entries.size(); ++i) {
      for (const TensorView& output : destinations[i].tensors) {
        require_like(entries[i], output, "an output");
      }
    }
  });
  broadcast_first_values(*group, call, entries, groups);
  fail_together(engine(), [&] {
    for (Entry& entry : entries) table_.insert(std::move(entry));
  });
}

void KVStore::Impl::push(const Keys& keys, const Values& values, const Outputs* outputs) {
  const CallScope scope(*this, "push", {.keeps_plan = true});
  files_.count_push();
  const char* call = outputs == nullptr ? "push" : "pushpull";
  const auto together = [&](auto&& step) { throw_together(engine(), call, step); };
  gpus::SumTurn turn;
  together([&] {
    push_plan_.take(keys, values);
    if (outputs != nullptr) outputs_.take(keys, *outputs, Cast::no, /*skip_sparse=*/false);
    const PullPlan* const destinations = outputs == nullptr ? nullptr : &outputs_;
    push_plan_.is_on_gpu() ? device_push_.take(turn) : dense_push_.take(destinations);
  });
  const bool is_on_gpu = push_plan_.is_on_gpu();
  is_on_gpu ? carry_out(device_push_, together) : carry_out(dense_push_, together);
  if (outputs == nullptr) return;
  copy_out(outputs_, !is_on_gpu && dense_push_.writes_outputs() ? 1 : 0);
}

// --- asynchronous pushes -------------------------------------------------------------------------

Pending KVStore::Impl::push_async(const Keys& keys, const Values& values, const Outputs* outputs,
                                  int priority, AsyncPushes::Stays stays) {
  const CallScope scope(*this, "push_async", CallScope::of_async_call());
  files_.count_push();
  return locally(outputs == nullptr ? "push_async" : "pushpull_async",
                 [&] { return async_pushes_->push(keys, values, outputs, priority, stays); });
}

/// True if a key is on a GPU. All ranks have a key in the same kind of memory, wherever their
/// values are.
bool KVStore::Impl::has_key_on_gpu(const Keys& keys) {
  return std::ranges::any_of(keys.list(), [&](const Key& key) {
    const Entry* entry = table_.find(key);
    return entry != nullptr && entry->is_on_gpu();
  });
}

void KVStore::Impl::push_as_set(const Keys& keys, const Values& values, int priority) {
  const bool is_blocking = !group->settings().asynchronous || rule_.scaler != nullptr;
  if (is_blocking || has_key_on_gpu(keys)) return push(keys, values, nullptr);
  const CallScope scope(*this, "push", CallScope::of_async_call());
  files_.count_push();
  locally("push_async", [&] { async_pushes_->push_unheld(keys, values, priority, unheld_); });
}

/// Throws the errors of a key's pushes; not in an updater, which pulls while the program pushes.
void KVStore::Impl::throw_failed(const Key& key) {
  if (group->is_async_thread() || unheld_.is_empty()) return;
  if (const Entry* entry = table_.find(key)) unheld_.throw_of(*entry);
}

void KVStore::Impl::await(const Key& key) {
  if (group->has_engine()) return;
  if (const Entry* entry = table_.find(key)) async_pushes_->await(*entry);
}

/// Counts the pulls that were made while pushes under way had the statistics.
void KVStore::Impl::fold_pulls() {
  if (uncounted_pulls_.calls == 0) return;
  auto& totals = totals_of(engine().statistics(), "pull", std::span<Entry* const>());
  totals.calls += uncounted_pulls_.calls;
  totals.bytes += uncounted_pulls_.bytes;
  uncounted_pulls_ = {};
}

/// Copies replicas to outputs, of which the first `written` of each key have their values already.
void KVStore::Impl::copy_out(const PullPlan& plan, std::size_t written) {
  DeviceCopies& copies = group->is_async_thread() ? copies_beside_ : copies_;
  copies.clear();
  for (const auto& [entry, outputs] : plan.items()) {
    for (const TensorView& output : std::span(outputs).subspan(written)) {
      if (!copies.add(entry->replica, output)) group->copy(output, entry->replica, plan.bytes());
    }
  }
  copies.run();
  device_push_.check();  // a sum that was aborted also ends, and leaves undefined values
}

/// The device of a new key. A "local" store is on the CPU; other stores keep a key where its first
/// value is.
Device KVStore::Impl::home_of(const ConstTensorView& value) const {
  return type == "local" || value.device().kind == DeviceKind::cpu ? cpu() : value.device();
}

void KVStore::Impl::warn_of_ignored(const Entry& entry) {
  {
    const std::lock_guard lock(mutex_of_ignored_);
    if (!ignored_.insert(entry.key).second) return;
  }
  group->log().warn("pull: " + to_string(entry.key, entry.shape(), entry.dtype()) +
                    " is row-sparse and was ignored; use row_sparse_pull, or pull with "
                    "ignore_sparse = false");
}

void KVStore::Impl::count_pull(PullPlan& plan) {
  if (group->is_async_thread()) return;
  if (!group->has_engine()) {
    ++uncounted_pulls_.calls;
    uncounted_pulls_.bytes += plan.bytes();
    return;
  }
  engine().statistics().count_as(plan.totals(engine().statistics()), plan.bytes());
}

/// Pulls. An updater of an asynchronous push may pull while the program does.
void KVStore::Impl::pull(const Keys& keys, const Outputs& outputs, const PullOptions& options) {
  for (const Key& key : keys.list()) await(key);
  const CallScope scope(*this, "pull", {.is_collective = false, .keeps_plan = true});
  for (const Key& key : keys.list()) throw_failed(key);
  PullPlan beside(table_);
  PullPlan& plan = group->is_async_thread() ? beside : pull_plan_;
  locally("pull", [&] {
    plan.take(keys, outputs, options.cast, options.ignore_sparse);
    for (const Entry* entry : plan.skipped()) warn_of_ignored(*entry);
    count_pull(plan);
    copy_out(plan, 0);
  });
}

const Entry& KVStore::Impl::entry(const Key& key) {
  await(key);
  const CallScope scope(*this, "view",
                        {.is_collective = false, .keeps_plan = true, .is_counted = false});
  throw_failed(key);
  return locally("view", [&]() -> const Entry& { return table_.at(key); });
}

/// The keys in order. They are added by collective calls alone, which wait for pushes under way.
std::vector<Key> KVStore::Impl::keys() {
  std::vector<Key> keys;
  for (const auto& [key, entry] : table_) keys.push_back(key);
  std::ranges::sort(keys);
  return keys;
}

void KVStore::Impl::set_rule(UpdateRule rule) {
  const CallScope scope(*this, "set_updater");
  std::optional<OptimizerUse> use;
  if (const Optimizer* optimizer = rule.optimizer()) {
    use.emplace(*optimizer, [members = std::weak_ptr<Group>(group)] {
      const auto there = members.lock();
      if (there != nullptr && !there->is_forked()) there->await_async();
    });
  }
  rule_ = std::move(rule);
  use_ = std::move(use);
  for (auto& [key, entry] : table_) {
    entry.updates = 0;
    entry.states.clear();
  }
  table_.recount();
}

void KVStore::Impl::set_compression(const Compression& options) {
  const CallScope scope(*this, "set_gradient_compression");
  GradientCompression chosen(options);
  if (group->settings().reproducible && chosen.codec_of(compression::Leg::between) != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "set_gradient_compression: leg=between gives a result that depends on which ranks "
                "share a node; with TUTTI_REPRODUCIBLE=1 use leg=all");
  }
  compression_ = std::move(chosen);
  for (auto& [key, entry] : table_) entry.drop_residual();
}

void KVStore::Impl::barrier() {
  const CallScope scope(*this, "barrier", {.keeps_plan = true});
  const auto describe = [] { return std::string("barrier"); };
  engine().run({.kind = collectives::Kind::barrier, .segments = {}, .describe = describe});
}

void KVStore::Impl::agree(const std::function<void()>& body) {
  const CallScope scope(*this, "agree", {.keeps_plan = true});
  tutti::agree(engine(), body);
}

// --- rows ----------------------------------------------------------------------------------------

void KVStore::Impl::init_rows(const Key& key, const Shape& shape, DType dtype, Device device) {
  const CallScope scope(*this, "init_row_sparse");
  std::vector<Entry> created;
  throw_together(engine(), "init_row_sparse", [&] {
    table_.require_new(key);
    if (type == "local" && device.kind != DeviceKind::cpu) {
      throw_invalid_argument(to_string(key, shape, dtype) +
                             ": a local store keeps its keys on the cpu; got a table on " +
                             to_string(device));
    }
    Replica table = new_replica(*group, Storage::row_sparse, shape, dtype, device);
    created.push_back({.key = key,
                       .order = table_.size(),
                       .replica = std::move(table.tensor),
                       .pages = std::move(table.pages)});
  });
  Entry* entry = &created.front();
  agree_on(engine(), collectives::Verb::init, call_to_string("init_row_sparse", {&entry, 1}),
           digest_of({&entry, 1}));
  fail_together(engine(), [&] { table_.insert(std::move(created.front())); });
}

void KVStore::Impl::push_rows(const Keys& keys, const RowSparseValues& values) {
  const CallScope scope(*this, "push", {.keeps_plan = true});
  files_.count_push();
  const auto together = [&](auto&& step) { throw_together(engine(), "push", step); };
  together([&] { sparse_push_.take(keys, values); });
  carry_out(sparse_push_, together);
}

void KVStore::Impl::pull_rows(const Keys& keys, const RowSparseOutputs& outputs,
                              const Values& row_ids) {
  group->await_async();
  const CallScope scope(*this, "row_sparse_pull", {.is_collective = false, .keeps_plan = true});
  for (const Key& key : keys.list()) throw_failed(key);
  locally("row_sparse_pull", [&] {
    const std::uint64_t bytes = row_pull_.run(table_, keys, outputs, row_ids);
    device_push_.check();  // a sum that was aborted also ends, and leaves undefined values
    const auto key_itself = [](const Key& key) -> const Key& { return key; };
    auto& statistics = engine().statistics();
    statistics.count_as(totals_of(statistics, "row_sparse_pull", keys.list(), key_itself), bytes);
  });
}

// --- files, comparisons --------------------------------------------------------------------------

void KVStore::Impl::save(const std::filesystem::path& directory, const Metadata& metadata) {
  const CallScope scope(*this, "save");
  drop_unused_states();
  files_.save(directory, metadata, [&](std::span<Entry* const> entries) -> std::uint64_t {
    return group->settings().verify == Verify::off ? 0 : compare(entries).healed;
  });
}

void KVStore::Impl::snapshot(const std::filesystem::path& directory, const Metadata& metadata) {
  const CallScope scope(*this, "snapshot");
  drop_unused_states();
  files_.snapshot(directory, metadata);
}

/// If no snapshots are taken, this does not count as a call, and asynchronous pushes go on.
bool KVStore::Impl::snapshot_when_due(const std::filesystem::path& directory,
                                      const std::function<Metadata()>& metadata) {
  if (!files_.may_be_due()) return false;
  {
    const CallScope scope(*this, "snapshot_when_due", {.keeps_plan = true});
    if (!files_.is_snapshot_due()) return false;
  }
  const Metadata found = metadata();  // which may make collective calls
  const CallScope scope(*this, "snapshot_when_due", {.keeps_plan = true});
  drop_unused_states();
  return files_.take_due_snapshot(directory, found);
}

Pending KVStore::Impl::save_async(const std::filesystem::path& directory,
                                  const Metadata& metadata) {
  {
    const CallScope scope(*this, "save_async");
    drop_unused_states();
    if (const auto pending = files_.save_async(directory, metadata)) return *pending;
  }
  save(directory, metadata);
  return {};
}

LoadResult KVStore::Impl::load(const std::filesystem::path& directory, const LoadOptions& options) {
  const CallScope scope(*this, "load");
  LoadResult result = files_.load(directory, options);
  sparse_push_.forget_sample();
  return result;
}

void KVStore::Impl::save_optimizer_states(const std::filesystem::path& path) {
  const CallScope scope(*this, "save_optimizer_states");
  drop_unused_states();
  files_.save_optimizer_states(path);
}

void KVStore::Impl::load_optimizer_states(const std::filesystem::path& path,
                                          const LoadOptions& options) {
  const CallScope scope(*this, "load_optimizer_states");
  files_.load_optimizer_states(path, options);
}

void KVStore::Impl::set_optimizer_states(std::span<const KeyStates> given) {
  const CallScope scope(*this, "set_optimizer_states");
  take_states(*group, table_, rule_, given);
  sparse_push_.forget_sample();
}

VerifyResult KVStore::Impl::verify() {
  const CallScope scope(*this, "verify");
  drop_unused_states();
  const std::vector<Entry*> entries = table_.in_order();
  Digest digest;
  for (const Entry* entry : entries) {
    digest.add(entry->key).add(entry->shape(), entry->dtype()).add(entry->states.size());
  }
  agree_on(engine(), collectives::Verb::verify, "verify", digest.value());
  return compare(entries);
}

/// Drops states and residuals that were never used. A push that was refused before its first update
/// may have made states on some ranks alone, and one that was refused before it was compressed may
/// have made residuals.
void KVStore::Impl::drop_unused_states() {
  for (auto& [key, entry] : table_) {
    if (entry.updates == 0) entry.states.clear();
    if (!entry.has_sent) entry.drop_residual();
  }
}

/// Compares `entries`, which are the same on every rank.
VerifyResult KVStore::Impl::compare(std::span<Entry* const> entries) {
  VerifyResult result = Comparison(*group).run(entries, rule_.optimizer());
  healed_ += result.healed;
  sparse_push_.forget_sample();
  result.healed_since_creation =
      healed_ + dense_push_.healed() + sparse_push_.healed() + async_pushes_->healed();
  return result;
}

}  // namespace tutti
