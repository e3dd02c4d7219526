// SPDX-License-Identifier: Apache-2.0
// The calls of the store. A push goes: resolve (who gets what) -> Push (one fused operation) ->
// Engine::run (collectives/engine.cpp) -> update.
#include "tutti/kvstore.hpp"

#include <atomic>
#include <thread>

#include "runtime/agree.hpp"
#include "runtime/group.hpp"
#include "runtime/local/threads.hpp"
#include "runtime/store/key_table.hpp"
#include "runtime/store/push.hpp"
#include "runtime/store/resolve.hpp"
#include "runtime/store/updates.hpp"

namespace tutti {

namespace {

std::string type_of(std::string_view name) {
  if (name == "local" || name == "device" || name == "dist") return std::string(name);
  if (name == "dist_sync" || name == "dist_device_sync" || name == "nccl") return "dist";
  throw Error(ErrorCode::invalid_argument,
              "unknown store type '" + std::string(name) +
                  "'; expected local, device or dist (or its aliases dist_sync, "
                  "dist_device_sync, nccl)");
}

void require_equal_shape(const Entry& entry, const ConstTensorView& tensor, const char* what) {
  if (tensor.shape() == entry.shape()) return;
  throw Error(ErrorCode::invalid_argument,
              in_words(entry.key, entry.shape(), entry.dtype()) + ": " + what + " has shape " +
                  to_string(tensor.shape()) + ", expected " + to_string(entry.shape()));
}

void require_equal_dtype(const Entry& entry, const ConstTensorView& tensor, const char* what) {
  if (tensor.dtype() == entry.dtype()) return;
  throw Error(ErrorCode::invalid_argument,
              in_words(entry.key, entry.shape(), entry.dtype()) + ": " + what + " has dtype " +
                  to_string(tensor.dtype()) + ", expected " + to_string(entry.dtype()));
}

}  // namespace

class KVStore::Impl {
 public:
  Impl(std::string store_type, std::shared_ptr<Group> members)
      : type(std::move(store_type)), group(std::move(members)), push_(*group, table_, rule_) {}

  void init(const Keys& keys, const Values& values);
  void push(const Keys& keys, const Values& values, const Outputs* outputs);
  void pull(const Keys& keys, const Outputs& outputs, Cast cast);
  const Entry& entry(const Key& key);
  void set_rule(UpdateRule rule);
  [[nodiscard]] UpdateRule& rule() { return rule_; }
  void barrier();
  void agree(const std::function<void()>& body);

  const std::string type;
  const std::shared_ptr<Group> group;

 private:
  class Entering;

  void require_outputs(const std::vector<KeyGroup<TensorView>>& groups, Cast cast) const;
  static void copy_out(const Entry& entry, const std::vector<TensorView>& outputs);
  [[nodiscard]] collectives::Engine& engine() { return group->engine(); }
  [[nodiscard]] std::vector<Entry> new_entries(
      const std::vector<KeyGroup<ConstTensorView>>& groups);
  /// Runs `body`; what it throws is thrown by all ranks.
  template <class Body>
  void validate(const char* call, Body body);

  KeyTable table_;
  UpdateRule rule_;
  Push push_;
  int calls_under_way_ = 0;  ///< above 1 inside an updater
  std::atomic<std::thread::id> thread_{};
};

/// The scope of a call: at most one thread is in the store, and an updater makes no collective
/// call.
class KVStore::Impl::Entering {
 public:
  enum class Kind { local, collective };

  Entering(Impl& store, Kind kind, const char* call) : store_(store) {
#ifndef NDEBUG
    const auto inside = store.thread_.load();
    if (inside != std::thread::id() && inside != std::this_thread::get_id()) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(call) + ": another thread is in this store; one thread at a time");
    }
    store.thread_ = std::this_thread::get_id();
#endif
    if (kind == Kind::collective && store.calls_under_way_ > 0) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(call) +
                      " is a collective call, which an updater cannot make; it may "
                      "pull and view");
    }
    store.engine().check_usable();
    ++store_.calls_under_way_;
  }
  ~Entering() {
    if (--store_.calls_under_way_ == 0) store_.thread_ = std::thread::id();
  }
  Entering(const Entering&) = delete;
  Entering& operator=(const Entering&) = delete;

 private:
  Impl& store_;
};

