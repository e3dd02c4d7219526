// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/async_round.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include "collectives/job/fused_layout.hpp"
#include "runtime/base/digest.hpp"

namespace tutti {

namespace {

// A batch has as much data as the link transfers in this time, which is the longest wait of a more
// urgent job.
constexpr double kSecondsPerBatch = 0.010;
// The speed of the link that is assumed until a batch has been measured.
constexpr double kFirstGuess = 100e6;      // bytes per second, between nodes
constexpr double kFirstGuessInNode = 4e9;  // in a node
// If ranks have no jobs in common, they begin another round after this time.
constexpr auto kNapInVain = std::chrono::milliseconds(1);
constexpr auto kNapOfWaiter = std::chrono::microseconds(50);  // the same while a thread waits
// The time of one turn counts up to this limit, so that a job which was suspended does not exceed
// its deadline.
constexpr auto kMostCounted = std::chrono::seconds(1);
constexpr double kWeightOfNewest = 0.25;
// Smaller batches tell little about the link.
constexpr std::size_t kLeastTimed = std::size_t{16} << 10;
// Bytes that a share has in flight between two nodes: 16 pieces of 32 KiB, see lane.cpp. A nap
// takes as long as half of them.
constexpr double kNapBytes = 256 << 10;
constexpr auto kLeastNap = std::chrono::microseconds(50);
constexpr auto kMostNap = std::chrono::milliseconds(2);

}  // namespace

AsyncRound::AsyncRound(collectives::Engine& engine, AsyncQueues& queues, AsyncWaiting& waiting,
                       const Settings& settings)
    : engine_(engine),
      queues_(queues),
      waiting_(waiting),
      deadline_(settings.timeout.count() == 0
                    ? Clock::duration::max()
                    : std::chrono::duration_cast<Clock::duration>(settings.timeout)),
      bytes_per_second_(engine.topology().num_nodes() > 1 ? kFirstGuess : kFirstGuessInNode) {}

void AsyncRound::turn(bool is_beside) {
  is_beside_ = is_beside;
  const auto begin = Clock::now();
  if (take_turn()) {
    in_vain_ = {};
  } else {
    napped_in_vain(begin);
  }
}

/// Carries out a round and its batch. Returns false if the ranks have no jobs in common.
bool AsyncRound::take_turn() {
  begin_step();
  const std::vector<std::uint8_t> own = own_counts();
  std::vector<std::uint8_t> counts = own;
  const std::uint64_t begun = collectives::ticks();
  meet(counts);
  step_.busy += collectives::ticks() - begun;
  if (counts.back() == 0) expire(own);
  const std::uint8_t width = counts[counts.size() - kExtraBytes];
  const std::size_t most = width == 0 ? 0 : std::size_t{1} << (width - 1);
  // One byte of the client, and one of its queue.
  const bool is_only_queue = counts.size() == 2 + kExtraBytes;
  const AsyncBatch batch =
      choose_batch(queues_.common(counts, engine_.statistics().waited_for()), most, is_only_queue);
  queues_.drop_gone(counts);
  if (!batch.queues.empty()) carry_out(batch);
  return !batch.queues.empty();
}

/// Returns the counts of the queues, the size of a batch by learn_speed(), and the time-out flag by
/// napped_in_vain().
std::vector<std::uint8_t> AsyncRound::own_counts() {
  std::vector<std::uint8_t> counts = queues_.counts();
  const auto bytes = static_cast<std::uint64_t>(bytes_per_second_ * kSecondsPerBatch);
  counts.push_back(static_cast<std::uint8_t>(std::bit_width(bytes)));
  counts.push_back(in_vain_ < deadline_ ? 1 : 0);
  return counts;
}

/// Replaces each count by the minimum of all ranks.
void AsyncRound::meet(std::vector<std::uint8_t>& counts) {
  const Patiently patiently(engine_, waiting_.patience, is_beside_);
  auto* bytes = reinterpret_cast<std::byte*>(counts.data());
  const collectives::Segment segment{bytes, bytes, counts.size(), DType::uint8};
  const auto describe = [&] {
    return "agreement on asynchronous calls (this rank has " + queues_.describe_ready() + ")";
  };
  const collectives::CountedCall counted(engine_.statistics(), "async_agreement");
  engine_.run({.kind = collectives::Kind::allreduce,
               .reduce = ReduceOp::min,
               .digest = queues_.digest(),
               .segments = {&segment, 1},
               .describe = describe});
}

void AsyncRound::carry_out(const AsyncBatch& batch) {
  bool is_complete = true;
  const std::uint64_t begun = collectives::ticks();
  const std::exception_ptr error = make_call(batch, is_complete);
  step_.busy += collectives::ticks() - begun;
  if (error != nullptr && engine_.failed()) std::rethrow_exception(error);
  if (error != nullptr) confirm(batch.queues);
  if (error != nullptr && batch.queues.size() > 1) return carry_out_apart(batch.queues);
  if (error != nullptr || is_complete) end(batch.queues, error);
}

/// Carries out a batch, and returns its error, or null. `is_complete` is false if slices remain.
std::exception_ptr AsyncRound::make_call(const AsyncBatch& batch, bool& is_complete) {
  AsyncClient* client = nullptr;
  const std::vector<AsyncJob*> jobs = queues_.jobs_of(batch, client);
  const std::uint64_t begun = collectives::ticks();
  std::size_t bytes = 0;
  for (AsyncJob* job : jobs) {
    if (job->times.begun == 0) job->times.begun = begun;
    bytes += job->bytes;
  }
  const auto begin = Clock::now();
  try {
    const Patiently patiently(engine_, waiting_.patience, is_beside_);
    if (batch.slice == 0) {
      client->carry_out(jobs);
      learn_speed(bytes, Clock::now() - begin);
    } else {
      client->carry_slice(*jobs.front(), batch.slice);
      jobs.front()->done += batch.slice;
      is_complete = jobs.front()->done == bytes;
      // Measured without an update.
      if (!is_complete) learn_speed(batch.slice, Clock::now() - begin);
    }
    step_.waited += count_waits();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

/// Carries out the jobs of a batch separately, after an error that has changed nothing. Jobs share
/// a batch by chance, so those without the error should complete.
void AsyncRound::carry_out_apart(std::span<const AsyncQueue> batch) {
  for (const AsyncQueue& place : batch) carry_out({.queues = {place}});
}

/// Ends the jobs of a batch. If calls were given up but have completed before anybody noticed,
/// other calls continue.
void AsyncRound::end(std::span<const AsyncQueue> batch, const std::exception_ptr& error) {
  queues_.end(batch, error, step_);
  const AsyncQueues::Lock lock = queues_.lock();
  if (!queues_.has_given_up()) waiting_.patience.is_given_up.store(false);
}

/// Begins a step of asynchronous calls. The previous one is reported only now, because waits for a
/// step end after it.
void AsyncRound::begin_step() {
  if (step_.end != 0) tell_step();
  if (step_.begin != 0) return;
  step_.begin = queues_.first_submitted(collectives::ticks());
}

void AsyncRound::tell_step() {
  step_.waited += count_waits();
  collectives::SpanLog* const spans = engine_.statistics().spans();
  if (spans != nullptr) spans->add(step_);
  step_ = {};
}

/// Counts the time in ticks that the program has waited since the last count.
std::uint64_t AsyncRound::count_waits() {
  const std::uint64_t waits = waiting_.waits.exchange(0);
  const std::uint64_t ticks = waiting_.waited_ticks.exchange(0);
  if (waits != 0) engine_.statistics().count_async_waits(waits, ticks);
  return ticks;
}

/// A lack of memory for statistics does not end the job.
void AsyncRound::settle() noexcept {
  try {
    if (step_.end != 0) {
      tell_step();
    } else {
      count_waits();
    }
  } catch (const std::bad_alloc&) {
  }
}

/// Sleeps until a job arrives, or until it is time for another round. `begin`: the beginning of the
/// turn.
void AsyncRound::napped_in_vain(Clock::time_point begin) {
  {
    AsyncQueues::Lock lock = queues_.lock();
    const std::uint64_t seen = queues_.submissions();
    const bool is_awaited = waiting_.patience.waiters.load() != 0;
    queues_.came().wait_for(
        lock, is_awaited ? Clock::duration(kNapOfWaiter) : Clock::duration(kNapInVain),
        [&] { return waiting_.patience.is_given_up.load() || queues_.submissions() != seen; });
  }
  in_vain_ += std::min<Clock::duration>(Clock::now() - begin, kMostCounted);
  if (in_vain_ - asked_at_ < collectives::kInterruptedEvery && in_vain_ >= asked_at_) return;
  asked_at_ = in_vain_;
  if (collectives::interrupted()) {
    engine_.fail(collectives::LocalError{
        ErrorCode::communication,
        "a wait for asynchronous calls that other ranks have not made was interrupted"});
  }
}

/// After an error on all ranks that leaves the group usable: checks that all ranks take the same
/// jobs from their queues. Otherwise they cannot continue.
void AsyncRound::confirm(std::span<const AsyncQueue> batch) {
  const Patiently patiently(engine_, waiting_.patience, is_beside_);
  Digest digest;
  for (const AsyncQueue& place : batch) {
    digest.add(std::uint64_t{place.client}).add(std::uint64_t{place.queue});
  }
  const auto describe = [&] {
    return "asynchronous call of " + queues_.describe(batch) +
           ", whose turn it was here (every rank gives a call equal priority)";
  };
  engine_.run({.kind = collectives::Kind::agreement,
               .digest = digest.value(),
               .segments = {},
               .describe = describe});
}

/// Throws, after some rank has waited for too long; all ranks call it. They exchange their counts,
/// and whether a thread waits and can report the error: a program that is ending may have none.
void AsyncRound::expire(std::vector<std::uint8_t> own) {
  const Patiently patiently(engine_, waiting_.patience, is_beside_);
  const collectives::Topology& topology = engine_.topology();
  const int ranks = topology.size;
  own.back() = waiting_.patience.waiters.load() != 0 ? 1 : 0;
  std::vector<std::uint8_t> all(own.size() * static_cast<std::size_t>(ranks));
  const auto segments = collectives::allgather_segments(
      ranks, reinterpret_cast<const std::byte*>(own.data()),
      reinterpret_cast<std::byte*>(all.data()), own.size(), DType::uint8);
  const auto describe = [] { return std::string("report of asynchronous calls that do not come"); };
  engine_.run({.kind = collectives::Kind::allgather, .segments = segments, .describe = describe});
  int reporter = 0;
  while (reporter < ranks && all[static_cast<std::size_t>(reporter + 1) * own.size() - 1] == 0) {
    ++reporter;
  }
  if (reporter == ranks) reporter = 0;
  const std::string text =
      collectives::name_of(topology, reporter) + ": asynchronous calls have waited " +
      collectives::in_seconds(deadline_) + " for the same call on all ranks. " +
      queues_.describe_missing(all) + ". Make the same calls on every rank, or raise TUTTI_TIMEOUT";
  engine_.raise_failure(ErrorCode::timeout, text, reporter);
  throw Error(ErrorCode::timeout, text, ErrorScope::failed, topology.rank == reporter);
}

void AsyncRound::learn_speed(std::size_t bytes, Clock::duration time) {
  if (bytes < kLeastTimed) return;
  const double seconds = std::chrono::duration<double>(time).count();
  const double speed = static_cast<double>(bytes) / std::max(seconds, 1e-6);
  bytes_per_second_ += kWeightOfNewest * (speed - bytes_per_second_);
  const std::chrono::duration<double> nap(kNapBytes / bytes_per_second_);
  const auto bounded = std::clamp<Clock::duration>(std::chrono::duration_cast<Clock::duration>(nap),
                                                   kLeastNap, kMostNap);
  waiting_.patience.nap.store(std::chrono::nanoseconds(bounded).count());
}

}  // namespace tutti
