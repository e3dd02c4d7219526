// SPDX-License-Identifier: Apache-2.0
// A file of TUTTI_TUNING that not all ranks have, or not all alike, is one error on all ranks.
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"
#include "tests/support/scratch_folder.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::ReduceOp;
using tutti::Settings;
using tutti::Tensor;

namespace {

const std::string kFirstLine = "# tutti tuning 1\n";

/// A file's text that knows one path for nodes of all ranks.
std::string row_of(const std::string& inputs) {
  return kFirstLine + "ranks=" + std::to_string(test::size()) +
         " kind=allreduce data=ordinary in-place=no consumed=no apart=yes bytes=65536 inputs=" +
         inputs + " results=spread slots=cached outputs=cached margin=1.50\n";
}

/// A folder of this rank's own, in which it is while this lives: all ranks have the same relative
/// name for files of their own.
class OwnFolder {
 public:
  OwnFolder() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.path());
  }
  ~OwnFolder() { std::filesystem::current_path(before_); }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

 private:
  test::ScratchFolder folder_;
  std::filesystem::path before_;
};

void write(const std::string& name, const std::string& text) { std::ofstream(name) << text; }

Settings with_tuning(const std::string& tuning) {
  Settings settings = test::settings();
  settings.tuning = tuning;
  return settings;
}

bool is_refused(const Settings& settings, ErrorCode code, const std::vector<std::string>& words) {
  return test::throws_on_all([&] { Communicator::world(settings); }, code, words);
}

/// The sum is right, and so is the next group: nothing is left of one that was refused.
bool sums_are_right(const Settings& settings) {
  Communicator world = Communicator::world(settings);
  constexpr std::int64_t kCount = 20'000;
  const Tensor input = test::random_tensor({kCount}, DType::float32, test::rank());
  Tensor output = Tensor::zeros({kCount});
  world.allreduce(input, output);
  const Tensor sum = test::reduced_random(ReduceOp::sum, {kCount}, DType::float32, test::size());
  return test::agree(test::same_bits(output, sum));
}

}  // namespace

TEST_CASE("a file that all ranks have alike is taken, wherever it lies") {
  const OwnFolder folder;
  for (const char* inputs : {"staged", "fetched"}) {
    write("tuning", row_of(inputs));
    CHECK(sums_are_right(with_tuning("tuning")));
  }
}

TEST_CASE("a file that one rank lacks is an error on all ranks that names the rank and the file") {
  const OwnFolder folder;
  if (!test::is_last()) write("tuning", row_of("staged"));
  CHECK(is_refused(with_tuning("tuning"), ErrorCode::io,
                   {test::last(), "TUTTI_TUNING=tuning: cannot read this file; expected learn, "}));
  CHECK(sums_are_right(with_tuning("learn")));
}

TEST_CASE("a folder in the file's place is an error on all ranks, too") {
  const OwnFolder folder;
  if (test::is_last()) std::filesystem::create_directory("tuning");
  if (!test::is_last()) write("tuning", row_of("staged"));
  CHECK(is_refused(with_tuning("tuning"), ErrorCode::io,
                   {test::last(), "TUTTI_TUNING=tuning: cannot read this file"}));
}

TEST_CASE("a file that differs on one rank is an error on all ranks, in any layout") {
  const OwnFolder folder;
  write("tuning", row_of(test::is_last() ? "fetched" : "staged"));
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    Settings settings = with_tuning("tuning");
    settings.ranks_per_node = layout;
    CHECK(is_refused(settings, ErrorCode::mismatch,
                     {test::last(), "TUTTI_TUNING=tuning: the file of ",
                      "has other contents than that of rank 0; give all ranks the same file"}));
  }
  CHECK(sums_are_right(with_tuning("static")));
}

TEST_CASE("a mistake in the file of one rank is named on all ranks, with its line") {
  const OwnFolder folder;
  write("tuning", test::is_last() ? kFirstLine + "ranks=none\n" : row_of("staged"));
  CHECK(is_refused(with_tuning("tuning"), ErrorCode::invalid_argument,
                   {test::last(), "tuning, line 2: 'ranks=none': expected a number above 0"}));
}

TEST_CASE("ranks that are given other files, or one a file and others none, are told so") {
  const OwnFolder folder;
  for (const char* name : {"tuning", "other"}) write(name, row_of("staged"));
  for (const std::string tuning : {"tuning", "learn", "static"}) {
    CAPTURE(tuning);
    const Settings settings = with_tuning(test::is_last() ? "other" : tuning);
    CHECK(is_refused(settings, ErrorCode::invalid_argument,
                     {"ranks differ in their settings: rank 0 ", "TUTTI_TUNING=" + tuning,
                      test::last(), "TUTTI_TUNING=other"}));
  }
}