template <class Body>
void KVStore::Impl::validate(const char* call, Body body) {
  try {
    body();
  } catch (const Error& error) {
    engine().refuse(error.code(), std::string(call) + ": " + error.what());
  }
}

std::vector<Entry> KVStore::Impl::new_entries(
    const std::vector<KeyGroup<ConstTensorView>>& groups) {
  std::vector<Entry> entries;
  for (const auto& [key, values] : groups) {
    table_.require_new(key);
    const ConstTensorView& value = values.front();
    entries.push_back({.key = key,
                       .order = table_.size() + entries.size(),
                       .replica = group->allocate(value.shape(), value.dtype())});
    for (const ConstTensorView& other : values) {
      require_equal_shape(entries.back(), other, "a value");
      require_equal_dtype(entries.back(), other, "a value");
    }
  }
  return entries;
}

void KVStore::Impl::init(const Keys& keys, const Values& values) {
  const Entering entering(*this, Entering::Kind::collective, "init");
  std::vector<KeyGroup<ConstTensorView>> groups;
  std::vector<Entry> entries;
  validate("init", [&] {
    groups = resolve(keys, values);
    if (groups.size() != keys.list().size()) {
      throw Error(ErrorCode::invalid_argument,
                  "a key occurs twice; a key is initialised once, with one value");
    }
    entries = new_entries(groups);
  });
  push_.broadcast_new(entries, groups);
  for (Entry& entry : entries) table_.insert(std::move(entry));
}

void KVStore::Impl::push(const Keys& keys, const Values& values, const Outputs* outputs) {
  const Entering entering(*this, Entering::Kind::collective, "push");
  std::vector<KeyGroup<TensorView>> destinations;
  validate(outputs == nullptr ? "push" : "pushpull", [&] {
    push_.prepare(resolve(keys, values));
    for (const Push::Item& item : push_.items()) {
      for (const ConstTensorView& value : item.values) {
        require_equal_shape(*item.entry, value, "a value");
        require_equal_dtype(*item.entry, value, "a value");
      }
    }
    if (outputs != nullptr) {
      destinations = resolve(keys, *outputs);
      require_outputs(destinations, Cast::no);
    }
    push_.stage();
  });
  push_.run();
  for (const auto& [key, tensors] : destinations) copy_out(table_.at(key), tensors);
}

void KVStore::Impl::require_outputs(const std::vector<KeyGroup<TensorView>>& groups,
                                    Cast cast) const {
  for (const auto& [key, outputs] : groups) {
    const Entry& entry = table_.at(key);
    for (const TensorView& output : outputs) {
      require_equal_shape(entry, output, "an output");
      if (cast == Cast::no) require_equal_dtype(entry, output, "an output");
    }
  }
}

void KVStore::Impl::copy_out(const Entry& entry, const std::vector<TensorView>& outputs) {
  for (const TensorView& output : outputs) output.copy_from(entry.replica);
}

void KVStore::Impl::pull(const Keys& keys, const Outputs& outputs, Cast cast) {
  const Entering entering(*this, Entering::Kind::local, "pull");
  try {
    const auto groups = resolve(keys, outputs);
    require_outputs(groups, cast);
    for (const auto& [key, tensors] : groups) copy_out(table_.at(key), tensors);
  } catch (const Error& error) {
    throw Error(error.code(),
                name_of(group->topology(), group->topology().rank) + ": pull: " + error.what());
  }
}

