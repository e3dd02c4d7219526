// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/tune.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include <tutti/kvstore.hpp>
#include <tutti/optimizers.hpp>

#include "apps/doctor/tune_file.hpp"
#include "support/text.hpp"

namespace apps::doctor {

namespace {

using tutti::Communicator;
using tutti::KVStore;
using tutti::Tensor;

constexpr std::size_t kLeastBytes = std::size_t{2} << 10;
constexpr std::size_t kMostBytes = std::size_t{32} << 20;
constexpr std::size_t kSizeStep = 4;  // a row of a file serves sizes within two doublings
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
// More calls than all trials of a class take; a class that is still open then is not in the file.
constexpr int kMostCalls = 250;
// Calls after which it is known whether a class has yet to be learnt.
constexpr int kFirstCalls = 8;
// The part of the time that one kind of call at one size may take.
constexpr double kMostShare = 0.2;
// The least gain that counts; a smaller one may be chance.
constexpr double kNotable = 1.05;

using TensorPointer = std::shared_ptr<Tensor>;

/// One kind of call. `fresh` is the tensor that a training step would write before it.
struct TrialCall {
  std::string name;
  TensorPointer fresh;
  std::function<void()> call;
};

using StorePointer = std::shared_ptr<KVStore>;

StorePointer store_of(Communicator& world, std::int64_t count, bool has_optimizer) {
  auto kv = std::make_shared<KVStore>(KVStore::create(world));
  kv->init(0, Tensor::zeros({count}));
  if (has_optimizer) kv->set_optimizer(tutti::optimizer::create("sgd,learning_rate=0.001"));
  return kv;
}

/// The kinds of calls that programs make, on tensors of so many bytes.
std::vector<TrialCall> trial_calls_of(Communicator& world, std::size_t bytes) {
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
  const std::int64_t block = count / world.size();
  const auto make = [&](bool shared, std::int64_t elements) {
    return std::make_shared<Tensor>(shared ? world.allocate({elements})
                                           : Tensor::zeros({elements}));
  };
  std::vector<TrialCall> calls;
  for (const bool shared : {true, false}) {
    const std::string where = shared ? ", store's memory" : ", ordinary memory";
    const TensorPointer in = make(shared, count);
    const TensorPointer out = make(shared, count);
    calls.push_back({"allreduce in place" + where, in, [&world, in] { world.allreduce(*in); }});
    calls.push_back({"allreduce" + where, in, [&world, in, out] { world.allreduce(*in, *out); }});
    for (const bool has_optimizer : {false, true}) {
      const StorePointer kv = store_of(world, count, has_optimizer);
      calls.push_back({(has_optimizer ? "push with optimizer" : "push") + where, in,
                       [kv, in] { kv->push(0, *in); }});
    }
  }
  const std::string where = ", ordinary memory";
  const TensorPointer all = make(false, block * world.size());
  const TensorPointer own = make(false, block);
  calls.push_back({"broadcast" + where, all, [&world, all] { world.broadcast(*all, 0); }});
  calls.push_back({"allgather" + where, own, [&world, own, all] { world.allgather(*own, *all); }});
  return calls;
}

class Tuner {
 public:
  Tuner(Communicator& world, const TuneOptions& options)
      : world_(world), options_(options), bar_(options.is_root && options.is_watched) {}

  Tuning run() {
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= kSizeStep) {
      sizes.push_back(bytes);
    }
    for (const std::size_t bytes : sizes) {
      if (is_out_of_time(0)) {
        result_.left_out.push_back(bytes_text(static_cast<double>(bytes)));
      } else {
        tune_size(bytes);
      }
    }
    bar_.clear();
    result_.seconds = clock_.seconds();
    result_.text = world_.learnt_tuning();
    return result_;
  }

 private:
  /// True if less than `more` seconds are left. The same on all ranks.
  bool is_out_of_time(double more) {
    return options_.share(clock_.seconds() + more > options_.seconds ? 1 : 0) != 0;
  }

