// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/sockets/meeting.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <random>
#include <span>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "tutti/error.hpp"
#include "tutti/launch.hpp"

#include "collectives/text/numbers.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/mpi/sockets/address.hpp"

namespace tutti::mpi::sockets {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kLongestLook{1.0};  // a job that was suspended does not expire
constexpr Seconds kFirstWarning{3.0};
constexpr Seconds kAnotherJob{5.0};  // the address of one that has just met is free soon
constexpr auto kNap = std::chrono::milliseconds(2);
constexpr int kLookMilliseconds = 50;
constexpr std::size_t kRowsAtOnce = 512;

struct Card {
  char version[32];
  std::int32_t rank;
  std::int32_t size;
  std::int64_t process;
  std::uint64_t process_space;  ///< in which the number counts
  char mailbox[kNameBytes];
};

struct Answer {
  std::int32_t code;  ///< -1: all have come
  char text[1024];
};

struct Row {
  std::int64_t process;
  std::uint64_t process_space;
  char mailbox[kNameBytes];
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number_in(const char* name) { return std::atoi(variable(name).c_str()); }

std::string own_name(int rank) {
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  return "rank " + std::to_string(rank) + " (host " + host + ", pid " + std::to_string(getpid()) +
         ")";
}

std::uint64_t own_process_space() {
  struct stat space {};
  return stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

/// Equal in all processes of a job, and in no other job of this host.
std::string meeting_name() {
  Digest digest;
  digest.add(static_cast<std::uint64_t>(geteuid()));
  for (const char* name : {"_TUTTI_MEETING", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE",
                           "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    digest.add(std::string_view(variable(name)));
  }
  return "tutti-meeting-" + std::to_string(digest.value());
}

std::string random_mailbox() {
  std::random_device device;
  std::string name = "tutti-";
  for (int i = 0; i < 4; ++i) {
    std::array<char, 9> word{};
    std::snprintf(word.data(), word.size(), "%08x", device());
    name += word.data();
  }
  return name;
}

std::string what_was_told() {
  return "WORLD_SIZE=" + variable("WORLD_SIZE") + ", MASTER_ADDR=" + variable("MASTER_ADDR") +
         ", MASTER_PORT=" + variable("MASTER_PORT");
}

[[noreturn]] void throw_system(const std::string& call) {
  throw Error(ErrorCode::io, call + ": " + std::strerror(errno) +
                                 "; see the limits of this process (ulimit -n), or start the job "
                                 "with mpirun");
}

/// Several hosts are what an MPI is for. Launchers say how many there are, or how many of the ranks
/// are here.
void require_one_host(int size, int rank) {
  const int here = number_in("LOCAL_WORLD_SIZE");
  const int groups = number_in("GROUP_WORLD_SIZE");
  const int nodes = number_in("SLURM_STEP_NUM_NODES");
  const bool is_spread = (here > 0 && here < size) || groups > 1 || nodes > 1;
  if (!is_spread) return;
  const std::string evidence =
      here > 0 ? "WORLD_SIZE=" + std::to_string(size) + ", LOCAL_WORLD_SIZE=" + std::to_string(here)
               : "SLURM_STEP_NUM_NODES=" + std::to_string(nodes);
  throw Error(ErrorCode::invalid_argument,
              "the ranks of this job are on several hosts (" + evidence +
                  "), and without an MPI they must be on one; start the job with mpirun -np " +
                  std::to_string(size),
              ErrorScope::agreed, /*reporter=*/rank == 0);
}

FileDescriptor make_socket(int kind) {
  FileDescriptor made(socket(AF_UNIX, kind | SOCK_CLOEXEC, 0));
  if (made.get() < 0) throw_system("socket");
  return made;
}

/// The kernel says whose process has connected, or listens.
bool is_own_user(int connection) {
  ucred other{};
  socklen_t length = sizeof other;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0) return false;
  return other.uid == geteuid();
}

template <class T>
bool send_all(int connection, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

Card own_card(int rank, int size, const std::string& mailbox) {
  Card card{};
  std::snprintf(card.version, sizeof card.version, "%s", TUTTI_VERSION);
  std::snprintf(card.mailbox, sizeof card.mailbox, "%s", mailbox.c_str());
  card.rank = rank;
  card.size = size;
  card.process = getpid();
  card.process_space = own_process_space();
  return card;
}

Row row_of(const Card& card) {
  Row row{card.process, card.process_space, {}};
  std::memcpy(row.mailbox, card.mailbox, sizeof row.mailbox);
  return row;
}

std::vector<Peer> peers_of(std::span<const Row> rows) {
  const std::uint64_t space = own_process_space();
  std::vector<Peer> peers;
  for (const Row& row : rows) {
    const bool is_near = row.process_space == space && space != 0;
    peers.push_back({is_near ? static_cast<pid_t>(row.process) : 0, row.mailbox});
  }
  return peers;
}

/// Time that this process has spent in looking.
class Patience {
 public:
  explicit Patience(Seconds limit) : limit_(limit) {}
  void look() {
    const auto now = Clock::now();
    waited_ += std::min<Seconds>(now - last_, kLongestLook);
    last_ = now;
  }
  [[nodiscard]] Seconds waited() const { return waited_; }
  [[nodiscard]] bool is_over() const { return limit_.count() > 0 && waited_ >= limit_; }
  /// Once, after a tenth of the deadline.
  bool is_time_to_warn() {
    if (has_warned_ || waited_ < std::max(kFirstWarning, limit_ / 10)) return false;
    return has_warned_ = true;
  }
  [[nodiscard]] std::string text() const { return significant(waited_.count(), 3) + " s"; }

 private:
  Seconds limit_;
  Seconds waited_{0};
  Clock::time_point last_ = Clock::now();
  bool has_warned_ = false;
};

/// Rank 0's side.
class Host {
 public:
  Host(const Card& own, Seconds timeout) : own_(own), patience_(timeout) {
    rows_.resize(static_cast<std::size_t>(own.size));
    rows_.front() = row_of(own);
    connections_.resize(rows_.size());
  }

  std::vector<Peer> gather() {
    listen_at(meeting_name());
    try {
      while (missing_ > 0) look();
    } catch (const Error& error) {
      tell_all(error);
      throw Error(error.code(), error.what(), ErrorScope::agreed, /*reporter=*/true);
    }
    Answer answer{-1, {}};
    for (const FileDescriptor& connection : connections_) {
      if (connection.get() < 0) continue;
      send_all<Answer>(connection.get(), std::span(&answer, 1));
      for (std::size_t at = 0; at < rows_.size(); at += kRowsAtOnce) {
        const auto some =
            std::span<const Row>(rows_).subspan(at, std::min(kRowsAtOnce, rows_.size() - at));
        send_all(connection.get(), some);  // one that has ended meanwhile is missed later
      }
    }
    return peers_of(rows_);
  }

 private:
  void listen_at(const std::string& name) {
    listener_ = make_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
    const Address address(name);
    while (bind(listener_.get(), address.get(), address.length()) != 0) {
      if (errno != EADDRINUSE) throw_system("bind");
      patience_.look();
      if (patience_.waited() > kAnotherJob) {
        throw Error(ErrorCode::invalid_argument,
                    "another job of this host meets at this address (" + what_was_told() +
                        "); give this one another MASTER_PORT");
      }
      std::this_thread::sleep_for(kNap);
    }
    if (listen(listener_.get(), own_.size) != 0) throw_system("listen");
  }

  /// Waits a moment for whoever comes, speaks or ends.
  void look() {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    for (const FileDescriptor& one : strangers_) polled.push_back({one.get(), POLLIN, 0});
    for (const FileDescriptor& one : connections_) polled.push_back({one.get(), POLLIN, 0});
    poll(polled.data(), polled.size(), kLookMilliseconds);
    patience_.look();
    const std::size_t of_strangers = strangers_.size();
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (polled[1 + of_strangers + i].revents != 0) throw_ended(static_cast<int>(i));
    }
    for (std::size_t i = of_strangers; i > 0; --i) {
      if (polled[i].revents != 0) hear(i - 1);
    }
    if (polled[0].revents != 0) welcome();
    if (missing_ > 0 && patience_.is_over()) throw_missing();
    if (missing_ > 0 && patience_.is_time_to_warn()) {
      std::fprintf(stderr, "tutti: warning: %s has waited %s for %s to come (%s)\n",
                   own_name(0).c_str(), patience_.text().c_str(), names_of_missing().c_str(),
                   what_was_told().c_str());
    }
  }

  void welcome() {
    FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() < 0 || !is_own_user(connection.get())) return;  // it sees that it is shut
    strangers_.push_back(std::move(connection));
  }

  /// The card of one that has connected.
  void hear(std::size_t stranger) {
    FileDescriptor connection = std::move(strangers_[stranger]);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(stranger));
    Card card{};
    const ssize_t length = recv(connection.get(), &card, sizeof card, MSG_DONTWAIT | MSG_TRUNC);
    if (length == 0) return;  // it has ended, and its launcher may start another one
    const bool is_whole = length == static_cast<ssize_t>(sizeof card);
    const std::string version(card.version, strnlen(card.version, sizeof card.version));
    const bool is_known = is_whole && version == own_.version && card.size == own_.size &&
                          card.rank > 0 && card.rank < own_.size;
    if (!is_known) {
      throw Error(ErrorCode::invalid_argument,
                  "expected the ranks of one job of Tutti " + std::string(own_.version) + " and " +
                      std::to_string(own_.size) + " ranks; got " +
                      (is_whole ? "rank " + std::to_string(card.rank) + " of " +
                                      std::to_string(card.size) + " with Tutti " + version
                                : "another program") +
                      "; give each job another MASTER_PORT, and all ranks one package");
    }
    const auto index = static_cast<std::size_t>(card.rank);
    if (connections_[index].get() >= 0) {
      throw Error(ErrorCode::invalid_argument, "two processes say that they are rank " +
                                                   std::to_string(card.rank) + " (pid " +
                                                   std::to_string(rows_[index].process) + " and " +
                                                   std::to_string(card.process) +
                                                   "); give each process its own RANK, and each "
                                                   "job its own MASTER_PORT");
    }
    rows_[index] = row_of(card);
    connections_[index] = std::move(connection);
    --missing_;
  }

