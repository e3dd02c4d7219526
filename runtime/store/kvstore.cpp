// SPDX-License-Identifier: Apache-2.0
// The public class of the store: each call goes to KVStore::Impl (kvstore_impl.cpp).
#include <algorithm>
#include <initializer_list>

#include "collectives/text/letters.hpp"
#include "runtime/observe/statistics.hpp"
#include "runtime/store/kvstore_impl.hpp"

namespace tutti {

namespace {

std::string type_of(std::string_view name) {
  std::string small(name);
  for (char& letter : small) letter = lower(letter);
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, small) != names.end();
  };
  if (is_one_of({"local", "local_update_cpu", "local_allreduce_cpu"})) return "local";
  if (is_one_of({"device", "local_allreduce_device"})) return "device";
  if (is_one_of({"dist", "dist_sync", "dist_device_sync", "dist_sync_device", "nccl"})) {
    return "dist";
  }
  throw Error(ErrorCode::invalid_argument,
              "unknown store type '" + std::string(name) +
                  "'; expected local (or local_update_cpu, local_allreduce_cpu), device (or "
                  "local_allreduce_device) or dist (or dist_sync, dist_device_sync, "
                  "dist_sync_device, nccl)");
}

AsyncPushes::Stays stays_of(const AsyncOptions& options) {
  return options.borrow ? AsyncPushes::Stays::all : AsyncPushes::Stays::in_arena;
}

}  // namespace

KVStore::KVStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KVStore::KVStore(KVStore&&) noexcept = default;
KVStore& KVStore::operator=(KVStore&& other) noexcept {
  KVStore before(std::move(other));  // ends the store that this object had
  impl_.swap(before.impl_);
  return *this;
}
KVStore::~KVStore() {
  if (impl_ != nullptr && impl_->group->is_forked()) static_cast<void>(impl_.release());
}

KVStore::Impl& KVStore::impl() const {
  if (impl_ != nullptr) return *impl_;
  throw Error(ErrorCode::invalid_argument, "this store was moved from; use the one that it is now");
}

KVStore KVStore::create(std::string_view name, const Settings& settings) {
  const std::string type = type_of(name);
  const Communicator communicator =
      type == "dist" ? Communicator::world(settings) : Communicator::self(settings);
  return KVStore(std::make_unique<Impl>(type, communicator.group()));
}

KVStore KVStore::create(const Communicator& communicator) {
  return KVStore(std::make_unique<Impl>("dist", communicator.group()));
}

void KVStore::init(const Keys& keys, const Values& values) {
  impl().init(keys, values, Storage::dense);
}

void KVStore::push(const Keys& keys, const Values& values, int priority) {
  impl().push_as_set(keys, values, priority);
}

Pending KVStore::push_async(const Keys& keys, const Values& values, const AsyncOptions& options) {
  return impl().push_async(keys, values, nullptr, options.priority, stays_of(options));
}

Pending KVStore::pushpull_async(const Keys& keys, const Values& values, const Outputs& outputs,
                                const AsyncOptions& options) {
  return impl().push_async(keys, values, &outputs, options.priority, stays_of(options));
}

void KVStore::init_row_sparse(const Keys& keys, const Values& values) {
  impl().init(keys, values, Storage::row_sparse);
}

void KVStore::init_row_sparse(const Key& key, const Shape& shape, DType dtype, Device device) {
  impl().init_rows(key, shape, dtype, device);
}

void KVStore::push(const Keys& keys, const RowSparseValues& values, int /*priority*/) {
  impl().push_rows(keys, values);
}

void KVStore::pull(const Keys& keys, const Outputs& outputs, Cast cast) const {
  impl().pull(keys, outputs, {.cast = cast});
}

void KVStore::pull(const Keys& keys, const Outputs& outputs, const PullOptions& options) const {
  impl().pull(keys, outputs, options);
}

void KVStore::row_sparse_pull(const Keys& keys, const RowSparseOutputs& outputs,
                              const Values& row_ids, int /*priority*/) const {
  impl().pull_rows(keys, outputs, row_ids);
}

ConstTensorView KVStore::view(const Key& key) const { return impl().entry(key).replica.shared(); }

void KVStore::pushpull(const Keys& keys, const Values& values, const Outputs& outputs,
                       int /*priority*/) {
  impl().push(keys, values, &outputs);
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
  impl().init(keys, values, Storage::dense, &outputs);
  impl().pull(keys, outputs, {});
}

