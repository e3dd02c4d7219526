// SPDX-License-Identifier: Apache-2.0
// The main function of tests under mpirun. Rank 0 prints as any doctest program does; another rank
// prints only if it failed, each line behind its number. All ranks return the same status.
#define DOCTEST_CONFIG_IMPLEMENT
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iostream>
#include <mpi.h>
#include <sstream>
#include <thread>

#include "tests/support/mpi_test.hpp"

namespace {

MPI_Comm verdicts = MPI_COMM_NULL;  // a duplicate, whose messages never meet the library's
std::ostringstream other_ranks_output;

void print_output() {
  if (test::rank() == 0) return;
  std::istringstream lines(other_ranks_output.str());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    text += "[rank " + std::to_string(test::rank()) + "] " + line + "\n";
  }
  std::cout << text << std::flush;
  other_ranks_output.str("");
}

// Waits for a request without keeping a core, as MPI's own waits do: tests have more ranks than
// cores, and the ranks that are waited for could use it.
void wait_for(MPI_Request request) {
  constexpr std::chrono::milliseconds kInStep{1};
  constexpr std::chrono::microseconds kNap{200};
  const auto begun = std::chrono::steady_clock::now();
  for (int is_done = 0;;) {
    MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    if (is_done != 0) return;
    if (std::chrono::steady_clock::now() - begun < kInStep) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void allreduce(void* values, int count, MPI_Datatype type, MPI_Op op) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, values, count, type, op, verdicts, &request);
  wait_for(request);
}

[[noreturn]] void end_out_of_step(const std::string& place) {
  print_output();
  std::cout << "[rank " + std::to_string(test::rank()) +
                   "] ranks are out of step: this one is at " + place + "\n"
            << std::flush;
  MPI_Barrier(verdicts);  // all ranks come here after they have printed
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

// The smallest of the ranks' verdicts, if all give it at the same line.
bool agree_at(bool mine, const char* file, int line) {
  std::array<long, 3> values = {mine ? 1 : 0, line, -line};
  allreduce(values.data(), 3, MPI_LONG, MPI_MIN);
  if (values[1] != -values[2]) end_out_of_step(file + (":" + std::to_string(line)));
  return values[0] == 1;
}

// Keeps ranks in step: a rank that left a test case by an exception meets the others' next verdict,
// and the job ends instead of hanging.
class StepListener : public doctest::IReporter {
 public:
  explicit StepListener(const doctest::ContextOptions& /*options*/) {}
  void test_case_start(const doctest::TestCaseData& data) override { name_ = data.m_name; }
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {
    if (!crashed_) agree_at(true, name_, 0);
  }
  void test_case_exception(const doctest::TestCaseException& exception) override {
    crashed_ = exception.is_crash;
  }
  void test_run_end(const doctest::TestRunStats& stats) override {
    if (stats.numTestCasesFailed > 0) print_output();
  }
  void report_query(const doctest::QueryData& /*data*/) override {}
  void test_run_start() override {}
  void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*data*/) override {}
  void log_message(const doctest::MessageData& /*data*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*data*/) override {}

 private:
  const char* name_ = "";
  bool crashed_ = false;
};
REGISTER_LISTENER("step", 1, StepListener);

std::uint64_t digest(std::span<const std::byte> bytes) {
  std::uint64_t hash = 14695981039346656037U;
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), taken);
    hash = (hash ^ word ^ (taken << 56)) * 1099511628211U;
    hash ^= hash >> 29;
    bytes = bytes.subspan(taken);
  }
  return hash;
}

}  // namespace

namespace test {

int rank() {
  int rank = 0;
  MPI_Comm_rank(verdicts, &rank);
  return rank;
}

int size() {
  int size = 0;
  MPI_Comm_size(verdicts, &size);
  return size;
}

bool agree(bool mine, Place where) {
  return agree_at(mine, where.file_name(), static_cast<int>(where.line()));
}

double largest(double mine) {
  allreduce(&mine, 1, MPI_DOUBLE, MPI_MAX);
  return mine;
}

bool same_on_all(std::span<const std::byte> bytes, Place where) {
  const std::uint64_t mine = digest(bytes);
  std::uint64_t first = mine;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&first, 1, MPI_UINT64_T, 0, verdicts, &request);
  wait_for(request);
  return agree(first == mine, where);
}

bool same_bits(const tutti::ConstTensorView& left, const tutti::ConstTensorView& right) {
  const auto ours = bytes_of(left);
  const auto theirs = bytes_of(right);
  return ours.size() == theirs.size() &&
         (ours.empty() || std::memcmp(ours.data(), theirs.data(), ours.size()) == 0);
}

tutti::Settings settings() {
  tutti::Settings settings = tutti::Settings::from_environment();
  settings.timeout = std::chrono::duration<double>(60);
  settings.log = tutti::LogLevel::quiet;
  return settings;
}

std::optional<tutti::Error> error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const tutti::Error& error) {
    return error;
  } catch (const std::exception& other) {
    MESSAGE("expected a tutti::Error, got: ", std::string(other.what()));
    return std::nullopt;
  }
  MESSAGE("expected a tutti::Error, got none");
  return std::nullopt;
}

bool is_refusal(const std::optional<tutti::Error>& error, tutti::ErrorCode code,
                const std::vector<std::string>& words) {
  if (!error) return false;
  const std::string text = error->what();
  const auto is_there = [&](const std::string& word) { return text.find(word) != text.npos; };
  if (error->code() == code && error->recoverable() && std::ranges::all_of(words, is_there)) {
    return true;
  }
  std::string expected = std::string("expected a recoverable ") + to_string(code);
  for (const std::string& word : words) expected += ", \"" + word + "\"";
  const std::string got = std::string(to_string(error->code())) +
                          (error->recoverable() ? ": " : ", not recoverable: ") + text;
  MESSAGE(expected, "; got ", got);
  return false;
}

bool throws_on_all(const std::function<void()>& body, tutti::ErrorCode code,
                   const std::vector<std::string>& words, Place where) {
  return agree(is_refusal(error_of(body), code, words), where);
}

bool throws_on(int only, const std::function<void()>& body, tutti::ErrorCode code,
               const std::vector<std::string>& words, Place where) {
  return agree(rank() != only || is_refusal(error_of(body), code, words), where);
}

}  // namespace test

int main(int argc, char** argv) {
  int provided = 0;
  const bool is_funneled = std::getenv("TEST_MPI_FUNNELED") != nullptr;
  MPI_Init_thread(&argc, &argv, is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED,
                  &provided);
  MPI_Comm_dup(MPI_COMM_WORLD, &verdicts);
  doctest::Context context(argc, argv);
  context.setOption("no-colors", true);  // mpirun gives every rank a terminal
  if (test::rank() != 0) {
    context.setCout(&other_ranks_output);
    context.setOption("no-version", true);
  }
  const bool passed = agree_at(context.run() == 0, "end of main", -1);
  MPI_Comm_free(&verdicts);
  MPI_Finalize();
  return passed ? 0 : 1;
}