  void tune_size(std::size_t bytes) {
    std::string left_out;
    const double begun = clock_.seconds();
    std::vector<TrialCall> calls = trial_calls_of(world_, bytes);
    for (TrialCall& trial : calls) {
      // The time for a size is about in proportion to it.
      const double expected = static_cast<double>(kSizeStep) * last_seconds_[trial.name];
      if (is_out_of_time(expected) || !learn(trial, bytes)) {
        left_out += (left_out.empty() ? "" : "; ") + trial.name;
      }
    }
    const std::string size = bytes_text(static_cast<double>(bytes));
    if (!left_out.empty()) result_.left_out.push_back(size + ": " + left_out);
    if (!options_.is_root || options_.is_watched) return;
    std::printf("tuned    %-8s in %.2f s\n", size.c_str(), clock_.seconds() - begun);
    std::fflush(stdout);
  }

  /// Repeats the call until nothing is left to try, or until kMostCalls. False if there was no time
  /// for it.
  bool learn(TrialCall& trial, std::size_t bytes) {
    const Stopwatch clock;
    int verdict = kGoOn;
    for (int calls = 0; verdict == kGoOn;) {
      const int batch = calls == 0 || bytes < kLargeBytes ? kFirstCalls : 2;
      calls += batch;
      for (int i = 0; i < batch; ++i) {
        trial.fresh->fill(1);
        trial.call();
      }
      if (bar_.due()) draw(trial.name, bytes);
      const bool is_late =
          clock_.seconds() > options_.seconds || clock.seconds() > kMostShare * options_.seconds;
      const bool is_done = !world_.is_learning() || calls >= kMostCalls;
      verdict = options_.share(is_done ? kDone : is_late ? kTooLate : kGoOn);
    }
    last_seconds_[trial.name] = clock.seconds();
    note(trial.name, bytes);
    return verdict == kDone;
  }

  /// Notes the rows that are new since the last call of this function: they are about the calls
  /// made since then.
  void note(const std::string& name, std::size_t bytes) {
    for (const std::string& row : rows_of(world_.learnt_tuning())) {
      if (!seen_.insert(row).second) continue;
      result_.tuned.push_back({name, bytes, std::atof(value_in(row, "margin").c_str())});
    }
  }

  void draw(const std::string& name, std::size_t bytes) {
    const double part = std::min(1.0, clock_.seconds() / options_.seconds);
    const std::string tail =
        format("  %s, %s", bytes_text(static_cast<double>(bytes)).c_str(), name.c_str());
    bar_.show(bar_line("tuning", part, tail, terminal_columns()));
  }

  enum : int { kGoOn, kDone, kTooLate };

  Communicator& world_;
  const TuneOptions& options_;
  ProgressBar bar_;
  Stopwatch clock_;
  std::map<std::string, double> last_seconds_;  ///< time of each kind of call, at the size before
  std::set<std::string> seen_;
  Tuning result_;
};

}  // namespace

Tuning tune(Communicator& world, const TuneOptions& options) { return Tuner(world, options).run(); }

std::string to_lines(const Tuning& result, const std::string& file, int ranks) {
  std::vector<std::string> names;  // in the order in which they first occur
  std::map<std::string, std::string> faster;
  for (const Tuned& one : result.tuned) {
    if (one.margin < kNotable) continue;
    if (!faster.contains(one.call)) names.push_back(one.call);
    std::string& line = faster[one.call];
    line += (line.empty() ? "" : ", ") + bytes_text(static_cast<double>(one.bytes)) +
            format(" %.2f", one.margin);
  }
  std::string text = format("tuned    %zu kinds and sizes of calls of %d ranks in %.1f s\n",
                            result.tuned.size(), ranks, result.seconds);
  for (const std::string& size : result.left_out) text += "         no time for " + size + "\n";
  text += names.empty() ? "         the static choice is the fastest of all, or nearly\n"
                        : "         times the speed of the static choice:\n";
  for (const std::string& name : names) {
    text += "           " + name + ": " + faster[name] + "\n";
  }
  return text + "         to use it, start jobs of " + std::to_string(ranks) +
         " ranks with TUTTI_TUNING=" + file + "\n";
}

}  // namespace apps::doctor