void KVStore::set_updater(Updater updater, RowSparseUpdater rows) {
  if (rows && !updater) {
    throw Error(ErrorCode::invalid_argument,
                "set_updater: a function for rows, but none for dense values; give both");
  }
  UpdateRule rule;
  if (updater) rule.rule = std::move(updater);
  rule.row_updater = std::move(rows);
  impl().set_rule(std::move(rule));
}

void KVStore::set_optimizer(std::shared_ptr<Optimizer> optimizer) {
  if (optimizer == nullptr) {
    throw Error(ErrorCode::invalid_argument, "set_optimizer: expected an optimizer, got none");
  }
  if (const int states = optimizer->num_states(); states < 0 || states > Optimizer::kMostStates) {
    throw Error(ErrorCode::invalid_argument,
                "set_optimizer: " + optimizer->name() + " has " + std::to_string(states) +
                    " states per key; expected 0 to " + std::to_string(Optimizer::kMostStates));
  }
  UpdateRule rule;
  if (GradientScaler::needs(optimizer->options())) {
    rule.scaler = std::make_shared<GradientScaler>(*optimizer);
  }
  rule.rule = std::move(optimizer);
  impl().set_rule(std::move(rule));
}

Optimizer& KVStore::optimizer() const {
  impl().group->await_async();  // asynchronous pushes use the optimizer
  Optimizer* running = impl().rule().optimizer();
  if (running == nullptr) {
    throw Error(ErrorCode::invalid_argument, "this store runs no optimizer; call set_optimizer");
  }
  return *running;
}

GradientScaling KVStore::gradient_scaling() const {
  const GradientScaler* scaler = impl().rule().scaler.get();
  return scaler == nullptr ? GradientScaling() : scaler->state();
}

void KVStore::set_gradient_compression(const Compression& compression) {
  impl().set_compression(compression);
}

void KVStore::set_gradient_compression(std::string_view compression) {
  impl().set_compression(compression::create(compression));
}

void KVStore::save(const std::filesystem::path& directory, const Metadata& metadata) {
  impl().save(directory, metadata);
}
Pending KVStore::save_async(const std::filesystem::path& directory, const Metadata& metadata) {
  return impl().save_async(directory, metadata);
}
LoadResult KVStore::load(const std::filesystem::path& directory, const LoadOptions& options) {
  return impl().load(directory, options);
}
void KVStore::save_optimizer_states(const std::filesystem::path& path) {
  impl().save_optimizer_states(path);
}
void KVStore::load_optimizer_states(const std::filesystem::path& path, const LoadOptions& options) {
  impl().load_optimizer_states(path, options);
}

Tensor KVStore::allocate(Shape shape, DType dtype) { return impl().group->allocate(shape, dtype); }

int KVStore::rank() const noexcept { return impl().group->topology().rank; }
int KVStore::num_workers() const noexcept { return impl().group->topology().size; }
std::vector<Key> KVStore::keys() const { return impl().keys(); }
std::string_view KVStore::type() const noexcept { return impl().type; }
bool KVStore::is_capable(std::string_view capability) const noexcept {
  return capability == "optimizer";
}
bool KVStore::stop_requested() const { return impl().group->engine().stop_requested(); }
void KVStore::request_stop() noexcept { impl().group->request_stop(); }
void KVStore::barrier() { impl().barrier(); }
Statistics KVStore::statistics() const { return statistics_of(impl().group->statistics(), rank()); }
VerifyResult KVStore::verify() { return impl().verify(); }
void KVStore::agree(const std::function<void()>& body) { impl().agree(body); }

/// Lets free functions work on a store.
class StoreAccess {
 public:
  static KVStore::Impl& impl(const KVStore& store) { return store.impl(); }
};

void snapshot(KVStore& store, const std::filesystem::path& directory, const Metadata& metadata) {
  StoreAccess::impl(store).snapshot(directory, metadata);
}

bool snapshot_when_due(KVStore& store, const std::filesystem::path& directory,
                       const std::function<Metadata()>& metadata) {
  return StoreAccess::impl(store).snapshot_when_due(directory, metadata);
}

KeyStates optimizer_states(const KVStore& store, const Key& key) {
  const Entry& entry = StoreAccess::impl(store).entry(key);
  KeyStates found{.key = key, .updates = entry.updates};
  if (entry.updates == 0) return found;
  for (const Tensor& state : entry.states) found.states.push_back(state.shared());
  return found;
}

void set_optimizer_states(KVStore& store, std::span<const KeyStates> given) {
  StoreAccess::impl(store).set_optimizer_states(given);
}

}  // namespace tutti
