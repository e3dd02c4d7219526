// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files: a written header is read back, and for any bytes the reader returns
// a valid header or throws an error with the reason.
#include "runtime/checkpoint/safetensors.hpp"

#include <doctest/doctest.h>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/checks.hpp"

using tutti::DType;
using tutti::ErrorCode;
using tutti::Shape;
using tutti::checkpoint::Header;
using tutti::checkpoint::TensorInfo;

namespace {

std::string length_of(std::uint64_t bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(bytes >> (8 * i));
  return text;
}

/// Reads a whole file, whose bytes are in memory.
Header read(const std::string& file) {
  const std::uint64_t length = tutti::checkpoint::header_length(file, file.size());
  const std::string_view json = std::string_view(file).substr(8, length);
  return tutti::checkpoint::parse_header(json, file.size() - 8 - length);
}

std::string file_of(const std::string& json, std::size_t data_bytes) {
  return length_of(json.size()) + json + std::string(data_bytes, 'x');
}

struct Malformed {
  std::string file;
  std::string word;  ///< a word of the error's text
};

Malformed json(const std::string& text, std::size_t data_bytes, const std::string& word) {
  return {file_of(text, data_bytes), word};
}

/// A header of a tensor "a" with 8 bytes of data, with these fields.
Malformed fields(const std::string& text, const std::string& word) {
  return json("{\"a\":{" + text + "}}", 8, word);
}

std::vector<Malformed> bad_lengths() {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  return {{"", "0 bytes"},
          {"1234567", "7 bytes"},
          {length_of(1), "length is given as 1 "},
          {length_of(9) + "{}", "length is given as 9 "},
          {length_of(100'000'001) + "{}", "100000001"},
          {length_of(~std::uint64_t{0}) + "{}", "18446744073709551615"},
          {length_of(std::uint64_t{1} << 63) + "{}", "9223372036854775808"},
          {length_of(0) + "{}", "begin with '{'"},
          {length_of(good.size() - 1) + good + "12345678", "not JSON"},
          {length_of(good.size() + 1) + good + "12345678", "not JSON"},
          {file_of(good, 7), "truncated"},
          {file_of(good, 9), "end at byte 8 of 9"},
          {file_of("{}", 3), "end at byte 0 of 3"}};
}

std::vector<Malformed> bad_json() {
  const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  return {json("", 0, "begin with '{'"),
          json(" {}", 0, "begin with '{'"),
          json("[]", 0, "begin with '{'"),
          json("{", 0, "not JSON"),
          json("{}}", 0, "not JSON"),
          json("{} {}", 0, "not JSON"),
          json("{a:1}", 0, "not JSON"),
          json("{\"a\":{\"dtype\":\"F32\",}}", 0, "not JSON"),
          json("{\"a\xff\":" + entry + "}", 0, "not JSON"),
          json("{\"a\xc0\x80\":" + entry + "}", 0, "not JSON"),
          json("{\"\\ud800\":" + entry + "}", 0, "not JSON"),
          json(std::string("{\"a\0\":1}", 8), 0, "not JSON"),
          json("{\"a\":1}", 0, "'a' is a number"),
          json("{\"a\":null}", 0, "'a' is null"),
          json("{\"a\":[]}", 0, "'a' is a list"),
          json("{\"a\":\"b\"}", 0, "'a' is a text"),
          json("{\"a\":" + std::string(100'000, '[') + "}", 0, "'a' is a list"),
          json("{\"a\":" + std::string(100'000, '{') + "}", 0, "not JSON"),
          json("{\"a\":" + entry + ",\"a\":" + entry + "}", 0, "'a' occurs twice"),
          json("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "occurs twice"),
          json("{\"__metadata__\":[]}", 0, "is a list"),
          json("{\"__metadata__\":{\"b\":1}}", 0, "'b' is a number"),
          json("{\"__metadata__\":{\"b\":{}}}", 0, "'b' is an object"),
          json("{\"__metadata__\":{\"b\":\"1\",\"b\":\"2\"}}", 0, "'b' twice")};
}

std::vector<Malformed> bad_fields() {
  return {fields("", "expected dtype, shape and data_offsets"),
          fields(R"("dtype":"F32","shape":[2])", "expected dtype, shape and data_offsets"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1)", "'more'"),
          fields(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])", "dtype occurs"),
          fields(R"("dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8])", "shape occurs"),
          fields(R"("dtype":"BOOL","shape":[8],"data_offsets":[0,8])", "'BOOL'"),
          fields(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])", "'f32'"),
          fields(R"("dtype":7,"shape":[2],"data_offsets":[0,8])", "dtype is a number"),
          fields(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])", "dtype is a list"),
          fields(R"("dtype":"F32","shape":2,"data_offsets":[0,8])", "shape is a number"),
          fields(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", "shape holds a list"),
          fields(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])", "shape holds a text"),
          fields(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", "a negative number"),
          fields(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", "not a whole one"),
          fields(R"("dtype":"F32","shape":[2e0],"data_offsets":[0,8])", "not a whole one"),
          fields(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])", "than 8"),
          fields(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,8])", "2^63"),
          fields(R"("dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8])", "not fit"),
          fields(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8])", "2^63"),
          fields(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,8])", "whole"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":[0])", "not two numbers"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])", "more than 2"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":{"0":8})", "data_offsets is an obj"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", "end before they begin"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])", "reach beyond the 8"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775807])", "beyond"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615])", "2^63"),
          fields(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])", "do not fit (1) float32"),
          fields(R"("dtype":"F32","shape":[2],"data_offsets":[0,7])", "do not fit"),
          fields(R"("dtype":"F64","shape":[2],"data_offsets":[0,8])", "do not fit (2) float64"),
          fields(R"("dtype":"F32","shape":[0],"data_offsets":[0,8])", "do not fit"),
          fields(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", "after a gap")};
}

