// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "collectives/text/numbers.hpp"

namespace tutti::collectives {

namespace {

/// Ends an operation in the statistics, whether it succeeds or throws.
class OperationEnd {
 public:
  OperationEnd(StatisticsCollector& statistics, Kind kind, std::size_t bytes)
      : statistics_(statistics), kind_(kind), bytes_(bytes) {}
  ~OperationEnd() { statistics_.leave_operation(kind_, bytes_, time_); }
  /// Sets the time of the end, if it is already known.
  void set_time(std::uint64_t time) { time_ = time; }
  OperationEnd(const OperationEnd&) = delete;
  OperationEnd& operator=(const OperationEnd&) = delete;

 private:
  StatisticsCollector& statistics_;
  Kind kind_;
  std::size_t bytes_;
  std::uint64_t time_ = 0;
};

/// Throws for sums that MPI cannot make. All ranks refuse them alike; no other exchange is used
/// instead.
void require_mpi_types(const Operation& operation) {
  for (const Segment& segment : operation.segments) {
    if (size_of(segment.dtype) != 2) continue;
    throw Error(ErrorCode::invalid_argument,
                std::string("MPI cannot reduce ") + to_string(segment.dtype) +
                    "; choose another exchange than mpi in TUTTI_ALGORITHMS");
  }
}

/// Returns the time in nanoseconds, whose length is the same on all nodes.
std::uint64_t time_between_nodes(const Waiter& waiter) {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(waiter.now().time_since_epoch()).count());
}

}  // namespace

Engine::Engine(NodeMemory memory, Topology topology, const Settings& settings, Transport* transport,
               AllocateShared allocate_shared, const Tuning& tuning)
    : memory_(std::move(memory)),
      topology_(std::move(topology)),
      tuning_(tuning),
      wide_(settings.reproducible && topology_.num_nodes() > 1),
      is_one_node_(topology_.num_nodes() == 1),
      logs_calls_(settings.log >= LogLevel::debug),
      plan_(plan_for(topology_.nodes, settings.reproducible)),
      waiter_(memory_, topology_, settings, transport),
      call_(memory_, topology_, waiter_, tuning_, allocate_shared),
      learner_(tuning_, topology_.local_size(), memory_.reader != nullptr),
      router_(topology_, tuning_, learner_),
      disagreement_(call_, transport),
      messages_(call_, tuning_, transport, std::move(allocate_shared), statistics_) {
  if (topology_.num_nodes() == 1) return;
  if (topology_.local_rank == 0) {
    agreement_ = std::make_unique<Agreement>(topology_, plan_, waiter_, *transport, tuning_);
  }
  if (topology_.local_rank < topology_.num_lanes()) {
    lane_ = std::make_unique<LaneExchange>(topology_, plan_, waiter_, *transport, tuning_);
  }
}

void Engine::start(const Operation& operation) {
  check_usable();
  messages_.complete();
  const std::uint64_t begun = statistics_.enter_operation();
  if (is_one_node_ && call_.prepare_tiny(operation)) {
    call_.begin(begun);
    return call_.announcement().announce();
  }
  prepare(operation);
  call_.begin(begun);
  announced_at_ = is_one_node_ ? ticks() : time_between_nodes(waiter_);
  const bool moves_in_node = call_.route() == Route::by_path && is_one_node_;
  call_.announcement().announce(moves_in_node ? stage_first(call_, planned_, tuning_) : 0);
}

/// Does everything that may fail on this rank alone, before the sequence number is drawn. After an
/// error this rank makes a refusal with that number instead, which tells the others.
void Engine::prepare(const Operation& operation) {
  const auto error = caught([&] {
    const bool by_mpi = tuning_.exchange == Exchange::mpi && topology_.num_nodes() > 1;
    if (by_mpi && operation.kind == Kind::allreduce) require_mpi_types(operation);
    call_.prepare(operation, wide_, router_);
    planned_ = {};
    if (call_.route() != Route::by_path || !is_one_node_) return;
    const CallClass own_class = call_.announcement().own_class();
    if (own_class.inputs != Location::shared) planned_ = learner_.plan(own_class);
  });
  if (!error) return;
  const OperationEnd end(statistics_, operation.kind, 0);
  std::string text = error->text;
  static_cast<void>(caught([&] { text = operation.describe() + ": " + text; }));
  throw_on_all_ranks(error->code, text);
}

