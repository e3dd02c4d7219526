// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/messages.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "collectives/job/local_error.hpp"
#include "collectives/wait/failure.hpp"
#include "runtime/preload/process.hpp"

// An older MPI of the same ABI has no functions of large counts, and no program that calls them.
// NOLINTBEGIN(readability-identifier-naming): MPI's names
#define TUTTI_ROW(name, parameters, arguments, ...) \
  extern "C" __attribute__((weak)) int PMPI_##name parameters;
TUTTI_MESSAGES_LARGE(TUTTI_ROW)
#if MPI_VERSION >= 4
TUTTI_ROW(Isend_c, (const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*), )
TUTTI_ROW(Issend_c, (const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*), )
#endif
#undef TUTTI_ROW
// NOLINTEND(readability-identifier-naming)

namespace tutti::preload {

namespace {

/// The words of a call, "MPI_Recv (source 3, tag 7) on grid rows": written in each call, so that
/// they take no memory of the heap.
class Words {
 public:
  void add(std::string_view text) {
    length_ += text.copy(letters_.data() + length_, letters_.size() - length_);
  }
  void add(int number) {
    char* const end = letters_.data() + letters_.size();
    const auto [next, error] = std::to_chars(letters_.data() + length_, end, number);
    if (error == std::errc()) length_ = static_cast<std::size_t>(next - letters_.data());
  }
  /// Adds one of the arguments, in parentheses with the others.
  void add(std::string_view name, const int* number, std::optional<int> any = {}) {
    if (number == nullptr) return;
    add(has_arguments_ ? ", " : " (");
    has_arguments_ = true;
    add(name);
    if (any && *number == *any) return add("any");
    if (*number == MPI_PROC_NULL) return add("none");
    add(*number);
  }
  void end_arguments() {
    if (has_arguments_) add(")");
  }
  [[nodiscard]] std::string_view text() const { return {letters_.data(), length_}; }

