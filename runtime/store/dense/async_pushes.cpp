// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/dense/async_pushes.hpp"

#include <algorithm>
#include <new>

#include "runtime/store/core/call_totals.hpp"
#include "runtime/store/core/push_protocol.hpp"
#include "runtime/store/core/together.hpp"

namespace tutti {

namespace {

constexpr const char* kCall = "push_async";
constexpr const char* kBatch = "async_batch";  // its name in statistics

/// The steps of a push, which note the time when its sum was made.
struct MovedAt {
  DensePush& push;
  std::uint64_t moved = 0;

  void agree() { push.agree(); }
  void prepare() { push.prepare(); }
  void sum() {
    push.sum();
    moved = collectives::ticks();
  }
  void update() { push.update(); }
};

void require_cpu(const Entry& entry, const ConstTensorView& tensor) {
  if (tensor.device().kind == DeviceKind::cpu && !entry.is_on_gpu()) return;
  throw_invalid_argument(entry,
                         "asynchronous pushes are of keys and values in the host's memory, and " +
                             std::string(entry.is_on_gpu() ? "this key" : "a value") +
                             " is on a GPU; use push()");
}

}  // namespace

// --- copies --------------------------------------------------------------------------------------

Tensor StagedValues::take(const Entry& entry, const ConstTensorView& value) {
  std::optional<Tensor> copy;
  {
    const std::lock_guard lock(mutex_);
    std::vector<Tensor>& free = free_[entry.order];
    if (!free.empty() && free.back().shape() == value.shape() &&
        free.back().dtype() == value.dtype()) {
      copy = std::move(free.back());
      free.pop_back();
    }
  }
  if (!copy) copy = group_.allocate(value.shape(), value.dtype());
  copy->view().copy_from(value);
  return std::move(*copy);
}

/// If there is no memory for the list, the copies go back to the arena.
void StagedValues::give_back(std::size_t order, std::vector<Tensor> copies) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    std::ranges::move(copies, std::back_inserter(free_[order]));
  } catch (const std::bad_alloc&) {
  }
}

// --- the program's thread ------------------------------------------------------------------------

/// A push in slices, which is under way while others overtake it.
struct AsyncPushes::Slices {
  AsyncPushes& store;
  PushPlan plan;
  DensePush push;

  explicit Slices(AsyncPushes& of)
      : store(of), plan(of.group_, of.store_.table), push(of.store_, plan) {}
  ~Slices() { store.healed_in_slices_ += push.healed(); }
  Slices(const Slices&) = delete;
  Slices& operator=(const Slices&) = delete;
};

/// The push of one key, as a job.
struct AsyncPushes::Job final : AsyncJob {
  Entry* entry;
  std::vector<ConstTensorView> values{};
  std::vector<TensorView> outputs{};
  std::vector<Tensor> copies{};  ///< copies that `values` refer to
  std::unique_ptr<Slices> slices{};
  std::shared_ptr<StagedValues> staged;

  Job(Entry& of, std::shared_ptr<StagedValues> from) : entry(&of), staged(std::move(from)) {}
  ~Job() override { staged->give_back(entry->order, std::move(copies)); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
};

AsyncPushes::AsyncPushes(const StoreState& store)
    : group_(*store.group),
      store_(store),
      calls_(group_.async_calls()),
      plan_(group_, store.table),
      push_(store, plan_),
      staged_(std::make_shared<StagedValues>(group_)),
      number_(calls_.add(*this)) {}

AsyncPushes::~AsyncPushes() { calls_.remove(number_); }

/// Keeps a value for a job, as a copy unless it may stay. A value that is a replica gets the result
/// of the pushes before this one.
ConstTensorView AsyncPushes::keep(Job& job, const ConstTensorView& value, Stays stays) {
  const bool is_on_gpu = value.device().kind == DeviceKind::gpu;
  if (is_on_gpu && stays != Stays::none) return value;  // refused later, on all ranks
  const bool is_replica = store_.table.holds(value.bytes());
  if (is_replica) calls_.await_all();
  const bool is_in_arena = group_.arena()->holds(value.bytes());
  const bool may_stay = stays == Stays::all || (stays == Stays::in_arena && is_in_arena);
  if (may_stay && !is_replica) return value;
  job.copies.push_back(staged_->take(*job.entry, value));
  return job.copies.back();
}

std::vector<AsyncCalls::Placed> AsyncPushes::jobs_of(const Keys& keys, const Values& values,
                                                     const Outputs* outputs, int priority,
                                                     Stays stays) {
  if (store_.rule.scaler != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                scaler_refusal("for all keys of a push together, and an asynchronous push goes key "
                               "by key; call push() with the whole list"));
  }
  group_.async();
  const auto groups = resolve(keys, values);
  std::unordered_map<Key, std::vector<TensorView>> destinations;
  if (outputs != nullptr) {
    for (auto& [key, tensors] : resolve(keys, *outputs)) destinations[key] = std::move(tensors);
  }
  std::vector<AsyncCalls::Placed> jobs;
  for (const auto& [key, tensors] : groups) {
    Entry& entry = store_.table.at(key);
    auto job = std::make_unique<Job>(entry, staged_);
    job->priority = priority;
    job->bytes = entry.replica.size_bytes();
    // A compressed push is packed as one stream, whose bits depend on the keys in it.
    job->is_alone = store_.compression.is_on();
    job->has_slices = calls_.may_slice() && !store_.compression.is_on();
    job->copies.reserve(tensors.size());
    for (const auto& value : tensors) job->values.push_back(keep(*job, value, stays));
    if (outputs != nullptr) job->outputs = std::move(destinations[key]);
    jobs.push_back({entry.order, std::move(job)});
  }
  return jobs;
}

