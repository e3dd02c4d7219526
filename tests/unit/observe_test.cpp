// SPDX-License-Identifier: Apache-2.0
// Spans, and the files of reports.
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tutti/error.hpp"
#include "tutti/settings.hpp"

#include "collectives/engine/statistics_collector.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/output.hpp"
#include "runtime/observe/prometheus.hpp"
#include "runtime/observe/reports.hpp"
#include "runtime/observe/statistics.hpp"
#include "runtime/observe/summary.hpp"
#include "runtime/observe/trace.hpp"
#include "support/checks.hpp"
#include "support/scratch_folder.hpp"

using namespace tutti;
using namespace tutti::observe;
using collectives::Activity;
using collectives::SpanLog;

namespace {

std::string event(int number) {
  return R"({"ph":"X","name":"push","pid":1,"tid":1,"ts":)" + std::to_string(number) +
         R"(.000,"dur":0.500})";
}

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

Statistics of_rank(int rank, double seconds, double waiting) {
  Statistics statistics{.rank = rank, .seconds = 10, .calls = {}};
  statistics.calls.push_back({.call = "push",
                              .keys = {"a", "b"},
                              .calls = 100,
                              .bytes = 4000,
                              .seconds = seconds,
                              .waiting_seconds = waiting,
                              .last = {{1, 90, waiting}, {0, 10, 0}}});
  return statistics;
}

}  // namespace

TEST_CASE("activities follow each other without gaps inside their call") {
  SpanLog log(100);
  const collectives::CallTotals totals{.call = "push", .keys = {}};
  log.begin_call(collectives::ticks());
  log.switch_to(Activity::wait_for_ranks);
  log.note(3);
  log.switch_to(Activity::reduce);
  log.switch_to(Activity::reduce);  // the same activity again
  const std::uint64_t begin = log.spans()[0].begin;
  log.end_call(begin, collectives::ticks(), totals, 77);
  REQUIRE(log.spans().size() == 4);
  CHECK(log.spans()[0].activity == Activity::prepare);
  CHECK(log.spans()[1].activity == Activity::wait_for_ranks);
  CHECK(log.spans()[1].value == 3);
  CHECK(log.spans()[2].activity == Activity::reduce);
  CHECK(log.spans()[3].activity == Activity::call);
  CHECK(log.spans()[3].value == 77);
  CHECK(log.spans()[0].end == log.spans()[1].begin);
  CHECK(log.spans()[1].end == log.spans()[2].begin);
  CHECK(log.spans()[2].end == log.spans()[3].end);
}

TEST_CASE("a call without an operation has no activities") {
  SpanLog log(100);
  log.begin_call(1);
  log.end_call(1, 2, {.call = "pull", .keys = {}}, 8);
  REQUIRE(log.spans().size() == 1);
  CHECK(log.spans()[0].activity == Activity::call);
}

TEST_CASE("spans for which there is no room are counted") {
  SpanLog log(3);
  const collectives::CallTotals totals{.call = "pull", .keys = {}};
  for (int i = 0; i < 5; ++i) log.end_call(1, 2, totals, 8);
  CHECK(log.spans().size() == 3);
  CHECK(log.dropped() == 2);
}

TEST_CASE("a trace is whole JSON after every rank that has written to it") {
  const test::ScratchFolder scratch;
  const std::string path = (scratch.path() / "trace.json").string();
  create_trace(path, 0x1234);
  CHECK(is_trace_of(path, 0x1234));
  CHECK_FALSE(is_trace_of(path, 0x1235));
  CHECK_FALSE(is_trace_of(path + "x", 0x1234));
  CHECK(read_json(path).size() == 1);
  append_trace(path, event(1) + ",\n" + event(2));
  CHECK(read_json(path).size() == 3);
  append_trace(path, event(3));
  CHECK(read_json(path).size() == 4);
  CHECK(read_json(path)[3]["ts"] == 3.0);
  create_trace(path, 0x1235);
  CHECK(read_json(path).size() == 1);
}

TEST_CASE("what a killed writer has left of a line is removed by the next one") {
  const test::ScratchFolder scratch;
  const std::string path = (scratch.path() / "trace.json").string();
  create_trace(path, 1);
  append_trace(path, event(1) + ",\n" + event(2));
  const std::string whole = checkpoint::read_text(path, 10000);
  const std::size_t head = whole.find(event(1));
  for (std::size_t bytes = head; bytes < whole.size(); ++bytes) {
    CAPTURE(bytes);
    std::ofstream(path, std::ios::trunc) << whole.substr(0, bytes);
    append_trace(path, event(3));
    const auto events = read_json(path);
    CHECK(events.back()["ts"] == 3.0);
    CHECK(events.size() >= 2);
  }
}

TEST_CASE("a file that is no trace any more is an error") {
  const test::ScratchFolder scratch;
  const std::string path = (scratch.path() / "trace.json").string();
  std::ofstream(path) << "something else\n";
  test::expect_error([&] { append_trace(path, event(1)); }, ErrorCode::io,
                     {"is no trace any more"});
}

