// SPDX-License-Identifier: Apache-2.0
// The file of TUTTI_TUNING: a written file is read again, and the error of each mistake names its
// line.
#include "runtime/job/tuning_file.hpp"

#include <doctest/doctest.h>
#include <fstream>

#include "tutti/error.hpp"

#include "collectives/node/call.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace tutti;
using namespace tutti::collectives;

namespace {

const std::string kFirst = "# tutti tuning 1\n";
const std::string kRow =
    "ranks=2 kind=allreduce data=ordinary in-place=no consumed=no apart=yes bytes=65536 "
    "inputs=fetched results=own slots=cached outputs=streamed margin=1.31\n";

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  return text.replace(text.find(old), old.size(), by);
}

/// The error of a file with this text.
std::string refusal_of(const std::string& text) {
  try {
    parse_tuning(text, "a.file");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    return error.what();
  }
  return "none";
}

/// True if the row with `old` replaced is refused in line 3, with this text.
bool refuses(const std::string& old, const std::string& by, const std::string& expected) {
  const std::string got = refusal_of(kFirst + "# a comment\n" + replaced(kRow, old, by));
  if (got == "a.file, line 3: " + expected) return true;
  MESSAGE(got);
  return false;
}

}  // namespace

TEST_CASE("the rows of a tuning file are those that were written") {
  std::vector<TuningRow> rows;
  for (const Kind kind : {Kind::allreduce, Kind::broadcast, Kind::reduce, Kind::reduce_scatter,
                          Kind::allgather, Kind::gather, Kind::scatter, Kind::alltoall}) {
    for (const Location where : {Location::shared, Location::ordinary, Location::mixed}) {
      for (const Inputs inputs :
           {Inputs::announced, Inputs::staged, Inputs::swapped, Inputs::fetched}) {
        for (const Results results :
             {Results::spread, Results::own, Results::fetched, Results::updated}) {
          const bool flag = rows.size() % 2 == 0;
          TuningRow row{.ranks = static_cast<int>(rows.size()) + 1, .learnt = {}};
          row.learnt.call = {.kind = kind,
                             .inputs = where,
                             .in_place = flag,
                             .consumed = !flag,
                             .shares_updates = results == Results::updated && !flag,
                             .apart = flag,
                             .size = static_cast<std::uint8_t>(rows.size() % 64)};
          row.learnt.path = {.inputs = inputs,
                             .results = results,
                             .slots = flag ? WritePolicy::streaming : WritePolicy::cached,
                             .outputs = flag ? WritePolicy::cached : WritePolicy::streaming};
          row.learnt.margin = 1.25;
          rows.push_back(row);
        }
      }
    }
  }
  const std::vector<TuningRow> read = parse_tuning(tuning_text(rows, "a machine"), "a.file");
  REQUIRE(read.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CHECK(read[i].ranks == rows[i].ranks);
    CHECK(read[i].learnt.call == rows[i].learnt.call);
    CHECK(read[i].learnt.path == rows[i].learnt.path);
    CHECK(read[i].learnt.margin == 1.25);
  }
}

TEST_CASE("comments and empty lines of a tuning file are passed over") {
  CHECK(parse_tuning(kFirst, "a.file").empty());
  CHECK(parse_tuning(kFirst + "\n# text\n" + kRow + "\n", "a.file").size() == 1);
}

TEST_CASE("another first line is not a tuning file") {
  for (const std::string first : {"", "# tutti tuning 2", "# tutti tuning 1 ", "ranks=2"}) {
    CHECK(refusal_of(first + "\n" + kRow) ==
          "a.file, line 1: '" + first +
              "': expected '# tutti tuning 1', as tutti-doctor --tuning writes it");
  }
  CHECK(refusal_of("").starts_with("a.file, line 1: ''"));
}

TEST_CASE("each mistake in a row of a tuning file is named with its line") {
  CHECK(refuses("apart=yes", "apart", "'apart': expected NAME=VALUE"));
  CHECK(refuses("apart=yes", "ranks=2", "'ranks=2': expected every name once"));
  CHECK(refuses(" apart=yes", "", "'a row': expected also apart=..."));
  CHECK(refuses("inputs=fetched", "inputs=Fetched",
                "'inputs=Fetched': expected one of announced, staged, swapped, fetched"));
  CHECK(refuses("kind=allreduce", "kind=gatherall",
                "'kind=gatherall': expected one of allreduce, broadcast, reduce, reduce_scatter, "
                "allgather, gather, scatter, alltoall"));
  for (const std::string number : {"", "0", "-1", "2x", "99999999999"}) {
    CHECK(
        refuses("ranks=2", "ranks=" + number, "'ranks=" + number + "': expected a number above 0"));
  }
  for (const std::string number : {"", "0", "1.5", "64K", "18446744073709551616"}) {
    CHECK(refuses("bytes=65536", "bytes=" + number,
                  "'bytes=" + number + "': expected a number above 0"));
  }
  for (const std::string number : {"", "-1", "nan", "fast"}) {
    CHECK(refuses("margin=1.31", "margin=" + number, "'margin=" + number + "': expected a number"));
  }
  CHECK(refuses("margin=1.31", "margin=1.31 colour=red",
                "'colour': expected a name of the rows before it"));
}

TEST_CASE("a job takes the rows of its own number of ranks") {
  const test::ScratchFolder folder;
  const std::string name = folder.path() / "tuning";
  std::ofstream(name) << kFirst << kRow << replaced(kRow, "ranks=2", "ranks=4");
  CHECK(read_known_paths(name, 2).paths.size() == 1);
  CHECK(read_known_paths(name, 3).paths.empty());
  CHECK(read_known_paths(name, 2).digest != 0);
  for (const char* word : {"learn", "at-once", "static"}) {
    CHECK(read_known_paths(word, 2).digest == 0);
  }
}

TEST_CASE("a tuning file that is not there is an error that says what TUTTI_TUNING may be") {
  try {
    read_known_paths("/no/such/file", 2);
    FAIL("expected an error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::io);
    CHECK(std::string(error.what()) ==
          "TUTTI_TUNING=/no/such/file: cannot read this file; expected learn, at-once, static, or "
          "a file that tutti-doctor --tuning FILE wrote");
  }
}