/// Runs `body`, and makes an error of this rank a failure of the group: in the middle of a call,
/// the others wait for this rank's next step. An error that the program's code throws may be known
/// to the ranks of another group, but not to this one.
template <class Body>
void Engine::or_fail(Body body) {
  catching(body, [&](const LocalError& error) {
    if (error.scope == ErrorScope::failed && failed()) throw;
    fail(error);
  });
}

bool Engine::finish() {
  OperationEnd end(statistics_, call_.operation().kind, call_.layout().value_bytes());
  Outcome outcome = Outcome::done;
  or_fail([&] {
    if (is_one_node_ && !logs_calls_ && call_.announcement().finds_all_alike()) {
      return end.set_time(complete_small());
    }
    const NamedCall named(waiter_, {call_.sequence(), call_.operation().describe});
    outcome = log().writes(LogLevel::debug) ? carry_out_logged() : carry_out();
  });
  SpanLog* const spans = statistics_.spans();
  if (spans != nullptr && call_.layout().total() > 0) {
    spans->note_route(static_cast<std::uint8_t>(1 + static_cast<int>(call_.route())));
  }
  if (outcome == Outcome::refused) disagreement_.throw_report();
  return outcome == Outcome::done;
}

/// Completes a small call in one node once all ranks have announced it. Returns its end in ticks,
/// or 0 if the clock was not read. A tiny sum takes less time than reading the clock, so its call
/// ends when the ranks meet.
std::uint64_t Engine::complete_small() {
  const std::uint64_t met =
      statistics_.met(call_.announcement().waiting_since(), call_.announcement().last_rank());
  learn_last_time();
  const bool is_quick = call_.layout().total() == 0 || call_.tiny().reduce_to_self();
  if (!is_quick) {
    call_.mark(Phase::moving);
    reduce_inline(call_);
  }
  call_.mark(Phase::done);
  return is_quick ? met : 0;
}

void Engine::await(FunctionRef<bool()> ready, FunctionRef<std::string()> what) {
  // The event wakes no sleeper, so a poll function is set, which keeps sleeps short.
  const auto nothing = [] {};
  const FunctionRef<void()> poll(nothing);
  const NamedCall named(waiter_, {call_.sequence(), what});
  const PollGuard guard(waiter_, &poll);
  waiter_.until(ready, [] { return std::vector<int>(); });
}

void Engine::check_peers(FunctionRef<std::string()> what) {
  const NamedCall named(waiter_, {call_.sequence(), what});
  waiter_.check_peers();
}

void Engine::watch(const StopFlag& stop) {
  call_.announcement().watch(stop);
  waiter_.watch(&stop);
}

Engine::Outcome Engine::carry_out_logged() {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = carry_out();
  if (outcome == Outcome::refused) return outcome;
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  log().write(LogLevel::debug, "call " + std::to_string(call_.sequence()) + ", " +
                                   call_.operation().describe() + ": " + fixed(time.count(), 1) +
                                   " us, " + to_string(call_.route()));
  return outcome;
}

bool Engine::meet() {
  call_.announcement().wait_for_all();
  call_.settle_route();
  const bool alone = topology_.num_nodes() == 1;
  const bool agreed = alone ? call_.announcement().node_agrees() : agree_between_nodes();
  learn_last_time();
  statistics_.met(call_.announcement().waiting_since(),
                  alone ? call_.announcement().last_rank() : call_.agreement_line().last_rank);
  const bool stop =
      alone ? call_.announcement().stop_requested() : call_.agreement_line().stop_requested != 0;
  if (stop && !stop_requested_) {
    stop_requested_ = true;
    waiter_.watch(nullptr);  // all ranks have announced, and will finish together
  }
  return agreed;
}

Engine::Outcome Engine::carry_out() {
  if (!meet()) {
    return disagreement_.explain() ? Outcome::differs : Outcome::refused;
  }
  call_.mark(Phase::moving);
  if (call_.layout().total() > 0) reduce();
  call_.mark(Phase::done);
  return Outcome::done;
}

