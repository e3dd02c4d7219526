// SPDX-License-Identifier: Apache-2.0
#include "collectives/choice/learner.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>

#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/slot_ring.hpp"

namespace tutti::collectives {

namespace {

// The first calls of a class do not count, because they touch memory for the first time.
constexpr std::uint64_t kWarmUp = 3;
constexpr double kMostExcess = 0.05;
// Expected cost of each call of a trial, as a multiple of the time of a call.
constexpr double kExpectedExcess = 0.25;
constexpr int kCallsOfTrial = 2;
// The most calls that a trial makes before those that count.
constexpr std::size_t kMostCallsBefore = 64;
// A trial ends early after so many calls in a row that took this much longer than the best path.
constexpr int kSlowCalls = 3;
constexpr double kVerySlow = 2;
// A path is dropped after a single trial that took this much longer than the best path.
constexpr double kHopeless = 1.3;
// A path is also dropped if the median of kFewSamples trials is this much longer.
constexpr double kSlower = 1.06;
constexpr std::size_t kFewSamples = 3;
// A path replaces the best one only if its time is below this multiple of the best.
constexpr double kFaster = 0.97;
// After this number of calls a settled class is checked, and learnt again if the time of its calls
// has changed by a factor of kChanged. The first time it is checked earlier: the calls of a trial
// write lines that no other rank has read lately, and many calls in a row may take longer.
constexpr std::uint64_t kCallsBetweenLooks = 1000;
constexpr std::uint64_t kCallsBeforeFirstLook = 200;
constexpr double kChanged = 1.5;
constexpr double kMostCounted = 2;
constexpr double kWeightOfNewest = 1.0 / 64;
// Smallest calls for which writes past the caches are tried.
constexpr std::size_t kLeastStreamedSlots = std::size_t{4} << 10;
constexpr std::size_t kLeastStreamedOutputs = std::size_t{256} << 10;

WritePolicy other(WritePolicy writes) {
  return writes == WritePolicy::cached ? WritePolicy::streaming : WritePolicy::cached;
}

/// Returns a size that represents the class: in a node its smallest, between nodes its largest. It
/// does not depend on an individual call, because ranks may see different calls of the class first.
std::size_t bytes_of(const CallClass& call) {
  constexpr std::uint8_t kMost = 62;
  return std::size_t{1} << std::min(call.size, kMost);
}

/// Returns the bytes that one of two ranks stages, of data of `bytes` bytes.
std::size_t staged_of(Kind kind, std::size_t bytes) {
  if (kind == Kind::allreduce) return bytes;
  return kind == Kind::alltoall ? bytes / 4 : bytes / 2;
}

/// Returns the number of calls of a trial of swapped slots: a write finds its line in the own cache
/// once both rings have been written. Then all samples are taken at once.
int calls_with_swapped(const CallClass& call, std::size_t bytes, std::size_t samples) {
  const std::size_t before =
      2 * SlotRing::kSwapped / std::max<std::size_t>(1, staged_of(call.kind, bytes));
  return static_cast<int>(std::min(before + 1, kMostCallsBefore) + samples);
}

}  // namespace

std::uint32_t Learner::Candidate::median() const {
  auto sorted = times;
  const std::size_t known = std::min(count, kSamples);
  const auto at = [&](std::size_t i) { return sorted.begin() + static_cast<std::ptrdiff_t>(i); };
  std::nth_element(sorted.begin(), at(known / 2), at(known));
  return sorted[known / 2];
}

Learner::Learner(const Tuning& tuning, int ranks, bool can_fetch)
    : tuning_(tuning), ranks_(ranks), can_fetch_(can_fetch) {}

Learner::Class& Learner::class_of(const CallClass& call) {
  const auto found = classes_.find(call.number());
  if (found != classes_.end()) return found->second;
  return classes_.emplace(call.number(), make_class(call)).first->second;
}

/// Has no influence on later choices: ranks may plan for different classes if their data lies in
/// different memory. A rank without inputs does, as all but the root of a broadcast; so it plans
/// for what such a call was the last time. The path of the next call of a class is decided in
/// choose(), which all ranks call with the same class.
const Path& Learner::plan(const CallClass& call) {
  planned_ = &class_of(call);
  return next_path(planned_->was == nullptr ? *planned_ : *planned_->was);
}

const Path& Learner::next_path(Class& known) const {
  if (tuning_.paths_in_turn) known.best = known.calls % known.candidates.size();
  return known.candidates[known.trial.value_or(known.best)].path;
}

const Path& Learner::choose(const CallClass& call, bool announced) {
  Class& known = class_of(call);
  Class* const own = std::exchange(planned_, nullptr);
  if (own != nullptr && own->call.kind == call.kind && own->call.size == call.size) {
    own->was = &known;
  }
  const bool planned = next_path(known).inputs == Inputs::announced;
  if (tuning_.paths_in_turn) ++known.calls;
  last_ = &known;
  recent_ = &known;
  last_path_ = known.trial.value_or(known.best);
  if (known.trial) --known.calls_left;
  if (known.trial && known.slow_calls >= kSlowCalls) known.calls_left = 0;
  last_counts_ = !known.trial || known.calls_left < known.samples_of_trial;
  if (planned && !announced) {
    last_path_ = without_announcement(known);
    last_counts_ = false;
  }
  const bool ended = known.trial && (known.calls_left == 0 || planned != announced);
  if (ended) known.trial.reset();
  known.chosen = known.candidates[last_path_].path;
  if (!known.is_settled && !known.trial) prepare_next(known, ended);
  return known.chosen;
}

/// Decides the path of the next call of the class. The time of the current call is not known yet:
/// if it ended a trial, another path is tried next, or none until its time is known.
void Learner::prepare_next(Class& known, bool trial_ended) {
  for (std::size_t i = 0; i < known.candidates.size(); ++i) {
    const Candidate& candidate = known.candidates[i];
    if (candidate.dropped || candidate.count < kFewSamples) continue;
    const auto best = known.candidates[known.best].median();
    if (candidate.median() < kFaster * best) known.best = i;
  }
  if (!trial_ended || tuning_.learns_at_once) begin_trial(known, trial_ended);
}

/// Returns the path for a call in which some rank did not announce its inputs, because its data
/// lies elsewhere. When that has happened twice the announced path is dropped, because later calls
/// will be alike. The first time, a rank without inputs did not know where those of others lie.
std::size_t Learner::without_announcement(Class& known) const {
  if (known.was_not_announced) known.candidates[known.trial.value_or(known.best)].dropped = true;
  known.was_not_announced = true;
  // The static choice for data that no announcement has room for.
  const std::size_t bytes = std::max(known.bytes, kInlineInNode + 1);
  Path large = tuning_.path_for(known.call, bytes, ranks_, can_fetch_);
  if (large.inputs == Inputs::announced) large = {};  // TUTTI_ALGORITHMS allows nothing else
  const auto other =
      std::find_if(known.candidates.begin(), known.candidates.end(),
                   [&](const Candidate& candidate) { return candidate.path == large; });
  const auto place = static_cast<std::size_t>(other - known.candidates.begin());
  if (other == known.candidates.end()) known.candidates.push_back({.path = large});
  if (!known.trial) known.best = place;
  return place;
}

/// Returns a class with its candidates: the static choice, and all other pairs of inputs and
/// results with the writes that are usual at this size, each with the other way of writing slots.
/// Between cores that share no cache the wrong one takes up to six times as long, so that no pair
/// may be dropped for it.
Learner::Class Learner::make_class(const CallClass& call) const {
  const std::size_t bytes = bytes_of(call);
  Class made{.call = call, .bytes = bytes};
  const Path first = tuning_.path_for(call, bytes, ranks_, can_fetch_);
  made.candidates.push_back({.path = first});
  if (tuning_.paths_in_turn) add_all_paths(made);
  if (const LearntPath* adopted = adopted_for(call)) {
    made.candidates = {{.path = adopted->path}};
    made.adopted_margin = adopted->margin;
  }
  if (!tuning_.learns) {
    made.is_settled = true;
    return made;
  }
  for (Path path : paths_of(call, bytes)) {
    if (!call.between_nodes) tuning_.choose_writes(path, bytes, ranks_);
    if (path != first) made.candidates.push_back({.path = path});
    add_other_slots(made, path);
  }
  return made;
}

/// Returns the paths to try. Between nodes, the number of pieces in a message is doubled until one
/// chunk holds the whole call.
std::vector<Path> Learner::paths_of(const CallClass& call, std::size_t bytes) const {
  if (!call.between_nodes) return possible_paths(call, ranks_, can_fetch_);
  std::vector<Path> paths;
  if (call.may_be_inline) paths.push_back(kWithHandshakes);
  if (call.may_be_halved) paths.push_back(kHalved);
  paths.push_back({.pieces = static_cast<std::uint8_t>(tuning_.pieces.value_or(1))});
  while (!tuning_.pieces && tuning_.chunk_bytes_of(paths.back()) < bytes &&
         paths.back().pieces < tuning_.most_pieces) {
    paths.push_back(paths.back());
    paths.back().pieces *= 2;
  }
  return paths;
}

void Learner::add_all_paths(Class& known) const {
  if (known.call.between_nodes) {
    for (const Path& path : paths_of(known.call, known.bytes)) {
      known.candidates.push_back({.path = path});
    }
    return;
  }
  for (Path path : possible_paths(known.call, ranks_, can_fetch_)) {
    for (const WritePolicy slots : {WritePolicy::cached, WritePolicy::streaming}) {
      for (const WritePolicy outputs : {WritePolicy::cached, WritePolicy::streaming}) {
        path.slots = slots;
        path.outputs = outputs;
        known.candidates.push_back({.path = path});
      }
    }
  }
}

/// Begins a trial, if there is time for one, of the candidate with the fewest measurements that may
/// still win. `trial_ended`: the current call ended a trial of its path.
void Learner::begin_trial(Class& known, bool trial_ended) {
  const Candidate& best = known.candidates[known.best];
  if (known.calls < kWarmUp || best.count < kFewSamples) return;
  bool is_done = true;
  const Candidate* next = nullptr;
  for (const Candidate& candidate : known.candidates) {
    const auto place = static_cast<std::size_t>(&candidate - known.candidates.data());
    if (candidate.dropped || candidate.is_known() || place == known.best) continue;
    if (trial_ended && place == last_path_) continue;
    is_done = false;
    const double cost = kExpectedExcess * calls_of_trial(known, candidate) * best.median();
    const bool affordable = known.excess + cost <= kMostExcess * known.time;
    if (!affordable && !tuning_.learns_at_once) continue;
    if (next == nullptr || candidate.count < next->count) next = &candidate;
  }
  if (is_done && !trial_ended) settle_if_done(known);
  if (next == nullptr) return;
  known.trial = static_cast<std::size_t>(next - known.candidates.data());
  known.calls_left = calls_of_trial(known, *next);
  known.samples_of_trial = next->path.inputs == Inputs::swapped ? static_cast<int>(kSamples) : 1;
  known.slow_calls = 0;
}

int Learner::calls_of_trial(const Class& known, const Candidate& candidate) {
  if (candidate.path.inputs != Inputs::swapped) return kCallsOfTrial;
  return calls_with_swapped(known.call, known.bytes, kSamples);
}

void Learner::observe(std::uint32_t time) {
  if (last_ == nullptr) return;
  Class& known = *std::exchange(last_, nullptr);
  if (time == 0) return;
  if (known.is_settled) {
    watch(known, time);
  } else {
    learn(known, time);
  }
}

void Learner::learn(Class& known, std::uint32_t time) {
  if (++known.calls <= kWarmUp) return;
  known.time += time;
  Candidate& candidate = known.candidates[last_path_];
  const Candidate& best = known.candidates[known.best];
  if (&candidate != &best) known.excess += std::max(0.0, 1.0 * time - best.median());
  const bool is_very_slow = &candidate != &best && time > kVerySlow * best.median();
  known.slow_calls = is_very_slow ? known.slow_calls + 1 : 0;
  if (!last_counts_) return;
  candidate.add(time);
  if (&candidate != &best) judge(known, candidate);
}

void Learner::judge(const Class& known, Candidate& candidate) {
  const double ratio = 1.0 * candidate.median() / known.candidates[known.best].median();
  if (ratio > kHopeless || (candidate.count >= kFewSamples && ratio > kSlower)) {
    candidate.dropped = true;
  }
}

/// Called when no path is left to try: adds variants of the best path, and the second time settles
/// the class.
void Learner::settle_if_done(Class& known) {
  if (!known.has_variants) {
    known.has_variants = true;
    add_variants(known);
    return;
  }
  known.is_settled = true;
  known.settled_time = known.recent_time = known.candidates[known.best].median();
  known.calls = known.is_learnt_again ? 0 : kCallsBetweenLooks - kCallsBeforeFirstLook;
}

void Learner::add(Class& known, const Path& path) {
  const auto same = [&](const Candidate& candidate) { return candidate.path == path; };
  if (std::none_of(known.candidates.begin(), known.candidates.end(), same)) {
    known.candidates.push_back({.path = path});
  }
}

void Learner::add_other_slots(Class& known, Path path) {
  if (known.call.between_nodes || !uses_slots(path, known.call)) return;
  if (known.bytes < kLeastStreamedSlots || path.inputs == Inputs::swapped) return;
  path.slots = other(path.slots);
  add(known, path);
}

void Learner::add_variants(Class& known) {
  if (known.call.between_nodes) return;
  const Path best = known.candidates[known.best].path;
  Path outputs = best;
  outputs.outputs = other(best.outputs);
  const bool writes_outputs = !known.call.consumed || best.results == Results::updated;
  if (writes_outputs && known.bytes >= kLeastStreamedOutputs) add(known, outputs);
}

/// Checks from time to time whether the calls of a settled class take as long as they did. If not,
/// another job may have begun on the machine, or the program's other data may have changed, and the
/// class is learnt again.
void Learner::watch(Class& known, std::uint32_t time) {
  if (!tuning_.learns) return;
  // A call that waited for a core counts as one that took twice as long.
  const double counted = std::min<double>(time, kMostCounted * known.settled_time);
  known.recent_time += kWeightOfNewest * (counted - known.recent_time);
  if (++known.calls < kCallsBetweenLooks) return;
  known.calls = 0;
  const double change = known.recent_time / known.settled_time;
  if (change < kChanged && change > 1 / kChanged) return;
  const Path best = known.candidates[known.best].path;
  known = make_class(known.call);
  known.is_learnt_again = true;
  const auto same = [&](const Candidate& candidate) { return candidate.path == best; };
  const auto place = std::find_if(known.candidates.begin(), known.candidates.end(), same);
  if (place == known.candidates.end()) {
    known.best = known.candidates.size();
    known.candidates.push_back({.path = best});
  } else {
    known.best = static_cast<std::size_t>(place - known.candidates.begin());
  }
}

/// True if a call of the class may take the path. Any pair of writes fits any pair of inputs and
/// results.
bool Learner::may_take(const CallClass& call, const Path& path) const {
  const auto possible = possible_paths(call, ranks_, can_fetch_);
  const Path first = tuning_.path_for(call, std::size_t{1} << call.size, ranks_, can_fetch_);
  // The exact size of a call decides whether inputs can be announced: choose() tests that again.
  const bool is_first = path.inputs == first.inputs && path.results == first.results;
  if (is_first && path.inputs != Inputs::announced) return true;
  return std::any_of(possible.begin(), possible.end(), [&](const Path& one) {
    return one.inputs == path.inputs && one.results == path.results;
  });
}

std::size_t Learner::adopt(std::span<const LearntPath> known) {
  adopted_.clear();
  std::copy_if(known.begin(), known.end(), std::back_inserter(adopted_),
               [&](const LearntPath& row) { return may_take(row.call, row.path); });
  return known.size() - adopted_.size();
}

/// Returns the adopted row of the nearest size, at most two steps away. The row of the largest size
/// that was measured holds for all larger sizes.
const LearntPath* Learner::adopted_for(const CallClass& call) const {
  constexpr int kMostSteps = 2;
  const auto distance = [&](const LearntPath& row) { return std::abs(row.call.size - call.size); };
  const LearntPath* nearest = nullptr;
  std::uint8_t largest = 0;
  for (const LearntPath& row : adopted_) {
    if (!row.call.is_like(call)) continue;
    largest = std::max(largest, row.call.size);
    if (nearest == nullptr || distance(row) < distance(*nearest)) nearest = &row;
  }
  if (nearest == nullptr || !may_take(call, nearest->path)) return nullptr;
  return call.size > largest || distance(*nearest) <= kMostSteps ? nearest : nullptr;
}

double Learner::margin_of(const Class& known) const {
  if (known.candidates.size() == 1) return known.adopted_margin;
  const std::uint32_t best = known.candidates[known.best].median();
  const std::uint32_t first = known.candidates.front().median();
  return best == 0 || first == 0 ? 1 : 1.0 * first / best;
}

std::vector<LearntPath> Learner::learnt() const {
  std::map<std::uint32_t, LearntPath> rows;
  for (const auto& [number, known] : classes_) {
    if (!known.is_settled) continue;
    rows[number] = {known.call, known.candidates[known.best].path, margin_of(known)};
  }
  std::vector<LearntPath> in_order;
  for (const auto& [number, row] : rows) in_order.push_back(row);
  return in_order;
}

}  // namespace tutti::collectives
