// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/node_observer.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <sched.h>
#include <unistd.h>

#include "collectives/job/plain_text.hpp"
#include "runtime/base/unique_handle.hpp"

namespace tutti {

using collectives::PlainText;
using collectives::RecordBook;

namespace {

constexpr std::size_t kMostObservers = 64;
constexpr std::size_t kCallsOfPeers = 8;

/// The observers that a signal handler can find, global because signals are. If a process has more
/// stores than there are places, the later ones are not printed.
struct Observers {
  std::array<std::atomic<const NodeObserver*>, kMostObservers> places{};
  std::atomic<int> printing{0};
  std::mutex words_mutex;
  std::string
      place_of_failure;  ///< see place_of_failure(); written while an exception ends a group
};

Observers& observers() noexcept {
  static Observers observers;
  return observers;
}

/// Returns the state of a process as in proc(5): R, S, T and so on; X if it does not exist. Safe in
/// a signal handler.
char state_of(pid_t process) noexcept {
  char path[64];
  PlainText name({path, sizeof path - 1});
  name.add("/proc/").add(static_cast<std::uint64_t>(process)).add("/stat");
  path[name.size()] = '\0';
  const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return errno == ENOENT ? 'X' : '?';
  char text[512];
  const ssize_t length = read(file.get(), text, sizeof text - 1);
  if (length <= 0) return 'X';
  text[length] = '\0';
  const char* name_end = std::strrchr(text, ')');
  return name_end != nullptr && name_end[1] == ' ' ? name_end[2] : '?';
}

bool has_ended(char state) noexcept { return state == 'X' || state == 'Z' || state == 'x'; }

const char* state_to_string(char state) noexcept {
  switch (state) {
    case 'R':
      return "is running";
    case 'S':
      return "is waiting for something";
    case 'D':
      return "is waiting for a device (state D)";
    case 'T':
      return "is stopped (SIGSTOP or SIGTSTP; kill -CONT lets it go on)";
    case 't':
      return "is stopped by a debugger";
    case 'X':
    case 'x':
    case 'Z':
      return "has ended";
    default:
      return "";
  }
}

/// Describes the message that a rank waits for; empty if it waits for none.
std::string message_of(const collectives::Peer& peer) {
  using collectives::MessageState;
  const std::uint64_t message = peer.control().message.load(std::memory_order_relaxed);
  const std::string other = "rank " + std::to_string(message >> 32);
  switch (static_cast<MessageState>(message & 0xffffffff)) {
    case MessageState::sends:
      return "waits in a send to " + other;
    case MessageState::receives:
      return "waits in a receive from " + other;
    case MessageState::none:
      return {};
  }
  return {};
}

}  // namespace

bool process_has_ended(pid_t process) noexcept { return has_ended(state_of(process)); }

NodeObserver::NodeObserver(const collectives::NodeMemory& memory,
                           const collectives::Topology& topology, std::vector<pid_t> processes)
    : memory_(memory), topology_(topology), processes_(std::move(processes)), place_(0) {
  processes_.resize(memory.peers.size(), 0);
  for (const int rank : topology.local_ranks()) hosts_.push_back(topology.names->host_of(rank));
  for (; place_ < kMostObservers; ++place_) {
    const NodeObserver* empty = nullptr;
    if (observers().places[place_].compare_exchange_strong(empty, this)) break;
  }
}

/// Waits for a handler in another thread that may be reading memory which is about to be unmapped.
NodeObserver::~NodeObserver() {
  if (std::uncaught_exceptions() > 0 && topology_.size > 1) {
    const std::lock_guard lock(observers().words_mutex);  // each thread may have a store
    try {
      observers().place_of_failure = place();
    } catch (const std::bad_alloc&) {  // the exception is then reported without a place
    }
  }
  if (place_ == kMostObservers) return;
  observers().places[place_].store(nullptr);
  while (observers().printing.load() != 0) sched_yield();
}

std::string NodeObserver::place() const {
  char words[RecordBook::kWords];
  const RecordBook& calls = memory_.control().calls;
  const std::size_t length = calls.describe(calls.newest(), words);
  return name_of(topology_, topology_.rank) + ", after " +
         (length == 0 ? "no call" : std::string(words, length)) + ": ";
}

bool NodeObserver::is_gone(int local_rank) const {
  const pid_t process = processes_[static_cast<std::size_t>(local_rank)];
  return process != 0 && process_has_ended(process);
}

std::string NodeObserver::describe(int local_rank) const {
  const pid_t process = processes_[static_cast<std::size_t>(local_rank)];
  const char state = process == 0 ? '?' : state_of(process);
  std::string text = state_to_string(state);
  const RecordBook& calls = memory_.peers[static_cast<std::size_t>(local_rank)].control().calls;
  char words[RecordBook::kWords];
  const std::size_t length = calls.describe(calls.newest(), words);
  if (length > 0) {
    text +=
        (text.empty() ? "made its last call: " : ", its last call: ") + std::string(words, length);
  }
  const collectives::Peer& peer = memory_.peers[static_cast<std::size_t>(local_rank)];
  std::string now = message_of(peer);
  if (now.empty() && !has_ended(state)) {
    now = peer.long_waits().in_other_groups(peer.offset_of_control());
  }
  if (now.empty() && peer.control().makes_group.load(std::memory_order_relaxed) != 0) {
    now = "makes a store or communicator";
  }
  return text + (text.empty() || now.empty() ? "" : ", ") + now;
}

std::string NodeObserver::who_waits() const {
  const std::uint64_t made = memory_.control().calls.newest();
  for (int peer = 0; peer < memory_.size(); ++peer) {
    const RecordBook& calls = memory_.peers[static_cast<std::size_t>(peer)].control().calls;
    const std::uint64_t newest = calls.newest();
    if (newest <= made || !calls.is_in(newest)) continue;
    char words[RecordBook::kWords];
    const std::size_t length = calls.describe(newest, words);
    return name_of(topology_, topology_.local_ranks()[static_cast<std::size_t>(peer)]) +
           " waits in " + std::string(words, length) + of_group(topology_);
  }
  return {};
}

void NodeObserver::show_makers(std::uint32_t makers) const noexcept {
  memory_.control().makes_group.store(makers, std::memory_order_relaxed);
}

std::string NodeObserver::call_under_way() const {
  const RecordBook& calls = memory_.control().calls;
  const std::uint64_t newest = calls.newest();
  const auto self = static_cast<std::size_t>(memory_.local_rank);
  const std::string message = message_of(memory_.peers[self]);
  if (!calls.is_in(newest) && message.empty()) return {};
  char words[RecordBook::kWords];
  const std::string call(words, calls.is_in(newest) ? calls.describe(newest, words) : 0);
  return call + (call.empty() || message.empty() ? "" : ", ") + message;
}

bool NodeObserver::fail_node(ErrorCode code, const std::string& text) const {
  return collectives::raise_in_node(memory_, code, text, /*reporter=*/true) ||
         collectives::reports_failure(memory_);
}

void NodeObserver::print_calls(int file, int local_rank, std::size_t most) const noexcept {
  char line[RecordBook::kWords + 200];
  const auto peer = static_cast<std::size_t>(local_rank);
  const auto rank = static_cast<std::size_t>(topology_.local_ranks()[peer]);
  PlainText head({line, sizeof line});
  head.add("tutti: rank ").add(std::uint64_t{rank}).add(" (");
  if (!topology_.job_ranks.empty()) {
    head.add("rank ")
        .add(static_cast<std::uint64_t>(topology_.job_ranks[rank]))
        .add(" of the job, ");
  }
  head.add("host ").add(hosts_[peer].c_str());
  if (processes_[peer] != 0) {
    head.add(", pid ").add(static_cast<std::uint64_t>(processes_[peer])).add(") ");
    head.add(state_to_string(state_of(processes_[peer])));
  } else {
    head.add(")");
  }
  head.add("\n");
  static_cast<void>(!write(file, line, head.size()));
  const RecordBook& calls = memory_.peers[peer].control().calls;
  const std::uint64_t newest = calls.newest();
  const std::uint64_t count = std::min<std::uint64_t>(newest, most);
  for (std::uint64_t sequence = newest - count + 1; sequence <= newest; ++sequence) {
    char words[RecordBook::kWords];
    const std::size_t length = calls.describe(sequence, words);
    if (length == 0) continue;
    PlainText entry({line, sizeof line});
    entry.add("tutti:   rank ").add(std::uint64_t{rank}).add(" ").add(words, length).add("\n");
    static_cast<void>(!write(file, line, entry.size()));
  }
}

void NodeObserver::print(int file) const noexcept {
  for (int peer = 0; peer < memory_.size(); ++peer) {
    if (peer != memory_.local_rank) print_calls(file, peer, kCallsOfPeers);
  }
  print_calls(file, memory_.local_rank, RecordBook::kCalls);
}

namespace {

/// Calls `body` for each observer, none of which is destroyed meanwhile.
template <class Body>
void for_each_observer(Body&& body) {
  Observers& all = observers();
  ++all.printing;
  for (const auto& place : all.places) {
    if (const NodeObserver* observer = place.load()) body(*observer);
  }
  --all.printing;
}

}  // namespace

std::string place_of_failure() {
  std::string text;
  {
    const std::lock_guard lock(observers().words_mutex);
    text = observers().place_of_failure;
  }
  for_each_observer([&](const NodeObserver& observer) {
    if (text.empty() && observer.is_of_several()) text = observer.place();
  });
  return text;
}

std::string call_under_way() {
  std::string text;
  for_each_observer([&](const NodeObserver& observer) {
    if (text.empty()) text = observer.call_under_way();
  });
  return text;
}

std::string who_waits() {
  std::string text;
  for_each_observer([&](const NodeObserver& observer) {
    if (text.empty()) text = observer.who_waits();
  });
  return text;
}

namespace {

std::atomic<std::uint32_t> makers{0};

/// A group that is made meanwhile shows none, until the next thread begins or ends.
void show_makers(std::uint32_t count) noexcept {
  for_each_observer([&](const NodeObserver& observer) { observer.show_makers(count); });
}

}  // namespace

MakesGroup::MakesGroup() noexcept { show_makers(makers.fetch_add(1) + 1); }
MakesGroup::~MakesGroup() { show_makers(makers.fetch_sub(1) - 1); }

bool fail_nodes(ErrorCode code, const std::string& text) {
  int groups = 0;
  int failed_now = 0;
  for_each_observer([&](const NodeObserver& observer) {
    ++groups;
    failed_now += observer.fail_node(code, text) ? 1 : 0;
  });
  return groups == 0 || failed_now > 0;
}

void print_calls() noexcept {
  for_each_observer([](const NodeObserver& observer) { observer.print(STDERR_FILENO); });
}

}  // namespace tutti