void Engine::reduce() {
  switch (call_.route()) {
    case Route::tiny:
    case Route::small:
      return is_one_node_ ? reduce_inline(call_) : deliver_sums_of_agreement();
    case Route::alone:
      return reduce_alone(call_, tuning_);
    case Route::announced:
    case Route::halved:
    case Route::by_path:
      return is_one_node_ ? reduce_by_path() : reduce_between_nodes();
  }
}

/// Reduces in one node. Its duration is reported to the others in the next announcement.
void Engine::reduce_by_path() {
  const bool is_announced = is_carried(call_.route());
  const Path path = learner_.choose(call_.announcement().call_class(), is_announced);
  if (is_announced) {
    reduce_inline(call_);
  } else {
    reduce_in_node(call_, path, tuning_);
  }
  call_.announcement().report_time(CallTime::between(announced_at_, ticks()));
}

void Engine::deliver_sums_of_agreement() {
  if (agreement_ == nullptr) return call_.data().deliver_small(call_.agreement_line().payload);
  const Agreed& agreed = agreement_->last();
  if (agreed.is_delivered) return;
  agreed.operands.empty() ? call_.data().deliver_small(agreed.sum)
                          : call_.data().deliver_sum(agreed.operands);
}

/// Reduces on several nodes. Calls with compression always take the same path, because their
/// results depend on how data is cut. The time of a call is measured from the agreement of the
/// nodes, so that late nodes do not count; or from the announcement, if inputs may travel with the
/// handshakes.
void Engine::reduce_between_nodes() {
  if (call_.operation().packing != nullptr) return reduce_in_lanes(call_, {}, tuning_, lane_.get());
  const CallClass call_class = class_between_nodes(tuning_, call_.operation(), call_.layout());
  const std::uint64_t begun =
      call_class.may_be_carried() ? announced_at_ : time_between_nodes(waiter_);
  const bool is_announced = is_carried(call_.route());
  const Path path = learner_.choose(call_class, is_announced);
  if (is_announced) {
    deliver_sums_of_agreement();
  } else {
    reduce_in_lanes(call_, path, tuning_, lane_.get());
  }
  call_.announcement().report_time(CallTime::between(begun, time_between_nodes(waiter_)));
}

/// Reports the duration of the last call to the learner. All ranks of the group do so in the same
/// call, whatever its outcome.
void Engine::learn_last_time() {
  if (!learner_.awaits_time()) return;
  learner_.observe(topology_.num_nodes() == 1 ? call_.announcement().longest_time()
                                              : call_.agreement_line().last_time);
}

/// Agrees with the other nodes: the first rank exchanges messages with them, and the other ranks of
/// the node read the result, and a small sum, from its line.
bool Engine::agree_between_nodes() {
  call_.announcement().wait_for_other_nodes();
  AgreementLine& line = call_.agreement_line();
  if (agreement_ != nullptr) {
    const Agreed& agreed = agreement_->reach(call_);
    const bool has_sum = is_carried(call_.route()) && call_.layout().total() > 0;
    if (agreed.all_alike && has_sum && memory_.size() > 1) {
      std::memcpy(line.payload, agreed.sum, call_.layout().total());
    }
    line.agreed = agreed.all_alike ? 1 : 0;
    line.stop_requested = agreed.stop_requested ? 1 : 0;
    line.last_rank = agreed.last_rank;
    line.last_time = agreed.last_time;
    line.sequence.store(call_.sequence(), std::memory_order_release);
    waiter_.wake();
    return agreed.all_alike;
  }
  waiter_.until([&] { return line.sequence.load(std::memory_order_acquire) == call_.sequence(); },
                [&] { return std::vector<int>{topology_.local_ranks().front()}; });
  return line.agreed != 0;
}

void Engine::throw_on_all_ranks(ErrorCode code, const std::string& why) {
  check_usable();
  messages_.complete();
  const auto describe = [&] { return "a call that is refused: " + why; };
  const Operation refused{.kind = Kind::refusal, .segments = {}, .describe = describe};
  call_.prepare(refused, wide_, router_);
  call_.begin(statistics_.enter_operation());
  const OperationEnd end(statistics_, Kind::refusal, 0);
  const NamedCall named(waiter_, {call_.sequence(), call_.operation().describe});
  call_.announcement().announce_refusal();
  or_fail([&] {
    static_cast<void>(meet());
    disagreement_.explain_refusal(code, why);
  });
  disagreement_.throw_report();
}

}  // namespace tutti::collectives
