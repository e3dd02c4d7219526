// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <string_view>

namespace tutti::collectives {

namespace {

/// While it lives, messages of the waiter name the call.
class NamedCall {
 public:
  NamedCall(Waiter& waiter, const Call& call)
      : waiter_(waiter), progress_{call.sequence(), call.operation().describe} {
    waiter_.set_call(&progress_);
  }
  ~NamedCall() { waiter_.set_call(nullptr); }
  NamedCall(const NamedCall&) = delete;
  NamedCall& operator=(const NamedCall&) = delete;

 private:
  Waiter& waiter_;
  CallInProgress progress_;
};

/// The end of an operation, however it ends.
class OperationEnd {
 public:
  OperationEnd(StatisticsCollector& statistics, Kind kind, std::size_t bytes)
      : statistics_(statistics), kind_(kind), bytes_(bytes) {}
  ~OperationEnd() { statistics_.leave_operation(kind_, bytes_, time_); }
  /// When it was, if that has been looked up.
  void set_time(std::uint64_t time) { time_ = time; }
  OperationEnd(const OperationEnd&) = delete;
  OperationEnd& operator=(const OperationEnd&) = delete;

 private:
  StatisticsCollector& statistics_;
  Kind kind_;
  std::size_t bytes_;
  std::uint64_t time_ = 0;
};

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
      transport_(transport),
      allocate_shared_(std::move(allocate_shared)) {
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
  complete_message();
  const std::uint64_t begun = statistics_.enter_operation();
  if (is_one_node_ && call_.prepare_tiny(operation)) {
    call_.begin(begun);
    return call_.announcement().announce(/*with_inputs=*/true);
  }
  const bool with_inputs = prepare(operation);
  call_.begin(begun);
  announced_at_ = topology_.num_nodes() == 1 ? ticks() : time_between_nodes();
  call_.announcement().announce(with_inputs);
}

/// What may fail on this rank alone does so before the sequence number is drawn: this rank then
/// makes another call of that number, which tells the others. True if the inputs are to travel with
/// the announcement.
bool Engine::prepare(const Operation& operation) {
  bool with_inputs = false;
  const auto error = caught([&] {
    require_mpi_types(operation);
    call_.prepare(operation, wide_);
    with_inputs = announces_inputs();
  });
  if (!error) return with_inputs;
  const OperationEnd end(statistics_, operation.kind, 0);
  std::string text = error->text;
  static_cast<void>(caught([&] { text = operation.describe() + ": " + text; }));
  throw_on_all_ranks(error->code, text);
}

/// Whether inputs travel with the announcement that need not. Between nodes the size alone decides,
/// up to a size from which that is learnt, and one rank announces nothing to anybody.
bool Engine::announces_inputs() {
  if (topology_.num_nodes() > 1) {
    by_halves_ = false;
    if (!call_.announcement().is_inline_learnt()) return false;
    const Path& path = learner_.plan(call_.announcement().class_between_nodes());
    by_halves_ = path == kHalved;
    return path.inputs == Inputs::announced;
  }
  if (topology_.size == 1 || call_.announcement().fits_inline() ||
      !call_.announcement().may_be_inline() || call_.layout().total() > kInlineInNode) {
    return false;
  }
  return learner_.plan(call_.announcement().own_class()).inputs == Inputs::announced;
}

/// What MPI cannot sum is refused, on all ranks alike, and not summed in another way.
void Engine::require_mpi_types(const Operation& operation) const {
  const bool by_mpi = tuning_.exchange == Exchange::mpi && topology_.num_nodes() > 1;
  if (!by_mpi || operation.kind != Kind::allreduce) return;
  for (const Segment& segment : operation.segments) {
    if (size_of(segment.dtype) != 2) continue;
    throw Error(ErrorCode::invalid_argument,
                std::string("MPI cannot reduce ") + to_string(segment.dtype) +
                    "; choose another exchange than mpi in TUTTI_ALGORITHMS");
  }
}

/// What goes wrong in the middle of a call is everybody's: the others wait for this rank's next
/// step, which will not come. An error that code of the program throws may be known to the ranks of
/// another group, and is news to this one.
template <class Body>
auto Engine::or_fail(Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.scope() == ErrorScope::failed && failed()) throw;
    fail(LocalError{error.code(), error.what()});
  } catch (const std::bad_alloc&) {
    fail(LocalError{ErrorCode::out_of_memory, "no memory for a call that has begun"});
  } catch (const std::exception& error) {
    fail_by_exception(error.what());
  } catch (...) {
    fail_by_exception("an exception of unknown type");
  }
}

bool Engine::finish() {
  OperationEnd end(statistics_, call_.operation().kind, call_.layout().value_bytes());
  const Outcome outcome = or_fail([&] {
    if (is_one_node_ && !logs_calls_ && call_.announcement().finds_all_alike()) {
      end.set_time(complete_small());
      return Outcome::done;
    }
    const NamedCall named(waiter_, call_);
    return log().writes(LogLevel::debug) ? carry_out_logged() : carry_out();
  });
  if (outcome == Outcome::refused) throw_report();
  return outcome == Outcome::done;
}