std::vector<Malformed> bad_coverage() {
  const auto two = [](const std::string& first, const std::string& second,
                      const std::string& word) {
    const std::string start = R"({"dtype":"U8","shape":[4],"data_offsets":)";
    return json("{\"a\":" + start + first + "},\"b\":" + start + second + "}}", 8, word);
  };
  return {two("[0,4]", "[0,4]", "'b' begins at byte 0, which belongs to another"),
          two("[0,4]", "[3,7]", "which belongs to another"),
          two("[2,6]", "[4,8]", "'a' begins at byte 2, after a gap"),
          two("[0,4]", "[5,9]", "reach beyond"), two("[4,8]", "[4,8]", "after a gap")};
}

Header random_header(std::mt19937_64& random) {
  Header header;
  const std::size_t count = random() % 6;
  for (std::size_t i = 0; i < count; ++i) {
    const auto dtype = static_cast<DType>(random() % 8);
    std::vector<std::int64_t> dimensions(random() % 4);
    for (std::int64_t& dimension : dimensions) dimension = static_cast<std::int64_t>(random() % 9);
    header.tensors.push_back({"tensor \"" + std::to_string(i) + "\" \u00e9", dtype,
                              Shape(std::span<const std::int64_t>(dimensions))});
  }
  tutti::checkpoint::lay_out(header.tensors);
  for (std::size_t i = random() % 3; i > 0; --i)
    header.metadata.emplace_back("m" + std::to_string(i), "\n");
  return header;
}

}  // namespace

TEST_CASE("a header that was written is read back, in its order, with aligned data") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const Header header = random_header(random);
    const std::string text = to_text(header);
    CHECK(text.size() % tutti::checkpoint::kDataAlignment == 0);
    const Header found = read(text + std::string(header.data_bytes(), 'x'));
    CHECK(found.metadata == header.metadata);
    REQUIRE(found.tensors.size() == header.tensors.size());
    for (std::size_t t = 0; t < found.tensors.size(); ++t) {
      const TensorInfo& expected = header.tensors[t];
      const TensorInfo& tensor = found.tensors[t];
      CHECK(tensor.name == expected.name);
      CHECK(tensor.dtype == expected.dtype);
      CHECK(tensor.shape == expected.shape);
      CHECK(tensor.begin == expected.begin);
      CHECK(tensor.begin % size_of(tensor.dtype) == 0);
    }
  }
}

TEST_CASE("a header as other libraries write it is read") {
  const Header header = read(file_of(
      R"({"b":{"shape":[],"data_offsets":[8,10],"dtype":"BF16"}, "a" : {"dtype":"F32",
         "shape":[2,1],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}   )",
      10));
  REQUIRE(header.tensors.size() == 2);
  CHECK(header.tensors[0].name == "b");
  CHECK(header.tensors[0].shape == Shape{});
  CHECK(header.tensors[1].shape == Shape{2, 1});
  CHECK(header.text("format") == "pt");
  test::expect_error([&] { (void)header.text("other"); }, ErrorCode::corrupt_file, {"'other'"});
}

TEST_CASE("each malformed file is refused with what is wrong") {
  std::size_t count = 0;
  for (const auto& table : {bad_lengths(), bad_json(), bad_fields(), bad_coverage()}) {
    for (const Malformed& malformed : table) {
      INFO("file: ", malformed.file.substr(0, 200));
      test::expect_error([&] { (void)read(malformed.file); }, ErrorCode::corrupt_file,
                         {malformed.word});
      ++count;
    }
  }
  CHECK(count >= 40);
}

TEST_CASE("a header above the format's limit is refused before it is read, however long the file") {
  const std::uint64_t long_file = std::uint64_t{1} << 40;
  CHECK(tutti::checkpoint::header_length(length_of(100'000'000), long_file) == 100'000'000);
  test::expect_error(
      [&] { (void)tutti::checkpoint::header_length(length_of(100'000'001), long_file); },
      ErrorCode::corrupt_file, {"100000001", "at most 100000000"});
}

TEST_CASE("a long or unprintable name is shown short and clean") {
  test::expect_error([] { (void)read(file_of("{\"" + std::string(5000, 'n') + "\\n\":1}", 0)); },
                     ErrorCode::corrupt_file, {std::string(80, 'n') + "...'"});
  test::expect_error([] { (void)read(file_of("{\"a\\u001b[31m\":1}", 0)); },
                     ErrorCode::corrupt_file, {"'a?[31m'"});
}

TEST_CASE("files with changed, missing and doubled bytes are read or refused, never more") {
  std::mt19937_64 random(2);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const Header header = random_header(random);
    std::string file = to_text(header) + std::string(header.data_bytes(), 'x');
    const std::size_t end = file.find(' ', 8) + 1;
    for (std::size_t change = random() % 4 + 1; change > 0; --change) {
      const std::size_t at = random() % end;
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, random() % 8);
          break;
        case 2:
          file.insert(at, file.substr(random() % end, random() % 40));
          break;
        default:
          file[at] = "{}[]\",:0189e-.x"[random() % 15];
      }
    }
    try {
      const Header found = read(file);
      CHECK(found.data_bytes() <= file.size());
    } catch (const tutti::Error& error) {
      REQUIRE(error.code() == ErrorCode::corrupt_file);
      ++refused;
    }
  }
  CHECK(refused > 10000);
}

TEST_CASE("a name that is not UTF-8 cannot be saved") {
  tutti::checkpoint::require_utf8("na\u00efve", "key");
  test::expect_error([] { tutti::checkpoint::require_utf8("\xff", "key 7"); },
                     ErrorCode::invalid_argument, {"key 7", "UTF-8"});
}
