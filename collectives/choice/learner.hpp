// SPDX-License-Identifier: Apache-2.0
// Finds the fastest path of each class of calls, by trying them in the job's own calls.
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

/// Chooses the path of each call that moves data: through the node, or, of a group of several
/// nodes, between them.
///
/// Every rank has a learner of its own. All of them make the same choices, because all are told the
/// same: the classes of the calls, in order, and for each call the time from when its last rank
/// began to when its last rank ended, which follows from what the ranks report in the announcements
/// of the call after it. The nodes tell each other the longest of theirs in their handshakes.
///
/// A class begins with the static choice. A trial is two calls by another path, of which the second
/// counts: the first finds the caches as the old path has left them. A trial is made only while
/// what all trials have cost more than the best known path is below a twentieth of the time of all
/// calls of the class. A path that took much longer is dropped after one trial. When every path has
/// been dropped or measured often enough, the best one stays, with variants of its writes tried
/// last. From then on the class costs a look-up per call; if its calls take another time than
/// they did for a thousand calls, it is learnt again.
class Learner {
 public:
  /// `ranks` of the node. `can_fetch`: see possible_paths().
  Learner(const Tuning& tuning, int ranks, bool can_fetch);

  /// The path that a call of this class would take next. A rank asks this of what it knows of its
  /// own data, to decide whether to announce it.
  const Path& plan(const CallClass& call);
  /// The path of the call that all ranks have announced, with their inputs or without.
  const Path& choose(const CallClass& call, bool announced);
  /// True if a path was chosen, and observe() has not been called since.
  [[nodiscard]] bool awaits_time() const { return last_ != nullptr; }
  /// What the call that choose() was last asked for took, in any unit; 0: not known.
  void observe(std::uint32_t time);

  /// Takes what is known of classes, before the first call. Sizes near them have the same path, if
  /// they may take it. Returns how many rows were left out because their own class may not: where
  /// the ranks cannot read each other, for example.
  std::size_t adopt(std::span<const LearntPath> known);
  /// What has been learnt or adopted, in the order of classes.
  [[nodiscard]] std::vector<LearntPath> learnt() const;
  /// True while there are paths to try for the class of the last call.
  [[nodiscard]] bool is_learning() const { return recent_ != nullptr && !recent_->is_settled; }

 private:
  static constexpr std::size_t kSamples = 5;

  struct Candidate {
    Path path;
    std::array<std::uint32_t, kSamples> times{};
    std::size_t count = 0;  ///< of all measured; the last kSamples are kept
    bool dropped = false;

    void add(std::uint32_t time) { times[count++ % kSamples] = time; }
    [[nodiscard]] std::uint32_t median() const;
    [[nodiscard]] bool is_known() const { return count >= kSamples; }
  };

  struct Class {
    CallClass call;
    std::size_t bytes = 0;                ///< that stand for all of its calls
    std::vector<Candidate> candidates{};  ///< the static choice first
    std::size_t best = 0;
    Path chosen{};  ///< of the last call: candidates may move
    std::optional<std::size_t> trial{};
    int calls_of_trial = 0;
    bool has_variants = false;  ///< the writes of the best path have been added
    bool is_settled = false;
    std::uint64_t calls = 0;  ///< with a time
    double time = 0;          ///< of all calls while learning
    double excess = 0;        ///< what trials took longer than the best path
    double settled_time = 0;  ///< of one call
    double recent_time = 0;
    double adopted_margin = 1;
  };

  Class& class_of(const CallClass& call);
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
  void learn(Class& known, std::uint32_t time);
  static void judge(const Class& known, Candidate& candidate);
  void watch(Class& known, std::uint32_t time);
  [[nodiscard]] double margin_of(const Class& known) const;

  const Tuning& tuning_;
  int ranks_;
  bool can_fetch_;
  std::vector<LearntPath> adopted_;
  std::unordered_map<std::uint32_t, Class> classes_;
  const Class* recent_ = nullptr;  ///< of the last call
  Class* last_ = nullptr;          ///< whose call has no time yet
  std::size_t last_path_ = 0;      ///< among its candidates
  bool last_counts_ = false;
};

}  // namespace tutti::collectives