  void tell_all(const Error& error) {
    Answer answer{static_cast<std::int32_t>(error.code()), {}};
    std::snprintf(answer.text, sizeof answer.text, "%s", error.what());
    for (const FileDescriptor& connection : connections_) {
      if (connection.get() >= 0) send_all<Answer>(connection.get(), std::span(&answer, 1));
    }
  }

  [[noreturn]] void throw_ended(int rank) const {
    throw Error(ErrorCode::communication,
                "rank " + std::to_string(rank) + " (pid " +
                    std::to_string(rows_[static_cast<std::size_t>(rank)].process) +
                    ") has ended before all ranks had come; see its output");
  }

  [[nodiscard]] std::string names_of_missing() const {
    std::string names;
    for (std::size_t i = 1; i < connections_.size(); ++i) {
      if (connections_[i].get() >= 0) continue;
      names += (names.empty() ? "rank " : ", rank ") + std::to_string(i);
    }
    return names;
  }

  [[noreturn]] void throw_missing() const {
    throw Error(ErrorCode::timeout,
                own_name(0) + " waited " + patience_.text() + " for " + names_of_missing() +
                    " to come (" + what_was_told() +
                    "); see what they are doing; ranks on other hosts need mpirun");
  }

  const Card& own_;
  Patience patience_;
  std::vector<Row> rows_;
  FileDescriptor listener_;
  std::vector<FileDescriptor> strangers_;    ///< have not said yet who they are
  std::vector<FileDescriptor> connections_;  ///< by rank; none for rank 0
  int missing_ = own_.size - 1;
};

/// The side of all other ranks.
class Guest {
 public:
  Guest(const Card& own, Seconds timeout) : own_(own), patience_(timeout), limit_(timeout) {}