/// What is left of a small call in one node once all ranks are there. When it ended, in ticks; 0 if
/// the clock was not read. A tiny sum takes less time than a look at the clock: its call ends when
/// the ranks meet.
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

/// In a handler: an optimizer of the program's threw. The error has the exception nested in it.
void Engine::fail_by_exception(const char* what) {
  const std::string text = name_of(topology_, topology_.rank) + ": " + what;
  const bool is_first = waiter_.raise_failure(ErrorCode::user_code, text);
  std::throw_with_nested(Error(ErrorCode::user_code, text, ErrorScope::failed, is_first));
}

void Engine::await(FunctionRef<bool()> ready, FunctionRef<std::string()> what) {
  const CallInProgress progress{call_.sequence(), what};
  // Nobody wakes this rank when it is ready: something to poll keeps its sleeps short.
  const auto nothing = [] {};
  const FunctionRef<void()> poll(nothing);
  const auto end = [&] {
    waiter_.set_call(nullptr);
    waiter_.set_poll(nullptr);
  };
  waiter_.set_call(&progress);
  waiter_.set_poll(&poll);
  try {
    waiter_.until(ready, [] { return std::vector<int>(); });
  } catch (...) {
    end();
    throw;
  }
  end();
}

void Engine::check_peers(FunctionRef<std::string()> what) {
  const CallInProgress progress{call_.sequence(), what};
  waiter_.set_call(&progress);
  try {
    waiter_.check_peers();
  } catch (...) {
    waiter_.set_call(nullptr);
    throw;
  }
  waiter_.set_call(nullptr);
}

void Engine::fail(const Error& error) {
  if (error.scope() != ErrorScope::caller) throw error;
  fail(LocalError{error.code(), error.what()});
}

void Engine::fail(const LocalError& error) {
  waiter_.fail(error.code, name_of(topology_, topology_.rank) + ": " + error.text);
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
  char text[40];
  std::snprintf(text, sizeof text, ": %.1f us", time.count());
  log().write(LogLevel::debug, "call " + std::to_string(call_.sequence()) + ", " +
                                   call_.operation().describe() + text);
  return outcome;
}

bool Engine::meet() {
  call_.announcement().wait_for_all();
  const bool alone = topology_.num_nodes() == 1;
  const bool agreed = alone ? call_.announcement().node_agrees() : agree_between_nodes();
  learn_last_time();
  statistics_.met(call_.announcement().waiting_since(),
                  alone ? call_.announcement().last_rank() : call_.agreement_line().last_rank);
  const bool stop =
      alone ? call_.announcement().stop_requested() : call_.agreement_line().stop_requested != 0;
  if (stop && !stop_requested_) {
    stop_requested_ = true;
    waiter_.watch(nullptr);  // all ranks are there, and will come to a good end together
  }
  return agreed;
}

Engine::Outcome Engine::carry_out() {
  if (!meet()) {
    const RankStatement own = statement_of(0, call_.operation().describe());
    return exchange_statements(own) ? Outcome::differs : Outcome::refused;
  }
  call_.mark(Phase::moving);
  if (call_.layout().total() > 0) reduce();
  call_.mark(Phase::done);
  return Outcome::done;
}

void Engine::reduce() {
  if (topology_.num_nodes() > 1) {
    if (call_.announcement().is_inline() && !call_.announcement().is_inline_learnt()) {
      deliver_sums_of_agreement();
    } else {
      reduce_between_nodes();
    }
  } else if (call_.announcement().fits_inline()) {
    reduce_inline(call_);
  } else if (topology_.size == 1) {
    reduce_alone(call_, tuning_);
  } else {
    reduce_by_path();
  }
}

/// The others are told in the next announcement what it took.
void Engine::reduce_by_path() {
  const Path path =
      learner_.choose(call_.announcement().call_class(), call_.announcement().is_inline());
  if (call_.announcement().is_inline()) {
    reduce_inline(call_);
  } else {
    reduce_in_node(call_, path, tuning_);
  }
  call_.announcement().report_time(CallTime::between(announced_at_, ticks()));
}

void Engine::deliver_sums_of_agreement() {
  if (agreement_ != nullptr && agreement_->has_delivered()) return;
  if (agreement_ != nullptr && !agreement_->last_operands().empty()) {
    return call_.data().deliver_sum(agreement_->last_operands());
  }
  call_.data().deliver_small(agreement_ != nullptr ? agreement_->result()
                                                   : call_.agreement_line().payload);
}

std::uint64_t Engine::time_between_nodes() const {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(waiter_.now().time_since_epoch()).count());
}

