// SPDX-License-Identifier: Apache-2.0
// Compressions from text: every option reaches its field, and every mistake its error.
#include <doctest/doctest.h>

#include "tutti/compression.hpp"
#include "tutti/kvstore.hpp"

#include "tests/unit/expect_error.hpp"

using namespace tutti;
using compression::create;
using compression::Leg;
using compression::to_string;

namespace {

void check_refused(const std::string& text, const std::vector<std::string>& words) {
  CAPTURE(text);
  test::expect_error([&] { (void)create(text); }, ErrorCode::invalid_argument, words);
}

void check_refused(const Compression& options, const std::vector<std::string>& words) {
  KVStore kv = KVStore::create("local");
  test::expect_error([&] { kv.set_gradient_compression(options); }, ErrorCode::invalid_argument,
                     words);
}

}  // namespace

TEST_CASE("a text gives the compression that its struct gives, and reads back") {
  const auto same = [](const std::string& text, const Compression& typed) {
    CAPTURE(text);
    CHECK(to_string(create(text)) == to_string(typed));
    CHECK(to_string(create(to_string(typed))) == to_string(typed));
  };
  same("none", compression::None{});
  same("2bit", compression::TwoBit{});
  same("2bit,threshold=0.25", compression::TwoBit{.threshold = 0.25});
  same("2bit,leg=between,threshold=2", compression::TwoBit{2.0, Leg::between});
  same("1bit,threshold=-0.5", compression::OneBit{.threshold = -0.5});
  same("fp16", compression::Float16{});
  same("bf16,leg=between", compression::BFloat16{.leg = Leg::between});
  same("topk,ratio=0.01", compression::TopK{});
  same("topk,ratio=1,leg=all", compression::TopK{.ratio = 1});
  CHECK(to_string(create("2bit")) == "2bit,threshold=0.5,leg=all");
}

TEST_CASE("an unknown name or option is refused with the nearest and all known ones") {
  check_refused("3bit", {"unknown compression '3bit', did you mean 2bit?",
                         "none, 2bit, 1bit, fp16, bf16, topk"});
  check_refused("", {"unknown compression ''"});
  check_refused("2bit,treshold=1", {"compression 2bit: unknown option 'treshold'",
                                    "did you mean threshold?", "threshold, leg"});
  check_refused("2bit,factor=1", {"unknown option 'factor'"});
  check_refused("fp16,threshold=1", {"compression fp16: unknown option 'threshold'"});
  check_refused("none,leg=all", {"unknown option 'leg'"});
  check_refused("2bit,threshold", {"expected option=value", "'threshold'"});
  check_refused("2bit,threshold=1,threshold=1", {"'threshold' is given twice"});
}

TEST_CASE("a value that is out of its range is refused") {
  for (const char* value : {"0", "-1", "inf", "nan", "1e-60", "1e60"}) {
    check_refused(std::string("2bit,threshold=") + value,
                  {"compression 2bit: threshold=", "expected a number above 0 that float32"});
  }
  check_refused("2bit,threshold=half", {"threshold=half: expected a number above 0"});
  check_refused("1bit,threshold=inf", {"1bit: threshold=inf: expected a number that float32"});
  for (const char* value : {"0", "-0.1", "1.01", "nan"}) {
    check_refused(std::string("topk,ratio=") + value,
                  {"compression topk: ratio=", "expected a number above 0, at most 1"});
  }
  check_refused("2bit,leg=both", {"leg=both: expected all or between"});
  check_refused(compression::TwoBit{.threshold = 0}, {"compression 2bit: threshold=0: expected"});
  check_refused(compression::TopK{.ratio = 2}, {"compression topk: ratio=2: expected"});
}

TEST_CASE("the help names every compression with its defaults") {
  for (const std::string& name : compression::names()) {
    CHECK(compression::help().find("  " + to_string(create(name)) + "\n") != std::string::npos);
  }
}