  std::vector<Peer> come() {
    connect_to(meeting_name());
    Answer answer{};
    if (!send_all<Card>(connection_.get(), std::span(&own_, 1))) throw_refused();
    receive(std::as_writable_bytes(std::span(&answer, 1)));
    if (answer.code >= 0) {
      throw Error(static_cast<ErrorCode>(answer.code), answer.text, ErrorScope::agreed,
                  /*reporter=*/false);
    }
    std::vector<Row> rows(static_cast<std::size_t>(own_.size));
    for (std::size_t at = 0; at < rows.size(); at += kRowsAtOnce) {
      const auto some = std::span(rows).subspan(at, std::min(kRowsAtOnce, rows.size() - at));
      receive(std::as_writable_bytes(some));
    }
    return peers_of(rows);
  }

 private:
  void connect_to(const std::string& name) {
    const Address address(name);
    for (;;) {
      connection_ = make_socket(SOCK_SEQPACKET);
      if (connect(connection_.get(), address.get(), address.length()) == 0) break;
      patience_.look();
      if (patience_.is_over()) throw_missing();
      std::this_thread::sleep_for(kNap);
    }
    if (is_own_user(connection_.get())) return;
    throw Error(ErrorCode::invalid_argument,
                "a process of another user listens at the address of this job (" + what_was_told() +
                    "); give it another MASTER_PORT");
  }