Pending AsyncPushes::push(const Keys& keys, const Values& values, const Outputs* outputs,
                          int priority, Stays stays) {
  std::vector<AsyncCalls::Placed> jobs = jobs_of(keys, values, outputs, priority, stays);
  std::vector<Entry*> entries;
  for (const auto& placed : jobs) entries.push_back(static_cast<Job&>(*placed.job).entry);
  auto state = std::make_shared<AsyncState>(calls_.waiting(), call_to_string(kCall, entries),
                                            static_cast<std::uint32_t>(jobs.size()));
  for (const auto& placed : jobs) placed.job->state = state;
  calls_.submit(number_, std::move(jobs));
  return Pending(std::move(state));
}

void AsyncPushes::push_unheld(const Keys& keys, const Values& values, int priority,
                              UnheldPushes& unheld) {
  std::vector<AsyncCalls::Placed> jobs = jobs_of(keys, values, nullptr, priority, Stays::none);
  std::vector<std::pair<Entry*, std::shared_ptr<AsyncState>>> pushes;
  for (const auto& placed : jobs) {
    Entry* const entry = static_cast<Job&>(*placed.job).entry;
    placed.job->state =
        std::make_shared<AsyncState>(calls_.waiting(), call_to_string(kCall, {&entry, 1}), 1);
    pushes.emplace_back(entry, placed.job->state);
  }
  calls_.submit(number_, std::move(jobs));
  for (auto& [entry, state] : pushes) unheld.add(*entry, std::move(state));
}

// --- the thread that drives the pushes -----------------------------------------------------------

std::string AsyncPushes::name_of_queue(std::size_t queue) const {
  for (const auto& [key, entry] : store_.table) {
    if (entry.order == queue) return "push of " + to_string(key, entry.shape(), entry.dtype());
  }
  return "push of an unknown key";
}

void AsyncPushes::carry_out(std::span<AsyncJob* const> jobs) {
  collectives::Engine& engine = group_.engine();
  const collectives::CountedCall counted(engine.statistics(), kBatch);
  const auto together = [&](auto&& step) { throw_together(engine, kCall, step); };
  together([&] {
    std::vector<PushItem> items;
    for (AsyncJob* const job : jobs) items.push_back(item_of(static_cast<Job&>(*job)));
    plan_.take(std::move(items), kBatch);
    push_.take();
  });
  MovedAt timed{push_};
  tutti::carry_out(timed, together);
  for (AsyncJob* const job : jobs) {
    job->times.moved = timed.moved;
    complete(static_cast<Job&>(*job));
  }
}

void AsyncPushes::carry_slice(AsyncJob& one, std::size_t bytes) {
  auto& job = static_cast<Job&>(one);
  collectives::Engine& engine = group_.engine();
  const collectives::CountedCall counted(engine.statistics(), kBatch);
  if (job.slices == nullptr) throw_together(engine, kCall, [&] { begin_slices(job); });
  const std::size_t size = size_of(job.entry->dtype());
  job.slices->push.sum_slice(job.done / size, bytes / size);
  if (job.done + bytes < job.bytes) return;
  job.times.moved = collectives::ticks();
  job.slices->push.update();
  complete(job);
}

/// Begins a push in slices. No other call uses a copy of the value, so the sum takes its place.
void AsyncPushes::begin_slices(Job& job) {
  const bool is_copy = job.values.size() == 1 && job.copies.size() == 1;
  auto slices = std::make_unique<Slices>(*this);
  std::vector<PushItem> items;
  items.push_back(item_of(job));
  slices->plan.take(std::move(items), kBatch);
  slices->push.take_for_slices(is_copy ? job.copies.front().bytes() : nullptr);
  job.slices = std::move(slices);
}

/// The value of a job as an item of a push. Errors: invalid_argument for a value or an output that
/// does not fit.
PushItem AsyncPushes::item_of(const Job& job) {
  for (const ConstTensorView& value : job.values) require_cpu(*job.entry, value);
  for (const TensorView& output : job.outputs) {
    require_like(*job.entry, output, "an output");
    require_cpu(*job.entry, output);
  }
  return {job.entry, job.values};
}

/// Copies the outputs and counts the push, after its update.
void AsyncPushes::complete(Job& job) {
  for (const TensorView& output : job.outputs) group_.copy(output, job.entry->replica);
  job.times.done = collectives::ticks();
  Entry* const entry = job.entry;
  collectives::StatisticsCollector& statistics = group_.engine().statistics();
  statistics.count_async(totals_of(statistics, kCall, {&entry, 1}), job.times, job.bytes);
}

}  // namespace tutti