 private:
  std::array<char, collectives::LongWaits::kLongest> letters_;
  std::size_t length_ = 0;
  bool has_arguments_ = false;
};

Words words_of(const char* function, const Awaited& awaited) noexcept {
  Words words;
  words.add(function);
  words.add("dest ", awaited.dest);
  words.add("tag ", awaited.given_tag);
  words.add("source ", awaited.source, MPI_ANY_SOURCE);
  words.add("tag ", awaited.tag, MPI_ANY_TAG);
  words.add("requests ", awaited.requests);
  words.end_arguments();
  if (awaited.comm == MPI_COMM_WORLD) words.add(" on MPI_COMM_WORLD");
  if (awaited.comm != MPI_COMM_NULL && awaited.comm != MPI_COMM_WORLD) {
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    PMPI_Comm_get_name(awaited.comm, name, &length);
    words.add(" on ");
    words.add(length > 0 ? name : "a communicator without a name");
  }
  return words;
}

/// No group's, and no first call's: see LongWaits::Shown.
constexpr std::uint64_t kMessages = 1;

}  // namespace

ShownCall::ShownCall(const char* function, const Awaited& awaited) noexcept
    : function_(function), awaited_(awaited) {
  Process* const running = process();
  if (running == nullptr || running->waits == nullptr) return;
  has_askers_ = running->groups.has_askers();
  shown_.emplace(*running->waits, kMessages, words_of(function, awaited).text(),
                 std::chrono::steady_clock::now(), collectives::LongWaits::kKept);
}

/// Answers those who ask, and leaves the core to others in a long wait. MPI makes progress in what
/// is polled.
void ShownCall::pause(Clock::time_point since, Clock::time_point& look_at) const {
  constexpr auto kYieldAfter = std::chrono::milliseconds(1);
  constexpr auto kNapAfter = std::chrono::seconds(1);
  constexpr auto kNap = std::chrono::microseconds(200);
  const Clock::time_point now = Clock::now();
  Process* const running = now < look_at ? nullptr : process();
  if (running != nullptr) {
    static_cast<void>(collectives::caught([&] {
      const Words words = words_of(function_, awaited_);
      running->groups.answer_others(nullptr, "waits in " + std::string(words.text()) + " for " +
                                                 collectives::in_seconds(now - since));
    }));
    look_at = now + kLookEvery;
  }
  if (now - since >= kNapAfter) {
    std::this_thread::sleep_for(kNap);
  } else if (now - since >= kYieldAfter) {
    std::this_thread::yield();
  }
}

Look ShownCall::look() const {
  Look found;
  found.code =
      PMPI_Iprobe(*awaited_.source, *awaited_.tag, awaited_.comm, &found.flag, MPI_STATUS_IGNORE);
  return found;
}

Look ShownCall::probe() const {
  Look found;
  poll([&] {
    found = look();
    return found.is_refused() || found.flag != 0;
  });
  return found;
}

int ShownCall::complete(MPI_Request sent) const {
  int code = MPI_SUCCESS;
  poll([&] {
    int is_done = kUntouched;
    code = PMPI_Test(&sent, &is_done, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS || is_done != 0;
  });
  return code;
}

namespace {

#define TUTTI_SEND(Name, name, suffix, Count)                                                      \
  all.Name##suffix = [](const void* buffer, Count count, MPI_Datatype type, int dest, int tag,     \
                        MPI_Comm comm) {                                                           \
    const ShownCall shown("MPI_" #Name #suffix, {.dest = &dest, .given_tag = &tag, .comm = comm}); \
    if (!shown.has_askers()) {                                                                     \
      return PMPI_##Name##suffix(buffer, count, type, dest, tag, comm);                            \
    }                                                                                              \
    MPI_Request sent = MPI_REQUEST_NULL;                                                           \
    const int code = PMPI_I##name##suffix(buffer, count, type, dest, tag, comm, &sent);            \
    return code == MPI_SUCCESS ? shown.complete(sent) : code;                                      \
  };
/// Returns from a receive that MPI refuses, such as one of a count below 0. MPI also refuses it
/// where nothing can come.
#define TUTTI_RETURN_REFUSED(suffix)                                                  \
  MPI_Status none;                                                                    \
  none.MPI_SOURCE = MPI_UNDEFINED;                                                    \
  int code = PMPI_Recv##suffix(buffer, count, type, MPI_PROC_NULL, tag, comm, &none); \
  if (code != MPI_SUCCESS || none.MPI_SOURCE != MPI_PROC_NULL) return code;
#define TUTTI_RECV(suffix, Count)                                                              \
  all.Recv##suffix = [](void* buffer, Count count, MPI_Datatype type, int source, int tag,     \
                        MPI_Comm comm, MPI_Status* status) {                                   \
    const ShownCall shown("MPI_Recv" #suffix, {.source = &source, .tag = &tag, .comm = comm}); \
    if (shown.has_askers()) {                                                                  \
      TUTTI_RETURN_REFUSED(suffix)                                                             \
      const Look found = shown.probe();                                                        \
      if (found.is_refused()) return found.code;                                               \
    }                                                                                          \
    return PMPI_Recv##suffix(buffer, count, type, source, tag, comm, status);                  \
  };
/// Nothing is sent where the receive is refused.
#define TUTTI_SENDRECV(suffix, Count)                                                              \
  all.Sendrecv##suffix = [](const void* given, Count given_count, MPI_Datatype given_type,         \
                            int dest, int given_tag, void* buffer, Count count, MPI_Datatype type, \
                            int source, int tag, MPI_Comm comm, MPI_Status* status) {              \
    const ShownCall shown(                                                                         \
        "MPI_Sendrecv" #suffix,                                                                    \
        {.dest = &dest, .given_tag = &given_tag, .source = &source, .tag = &tag, .comm = comm});   \
    if (!shown.has_askers()) {                                                                     \
      return PMPI_Sendrecv##suffix(given, given_count, given_type, dest, given_tag, buffer, count, \
                                   type, source, tag, comm, status);                               \
    }                                                                                              \
    TUTTI_RETURN_REFUSED(suffix)                                                                   \
    Look found = shown.look();                                                                     \
    if (found.is_refused()) return found.code;                                                     \
    MPI_Request sent = MPI_REQUEST_NULL;                                                           \
    code = PMPI_Isend##suffix(given, given_count, given_type, dest, given_tag, comm, &sent);       \
    if (code != MPI_SUCCESS || (sent == MPI_REQUEST_NULL && dest != MPI_PROC_NULL)) return code;   \
    if (found.flag == 0) found = shown.probe();                                                    \
    if (found.is_refused()) return found.code;                                                     \
    code = PMPI_Recv##suffix(buffer, count, type, source, tag, comm, status);                      \
    const int code_of_send = shown.complete(sent);                                                 \
    return code == MPI_SUCCESS ? code_of_send : code;                                              \
  };

void add_polled(Functions& all) {
  TUTTI_SEND(Send, send, , int)
  TUTTI_SEND(Ssend, ssend, , int)
  TUTTI_RECV(, int)
  TUTTI_SENDRECV(, int)
#if MPI_VERSION >= 4
  TUTTI_SEND(Send, send, _c, MPI_Count)
  TUTTI_SEND(Ssend, ssend, _c, MPI_Count)
  TUTTI_RECV(_c, MPI_Count)
  TUTTI_SENDRECV(_c, MPI_Count)
#endif
}

#undef TUTTI_SEND
#undef TUTTI_RETURN_REFUSED
#undef TUTTI_RECV
#undef TUTTI_SENDRECV

}  // namespace

void add_messages(Functions& all) {
#define TUTTI_ROW(name, parameters, arguments, ...) all.name = PMPI_##name;
  TUTTI_MESSAGES_LARGE(TUTTI_ROW)
  TUTTI_MESSAGES_C(TUTTI_ROW)
  TUTTI_TESTED(TUTTI_ROW)
#undef TUTTI_ROW
  if (!has_deadline()) return;
#define TUTTI_ROW(name, parameters, arguments, ...)     \
  all.name = [] parameters {                            \
    const ShownCall shown("MPI_" #name, {__VA_ARGS__}); \
    return PMPI_##name arguments;                       \
  };
  TUTTI_MESSAGES_LARGE(TUTTI_ROW)
  TUTTI_MESSAGES_C(TUTTI_ROW)
#undef TUTTI_ROW
#define TUTTI_ROW(name, parameters, arguments, test, test_arguments, done, ...) \
  all.name = [] parameters {                                                    \
    const ShownCall shown("MPI_" #name, {__VA_ARGS__});                         \
    if (!shown.has_askers()) return PMPI_##name arguments;                      \
    int code = MPI_SUCCESS;                                                     \
    shown.poll([&] {                                                            \
      [[maybe_unused]] int is_done = kUntouched;                                \
      code = PMPI_##test test_arguments;                                        \
      return code != MPI_SUCCESS || (done) != 0;                                \
    });                                                                         \
    return code;                                                                \
  };
  TUTTI_TESTED(TUTTI_ROW)
#undef TUTTI_ROW
  add_polled(all);
}

}  // namespace tutti::preload