  /// Rank 0 answers by its own deadline, which has begun before or later.
  void receive(std::span<std::byte> bytes) {
    pollfd polled{connection_.get(), POLLIN, 0};
    while (poll(&polled, 1, kLookMilliseconds) <= 0) {
      patience_.look();
      if (patience_.is_over() && patience_.waited() > 2 * limit_) throw_missing();
    }
    const ssize_t length = recv(connection_.get(), bytes.data(), bytes.size(), 0);
    if (length != static_cast<ssize_t>(bytes.size())) throw_refused();
  }

  [[noreturn]] void throw_missing() const {
    throw Error(ErrorCode::timeout,
                own_name(own_.rank) + " waited " + patience_.text() + " for rank 0 on this host (" +
                    what_was_told() +
                    "); see what it is doing; a job whose ranks are on several hosts is started "
                    "by mpirun",
                ErrorScope::failed);
  }
  [[noreturn]] void throw_refused() const {
    throw Error(ErrorCode::communication,
                own_name(own_.rank) + ": rank 0 has ended before all ranks had come (" +
                    what_was_told() + "); see its output",
                ErrorScope::failed, /*reporter=*/false);
  }

  const Card& own_;
  Patience patience_;
  Seconds limit_;
  FileDescriptor connection_;
};

FileDescriptor make_mailbox(const std::string& name) {
  FileDescriptor made = make_socket(SOCK_DGRAM | SOCK_NONBLOCK);
  const int on = 1;  // each datagram says whose process has sent it
  if (setsockopt(made.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
    throw_system("setsockopt");
  }
  const Address address(name);
  if (bind(made.get(), address.get(), address.length()) != 0) throw_system("bind");
  return made;
}

}  // namespace

Job meet(Seconds timeout) {
  const int rank = number_in("RANK");
  const int size = number_in("WORLD_SIZE");
  if (variable("_TUTTI_MEETING").empty()) require_one_host(size, rank);
  Job job;
  job.rank = rank;
  const std::string mailbox = random_mailbox();
  job.mailbox = make_mailbox(mailbox);
  const Card own = own_card(rank, size, mailbox);
  job.peers = rank == 0 ? Host(own, timeout).gather() : Guest(own, timeout).come();
  return job;
}

std::string name_of_peer(const std::vector<Peer>& peers, int rank) {
  const pid_t process = peers[static_cast<std::size_t>(rank)].process;
  return "rank " + std::to_string(rank) +
         (process == 0 ? "" : " (pid " + std::to_string(process) + ")");
}

}  // namespace tutti::mpi::sockets
