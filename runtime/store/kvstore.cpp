// SPDX-License-Identifier: Apache-2.0
// The calls of the store. A push goes: PushList (which values of which keys) -> Push (one fused
// operation) -> Engine::run (collectives/engine.cpp) -> update.
#include <algorithm>
#include <cstdio>
#include <unordered_set>

#include "runtime/store/core/tallies.hpp"
#include "runtime/store/entering.hpp"

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
      require_shape(entries.back(), other, "a value");
      require_dtype(entries.back(), other, "a value");
    }
  }
  return entries;
}

void KVStore::Impl::init(const Keys& keys, const Values& values, Storage storage) {
  const char* call = storage == Storage::dense ? "init" : "init_row_sparse";
  const Entering entering(*this, Entering::Kind::change, call);
  std::vector<KeyGroup<ConstTensorView>> groups;
  std::vector<Entry> entries;
  validate(call, [&] {
    groups = resolve(keys, values);
    require_distinct(keys.list());
    entries = new_entries(groups, storage);
  });
  push_.broadcast_new(entries, groups);
  for (Entry& entry : entries) table_.insert(std::move(entry));
}

void KVStore::Impl::push(const Keys& keys, const Values& values, const Outputs* outputs) {
  const Entering entering(*this, Entering::Kind::collective, "push");
  std::vector<KeyGroup<TensorView>> destinations;
  validate(outputs == nullptr ? "push" : "pushpull", [&] {
    push_list_.take(keys, values);
    if (outputs != nullptr) {
      destinations = resolve(keys, *outputs);
      require_outputs(destinations, Cast::no);
    }
    if (push_list_.is_on_gpu()) {
      device_push_.stage(push_list_);
    } else {
      push_.stage(destinations);
    }
  });
  if (push_list_.is_on_gpu()) {
    push_.announce();
    device_push_.run();
    return copy_out(destinations, 0);
  }
  push_.run();
  copy_out(destinations, push_.writes_outputs() ? 1 : 0);
}

void KVStore::Impl::require_outputs(const std::vector<KeyGroup<TensorView>>& groups,
                                    Cast cast) const {
  for (const auto& [key, outputs] : groups) {
    const Entry& entry = table_.at(key);
    for (const TensorView& output : outputs) {
      require_shape(entry, output, "an output");
      if (cast == Cast::no) require_dtype(entry, output, "an output");
    }
  }
}

/// The first `written` outputs of each key have their values already.
void KVStore::Impl::copy_out(const std::vector<KeyGroup<TensorView>>& groups, std::size_t written) {
  for (const auto& [key, outputs] : groups) {
    const Entry& entry = table_.at(key);
    for (const TensorView& output : std::span(outputs).subspan(written)) {
      if (!copies_.add(entry.replica, output)) group->copy(output, entry.replica);
    }
  }
  copies_.run();
}

/// A "local" store is on the cpu; the others keep a key where it comes from.
Device KVStore::Impl::home_of(const ConstTensorView& value) const {
  return type == "local" || value.device().kind == DeviceKind::cpu ? cpu() : value.device();
}

std::string KVStore::Impl::name_of_call(const char* call) const {
  return name_of(group->topology(), group->topology().rank) + ": " + call + ": ";
}

void KVStore::Impl::warn_of_ignored(const Entry& entry) {
  if (!ignored_.insert(entry.key).second) return;
  group->log().warn("pull: " + to_string(entry.key, entry.shape(), entry.dtype()) +
                    " is row-sparse and was ignored; use row_sparse_pull, or pull with "
                    "ignore_sparse = false");
}

void KVStore::Impl::count_pull(const std::vector<KeyGroup<TensorView>>& groups) {
  std::uint64_t bytes = 0;
  for (const auto& [key, outputs] : groups) {
    for (const TensorView& output : outputs) bytes += output.size_bytes();
  }
  engine().meter().count_as(
      tally_of(engine().meter(), "pull", groups,
               [](const KeyGroup<TensorView>& one) -> const Key& { return one.key; }),
      bytes);
}

void KVStore::Impl::pull(const Keys& keys, const Outputs& outputs, const PullOptions& options) {
  const Entering entering(*this, Entering::Kind::local, "pull");
  try {
    auto groups = resolve(keys, outputs);
    std::erase_if(groups, [&](const auto& group_of_key) {
      const Entry& entry = table_.at(group_of_key.key);
      const bool is_ignored = options.ignore_sparse && entry.is_row_sparse();
      if (is_ignored) warn_of_ignored(entry);
      return is_ignored;
    });
    require_outputs(groups, options.cast);
    count_pull(groups);
    copy_out(groups, 0);
  } catch (const Error& error) {
    throw Error(error.code(), name_of_call("pull") + error.what());
  }
}

const Entry& KVStore::Impl::entry(const Key& key) {
  const Entering entering(*this, Entering::Kind::look, "view");
  return table_.at(key);
}

void KVStore::Impl::set_rule(UpdateRule rule) {
  const Entering entering(*this, Entering::Kind::change, "set_updater");
  rule_ = std::move(rule);
  for (auto& [key, entry] : table_) {
    entry.updates = 0;
    entry.states.clear();
  }
}

void KVStore::Impl::set_compression(const Compression& options) {
  const Entering entering(*this, Entering::Kind::change, "set_gradient_compression");
  GradientCompression chosen(options);
  if (group->settings().reproducible && chosen.codec_of(compression::Leg::between) != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "set_gradient_compression: leg=between gives a result that depends on which ranks "
                "share a node; with TUTTI_REPRODUCIBLE=1 use leg=all");
  }
  compression_ = std::move(chosen);
  for (auto& [key, entry] : table_) entry.residual.reset();
}

void KVStore::Impl::barrier() {
  const Entering entering(*this, Entering::Kind::collective, "barrier");
  const auto describe = [] { return std::string("barrier"); };
  engine().run({.kind = collectives::Kind::barrier, .segments = {}, .describe = describe});
}

void KVStore::Impl::agree(const std::function<void()>& body) {
  const Entering entering(*this, Entering::Kind::collective, "agree");
  tutti::agree(engine(), body);
}

}  // namespace tutti
