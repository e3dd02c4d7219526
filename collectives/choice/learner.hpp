// SPDX-License-Identifier: Apache-2.0
// Learner: finds the fastest path of each class of calls by trying paths in the job's own calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/choice/path.hpp"
#include "collectives/choice/tuning.hpp"
#include "collectives/job/topology.hpp"

namespace tutti::collectives {

/// Chooses the path of each call that moves data: through the node, or in a group of several nodes,
/// between them.
///
/// Every rank has its own learner. All learners make the same choices, because all get the same
/// input: the classes of the calls, in order, and for each call the time from when its last rank
/// began until its last rank ended, computed from what the ranks report in the announcements of the
/// next call. Nodes exchange the longest of their times in their handshakes.
///
/// A class begins with the static choice. A trial consists of two calls by another path. Only the
/// second one counts, because the first finds the caches as the old path has left them. With
/// swapped slots there is one long trial, of which the last calls count: before them, both rings
/// are written once, or as much of them as many calls write. It ends early if it is slow. A trial
/// is made only while the total cost of all trials, compared with the best known path, is below a
/// twentieth of the time of all calls of the class. A path that took much longer is dropped after
/// one trial. Once every path has been dropped or measured often enough, variants of the best one's
/// writes are tried, and the class is settled. From then on a call costs one look-up. If the calls
/// of the class take a different time over a thousand calls, or over the first two hundred, it is
/// learnt again.
class Learner {
 public:
  /// `ranks`: number of ranks of the node. `can_fetch`: see possible_paths().
  Learner(const Tuning& tuning, int ranks, bool can_fetch);

  /// Returns the path that a call of this class would take next. A rank calls this with the class
  /// that its own data suggests, to decide whether to announce the data.
  const Path& plan(const CallClass& call);
  /// Returns the path of a call that all ranks have announced; `announced` tells whether all inputs
  /// were included.
  const Path& choose(const CallClass& call, bool announced);
  /// True if choose() was called, and observe() has not been called since.
  [[nodiscard]] bool awaits_time() const { return last_ != nullptr; }
  /// Reports the time of the call for which choose() was last called, in any unit; 0 means unknown.
  void observe(std::uint32_t time);

  /// Adopts known classes, before the first call. Calls of similar sizes take the same path, if
  /// they may. Returns the number of rows that were ignored because calls of their class may not
  /// take their path, for example because the ranks cannot read each other's memory.
  std::size_t adopt(std::span<const LearntPath> known);
  /// Returns all settled classes, learnt or adopted, ordered by class.
  [[nodiscard]] std::vector<LearntPath> learnt() const;
  /// True while there are paths to try for the class of the last call.
  [[nodiscard]] bool is_learning() const { return recent_ != nullptr && !recent_->is_settled; }

 private:
  static constexpr std::size_t kSamples = 5;

  struct Candidate {
    Path path;
    std::array<std::uint32_t, kSamples> times{};
    std::size_t count = 0;  ///< total number of measurements; the last kSamples are kept
    bool dropped = false;

    void add(std::uint32_t time) { times[count++ % kSamples] = time; }
    [[nodiscard]] std::uint32_t median() const;
    [[nodiscard]] bool is_known() const { return count >= kSamples; }
  };

  struct Class {
    CallClass call;
    std::size_t bytes = 0;                ///< the size that represents the class
    std::vector<Candidate> candidates{};  ///< the first one is the static choice
    std::size_t best = 0;
    Path chosen{};  ///< path of the last call, as `candidates` may be reallocated
    std::optional<std::size_t> trial{};
    int calls_left = 0;         ///< of the trial
    int samples_of_trial = 1;   ///< how many of its last calls count
    int slow_calls = 0;         ///< how many of its calls took very long
    bool has_variants = false;  ///< the other writes of the best path have been added
    bool is_settled = false;
    bool is_learnt_again = false;
    bool was_not_announced = false;  ///< though it should have been
    Class* was = nullptr;     ///< what the last call was for which this rank planned this class
    std::uint64_t calls = 0;  ///< number of calls with a known time
    double time = 0;          ///< total time of these calls while learning
    double excess = 0;        ///< total additional time of trials, compared with the best path
    double settled_time = 0;  ///< time of one call when the class was settled
    double recent_time = 0;
    double adopted_margin = 1;
  };

  Class& class_of(const CallClass& call);
  const Path& next_path(Class& known) const;
  [[nodiscard]] bool may_take(const CallClass& call, const Path& path) const;
  [[nodiscard]] const LearntPath* adopted_for(const CallClass& call) const;
  [[nodiscard]] std::size_t without_announcement(Class& known) const;
  Class make_class(const CallClass& call) const;
  static void settle_if_done(Class& known);
  static void add(Class& known, const Path& path);
  static void add_other_slots(Class& known, Path path);
  static void add_variants(Class& known);
  void add_all_paths(Class& known) const;
  [[nodiscard]] std::vector<Path> paths_of(const CallClass& call, std::size_t bytes) const;
  void prepare_next(Class& known, bool trial_ended);
  void begin_trial(Class& known, bool trial_ended);
  static int calls_of_trial(const Class& known, const Candidate& candidate);
  void learn(Class& known, std::uint32_t time);
  static void judge(const Class& known, Candidate& candidate);
  void watch(Class& known, std::uint32_t time);
  [[nodiscard]] double margin_of(const Class& known) const;

  const Tuning& tuning_;
  int ranks_;
  bool can_fetch_;
  std::vector<LearntPath> adopted_;
  std::unordered_map<std::uint32_t, Class> classes_;
  Class* planned_ = nullptr;       ///< class of the last plan(), until choose()
  const Class* recent_ = nullptr;  ///< class of the last call
  Class* last_ = nullptr;          ///< class of the call whose time is not known yet
  std::size_t last_path_ = 0;      ///< index of its path among the candidates
  bool last_counts_ = false;
};

}  // namespace tutti::collectives