/// What packed sums are depends on how they are cut, so these keep to one way. Counted from when
/// the nodes have agreed, so that it does not matter how late one of them comes; or, where inputs
/// may travel with the handshakes, from the announcement.
void Engine::reduce_between_nodes() {
  if (call_.operation().packing != nullptr) return reduce_in_lanes(call_, {}, tuning_, lane_.get());
  const std::uint64_t begun =
      call_.announcement().is_inline_learnt() ? announced_at_ : time_between_nodes();
  const CallClass call_class = call_.announcement().class_between_nodes();
  const Path path = learner_.choose(call_class, call_.announcement().is_inline());
  if (call_.announcement().is_inline()) {
    deliver_sums_of_agreement();
  } else {
    reduce_in_lanes(call_, path, tuning_, lane_.get());
  }
  call_.announcement().report_time(CallTime::between(begun, time_between_nodes()));
}

/// Every rank of the group does, in the same call, whichever way that call ends for it.
void Engine::learn_last_time() {
  if (!learner_.awaits_time()) return;
  learner_.observe(topology_.num_nodes() == 1 ? call_.announcement().longest_time()
                                              : call_.agreement_line().last_time);
}

Agreement::Payload Engine::payload_of_handshakes() const {
  if (!call_.announcement().is_inline() || call_.layout().total() == 0)
    return Agreement::Payload::none;
  return by_halves_ ? Agreement::Payload::halves : Agreement::Payload::whole;
}

/// The first rank asks the other nodes; the others read the answer, and a small result, from it.
bool Engine::agree_between_nodes() {
  call_.announcement().wait_for_other_nodes();
  AgreementLine& line = call_.agreement_line();
  if (agreement_ != nullptr) {
    const Agreement::Payload payload = payload_of_handshakes();
    const bool agreed = agreement_->reach(call_, payload);
    if (agreed && payload != Agreement::Payload::none && memory_.size() > 1) {
      std::memcpy(line.payload, agreement_->result(), call_.layout().total());
    }
    line.agreed = agreed ? 1 : 0;
    line.stop_requested = agreement_->stop_requested() ? 1 : 0;
    line.last_rank = agreement_->last_rank();
    line.last_time = agreement_->last_time();
    line.sequence.store(call_.sequence(), std::memory_order_release);
    waiter_.wake();
    return agreed;
  }
  waiter_.until([&] { return line.sequence.load(std::memory_order_acquire) == call_.sequence(); },
                [&] { return std::vector<int>{topology_.local_ranks().front()}; });
  return line.agreed != 0;
}

void Engine::throw_on_all_ranks(ErrorCode code, const std::string& why) {
  check_usable();
  complete_message();
  const auto describe = [&] { return "a call that is refused: " + why; };
  const Operation refused{.kind = Kind::refusal, .segments = {}, .describe = describe};
  call_.prepare(refused, wide_);
  call_.begin(statistics_.enter_operation());
  const OperationEnd end(statistics_, Kind::refusal, 0);
  const NamedCall named(waiter_, call_);
  call_.announcement().announce_refusal();
  or_fail([&] {
    static_cast<void>(meet());
    static_cast<void>(exchange_statements(statement_of(static_cast<std::uint32_t>(code) + 1, why)));
  });
  throw_report();
}

RankStatement Engine::statement_of(std::uint32_t refused, const std::string& text) const {
  RankStatement statement{topology_.rank, refused, call_.signature(), {}};
  const std::size_t length = std::min(text.size(), kTextBytes - 1);
  std::memcpy(statement.text, text.data(), length);
  return statement;
}

/// Step 1: every rank writes its statement. Step 2: the first rank has written the report. True if
/// there is nothing to throw: see MismatchReport::only_checks_differ.
bool Engine::exchange_statements(const RankStatement& own) {
  ControlBlock& mine = memory_.control();
  ControlBlock& first = memory_.first();
  std::memcpy(mine.text, own.text, kTextBytes);
  mine.text_code = own.refused;
  call_.steps().signal();
  if (topology_.local_rank == 0) {
    call_.steps().wait_for_ranks(0, memory_.size());
    const MismatchReport report = find_mismatch(topology_, call_.sequence(), collect_statements());
    const std::size_t length = std::min(report.text.size(), kReportBytes - 1);
    std::memcpy(first.report_text, report.text.data(), length);
    first.report_text[length] = '\0';
    first.report_code =
        report.only_checks_differ ? kOnlyChecksDiffer : static_cast<std::uint32_t>(report.code);
    call_.steps().signal();
  } else {
    call_.steps().wait_for(0, 2);
  }
  call_.mark(Phase::refused);
  return first.report_code == kOnlyChecksDiffer;
}

void Engine::throw_report() {
  const ControlBlock& first = memory_.first();
  throw Error(static_cast<ErrorCode>(first.report_code), first.report_text, ErrorScope::agreed,
              /*reporter=*/topology_.rank == 0);
}

std::vector<RankStatement> Engine::collect_statements() {
  std::vector<RankStatement> statements(topology_.local_size());
  for (int i = 0; i < topology_.local_size(); ++i) {
    const ControlBlock& peer = memory_.peers[i].control();
    statements[i].rank = topology_.local_ranks()[i];
    statements[i].refused = peer.text_code;
    statements[i].signature = call_.line(i).signature;
    std::memcpy(statements[i].text, peer.text, kTextBytes);
  }
  return agreement_ == nullptr ? statements : agreement_->exchange(statements);
}

}  // namespace tutti::collectives