TEST_CASE("a writer that does not let go of a trace is not waited for without end") {
  const test::ScratchFolder scratch;
  const std::string path = (scratch.path() / "trace.json").string();
  create_trace(path, 1);
  auto other = checkpoint::File::open_to_write(path);
  REQUIRE(other.lock());
  test::expect_error([&] { append_trace(path, event(1), std::chrono::milliseconds(20)); },
                     ErrorCode::timeout, {"was locked by another process for 20.0 ms"});
  CHECK(read_json(path).size() == 1);
}

TEST_CASE("metrics have one family for each name, with rank and host on every value") {
  const std::string text = prometheus_text(of_rank(3, 2.5, 0.25), "host \"a\"");
  CHECK(text.find("# TYPE tutti_push_total counter\n"
                  "tutti_push_total{rank=\"3\",host=\"host \\\"a\\\"\"} 100\n") !=
        std::string::npos);
  CHECK(text.find("tutti_push_bytes_total{rank=\"3\",host=\"host \\\"a\\\"\"} 4000\n") !=
        std::string::npos);
  CHECK(text.find("tutti_push_waiting_seconds_total{rank=\"3\",host=\"host \\\"a\\\"\"} 0.25\n") !=
        std::string::npos);
  CHECK(text.find("tutti_last_total{rank=\"3\",host=\"host \\\"a\\\"\",last=\"1\"} 90\n") !=
        std::string::npos);
}

TEST_CASE("a file is replaced in one step, or not at all") {
  const test::ScratchFolder scratch;
  const std::string path = (scratch.path() / "tutti.prom").string();
  write_output(path, "one\n");
  write_output(path, "two\n");
  CHECK(checkpoint::read_text(path, 100) == "two\n");
  test::expect_error([] { write_output("/nowhere/tutti.prom", "one\n"); }, ErrorCode::io,
                     {"/nowhere/tutti.prom: cannot be written: No such file"});
}

TEST_CASE("whether a file can be replaced is known before, and what stands there stays") {
  const test::ScratchFolder scratch;
  const std::string path = (scratch.path() / "tutti.txt").string();
  require_output(path);
  CHECK(std::filesystem::is_empty(scratch.path()));
  write_output(path, "one\n");
  require_output(path);
  CHECK(checkpoint::read_text(path, 100) == "one\n");
  test::expect_error([] { require_output("/nowhere/tutti.txt"); }, ErrorCode::io,
                     {"/nowhere/tutti.txt: cannot be written: No such file"});
  test::expect_error([&] { require_output(scratch.path().string()); }, ErrorCode::io,
                     {"cannot be written: Is a directory"});
}

TEST_CASE("a rank's and a group's number come before the last point of a file's name") {
  CHECK(with_infix("a.b/tutti.prom", "3") == "a.b/tutti.3.prom");
  CHECK(with_infix("a.b/tutti", "3") == "a.b/tutti.3");
  CHECK(with_infix(".tutti", "3") == ".tutti.3");
  CHECK(of_group("t.json", 0) == "t.json");
  CHECK(of_group("t.json", 2) == "t.2.json");
  CHECK(of_group("", 2).empty());
}

TEST_CASE("statistics of other ranks arrive as they were sent") {
  const Statistics sent = of_rank(3, 2.5, 0.25);
  const Statistics read = from_json(to_json(sent));
  CHECK(read.rank == 3);
  CHECK(to_string(read) == to_string(sent));
  CHECK(read.calls[0].keys == sent.calls[0].keys);
  test::expect_error([] { (void)from_json("[1,"); }, test::kInvalid, {"cannot be read"});
}

namespace {

struct HostsByLetter final : collectives::RankNames {
  [[nodiscard]] std::string host_of(int rank) const override {
    return std::string(1, static_cast<char>('a' + rank));
  }
  [[nodiscard]] std::optional<long> process_of(int) const override { return std::nullopt; }
};

}  // namespace

TEST_CASE("the table of all ranks has least, mean and most, and who was waited for") {
  const std::string table =
      summary_table({of_rank(0, 2, 1), of_rank(1, 3, 0), of_rank(2, 4, 2)}, HostsByLetter());
  INFO(table);
  CHECK(table.find("tutti: statistics of 3 ranks, 10.0 s;") == 0);
  CHECK(summary_table({of_rank(0, 2, 1)}, HostsByLetter(), 1)
            .starts_with("tutti: statistics of 1 rank, store or communicator 2, 10.0 s;"));
  CHECK(table.find("         100     4.00 kB      2.00 s      3.00 s      4.00 s     0.00 us"
                   "      1.00 s      2.00 s  rank 1 (100 %)   push of 2 keys: a, b\n") !=
        std::string::npos);
  CHECK(table.find("  rank 1 (host b) came last in 90 calls; each rank waited 1.00 s for it, on "
                   "average\n") != std::string::npos);
}

TEST_CASE("numbers in words have three digits and a unit") {
  CHECK(bytes_to_string(999) == "999 B");
  CHECK(bytes_to_string(1000) == "1.00 kB");
  CHECK(bytes_to_string(999'999) == "1.00 MB");
  CHECK(bytes_to_string(12'345'678'901) == "12.3 GB");
  CHECK(seconds_to_string(123.4) == "123 s");
  CHECK(seconds_to_string(0.9999) == "1.00 s");
  CHECK(seconds_to_string(0.0123) == "12.3 ms");
  CHECK(seconds_to_string(0) == "0.00 us");
}