const Entry& KVStore::Impl::entry(const Key& key) {
  const Entering entering(*this, Entering::Kind::local, "view");
  return table_.at(key);
}

void KVStore::Impl::set_rule(UpdateRule rule) {
  const Entering entering(*this, Entering::Kind::collective, "set_updater");
  rule_ = std::move(rule);
  for (auto& [key, entry] : table_) {
    entry.updates = 0;
    entry.states.clear();
  }
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

// --- the public face ----------------------------------------------------------------------------

KVStore::KVStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KVStore::KVStore(KVStore&&) noexcept = default;
KVStore& KVStore::operator=(KVStore&&) noexcept = default;
KVStore::~KVStore() = default;

KVStore KVStore::create(std::string_view name, const Settings& settings) {
  const std::string type = type_of(name);
  const Communicator communicator =
      type == "dist" ? Communicator::world(settings) : Communicator::self(settings);
  return KVStore(std::make_unique<Impl>(type, communicator.group()));
}

KVStore KVStore::create(const Communicator& communicator) {
  return KVStore(std::make_unique<Impl>("dist", communicator.group()));
}

void KVStore::init(const Keys& keys, const Values& values) { impl_->init(keys, values); }

void KVStore::push(const Keys& keys, const Values& values, int /*priority*/) {
  impl_->push(keys, values, nullptr);
}

void KVStore::pull(const Keys& keys, const Outputs& outputs, Cast cast) const {
  impl_->pull(keys, outputs, cast);
}

ConstTensorView KVStore::view(const Key& key) const {
  const Tensor& replica = impl_->entry(key).replica;
  return {replica.bytes(), replica.shape(), replica.dtype(), replica.device(),
          impl_->group->arena()};
}

void KVStore::pushpull(const Keys& keys, const Values& values, const Outputs& outputs,
                       int /*priority*/) {
  impl_->push(keys, values, &outputs);
}

void KVStore::pushpull(const Keys& keys, const Outputs& values, int priority) {
  const auto flat = values.flat();
  const std::vector<ConstTensorView> inputs(flat.begin(), flat.end());
  if (!values.is_nested()) return pushpull(keys, inputs, values, priority);
  std::vector<std::span<const ConstTensorView>> lists;
  std::span<const ConstTensorView> rest = inputs;
  for (const std::size_t length : values.groups()) {
    lists.push_back(rest.first(length));
    rest = rest.subspan(length);
  }
  pushpull(keys, lists, values, priority);
}

void KVStore::broadcast(const Keys& keys, const Values& values, const Outputs& outputs) {
  init(keys, values);
  pull(keys, outputs);
}

void KVStore::set_updater(Updater updater) {
  UpdateRule rule;
  if (updater) rule.rule = std::move(updater);
  impl_->set_rule(std::move(rule));
}

void KVStore::set_optimizer(std::shared_ptr<Optimizer> optimizer) {
  if (optimizer == nullptr) {
    throw Error(ErrorCode::invalid_argument, "set_optimizer: expected an optimizer, got none");
  }
  impl_->set_rule({.rule = std::move(optimizer)});
}

Optimizer& KVStore::optimizer() const {
  Optimizer* running = impl_->rule().optimizer();
  if (running == nullptr) {
    throw Error(ErrorCode::invalid_argument, "this store runs no optimizer; call set_optimizer");
  }
  return *running;
}

Tensor KVStore::allocate(Shape shape, DType dtype) { return impl_->group->allocate(shape, dtype); }

int KVStore::rank() const noexcept { return impl_->group->topology().rank; }
int KVStore::num_workers() const noexcept { return impl_->group->topology().size; }
std::string_view KVStore::type() const noexcept { return impl_->type; }
bool KVStore::is_capable(std::string_view capability) const noexcept {
  return capability == "optimizer";
}
void KVStore::barrier() { impl_->barrier(); }
void KVStore::agree(const std::function<void()>& body) { impl_->agree(body); }

}  // namespace tutti
