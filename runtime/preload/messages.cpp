// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/messages.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "runtime/preload/process.hpp"

// An older MPI of the same ABI has no functions of large counts, and no program that calls them.
// NOLINTBEGIN(readability-identifier-naming): MPI's names
#define TUTTI_ROW(name, parameters, arguments, ...) \
  extern "C" __attribute__((weak)) int PMPI_##name parameters;
TUTTI_MESSAGES_LARGE(TUTTI_ROW)
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

/// No group's, and no first call's: see LongWaits::Shown.
constexpr std::uint64_t kMessages = 1;

}  // namespace

ShownCall::ShownCall(const char* function, const Awaited& awaited) noexcept {
  Process* const running = process();
  if (running == nullptr || running->waits == nullptr) return;
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
  shown_.emplace(*running->waits, kMessages, words.text(), std::chrono::steady_clock::now(),
                 collectives::LongWaits::kKept);
}

void add_messages(Functions& all) {
  const bool is_shown = has_deadline();
#define TUTTI_ROW(name, parameters, arguments, ...)       \
  all.name = PMPI_##name;                                 \
  if (is_shown) {                                         \
    all.name = [] parameters {                            \
      const ShownCall shown("MPI_" #name, {__VA_ARGS__}); \
      return PMPI_##name arguments;                       \
    };                                                    \
  }
  TUTTI_MESSAGES_LARGE(TUTTI_ROW)
  TUTTI_MESSAGES_C(TUTTI_ROW)
#undef TUTTI_ROW
}

}  // namespace tutti::preload
