// SPDX-License-Identifier: Apache-2.0
// Gradient compression: its arithmetic, and its options as text.
#include "tutti/compression.hpp"

#include <bit>
#include <doctest/doctest.h>
#include <limits>
#include <random>
#include <span>

#include "tutti/kvstore.hpp"

#include "collectives/compression/codec.hpp"
#include "collectives/compression/quantise.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/compression_reference.hpp"
#include "tests/unit/threads.hpp"

using namespace tutti::collectives;
using test::Bytes;
using test::CompressionReference;
using test::Floats;
using test::same_bits;
using namespace tutti;
using compression::create;
using compression::Leg;
using compression::to_string;

// --- numbers -------------------------------------------------------------------------------------

// The formats of gradient compression: bytes, residuals, sums.

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<std::size_t> kCounts = {0, 1, 3, 4, 5, 7, 8, 9, 511, 512, 513, 2049, 40001};

struct Format {
  std::string name;
  double option;
  std::unique_ptr<Codec> codec;
};

std::vector<Format> formats() {
  std::vector<Format> all;
  for (const float threshold : {0.5f, 0.01f}) {
    all.push_back({"2bit", threshold, two_bit_codec(threshold)});
  }
  for (const float threshold : {0.5f, 0.0f, -0.25f}) {
    all.push_back({"1bit", threshold, one_bit_codec(threshold)});
  }
  all.push_back({"fp16", 0, half_codec(tutti::DType::float16)});
  all.push_back({"bf16", 0, half_codec(tutti::DType::bfloat16)});
  for (const double ratio : {0.01, 0.3, 1.0}) {
    all.push_back({"topk", ratio, top_k_codec(ratio)});
  }
  return all;
}

Floats random_gradient(std::size_t count, std::mt19937& engine) {
  std::normal_distribution<float> normal(0.0f, 0.6f);
  Floats values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

Bytes packed(const Codec& codec, const Floats& gradient, const Floats& residual) {
  // One byte more, to check that it is not written.
  Bytes bytes(codec.packed_bytes(gradient.size()) + 1, std::byte{0xA5});
  codec.pack(gradient.data(), residual.data(), gradient.size(), bytes.data());
  CHECK(bytes.back() == std::byte{0xA5});
  bytes.pop_back();
  return bytes;
}

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

Floats unpacked(const Codec& codec, const Bytes& bytes, std::size_t count) {
  Floats values(count);
  codec.unpack(bytes.data(), {count, 0, count}, values.data());
  return values;
}

}  // namespace

TEST_CASE("2bit puts four values in a byte, the first in the most significant bits") {
  const auto codec = two_bit_codec(0.5f);
  const Floats gradient = {0.5f, -0.5f, 0.49f, -0.49f, 9.0f, -kInfinity, 0.0f, kInfinity, 1.0f};
  const Floats residual(gradient.size(), 0.0f);
  const Bytes bytes = packed(*codec, gradient, residual);
  CHECK(bytes == bytes_of({0b11100000, 0b11100011, 0b11000000}));
  const Floats expected = {0.5f, -0.5f, 0, 0, 0.5f, -0.5f, 0, 0.5f, 0.5f};
  CHECK(same_bits(unpacked(*codec, bytes, 9), expected));
}

TEST_CASE("1bit puts eight values in a byte, the first in the most significant bit") {
  const auto codec = one_bit_codec(0.5f);
  const Floats gradient = {0.6f, 0.5f, -1.0f, 2.0f, 0.0f, 0.51f, kInfinity, 0.5f, 7.0f, 0.0f};
  const Floats residual(gradient.size(), 0.0f);
  const Bytes bytes = packed(*codec, gradient, residual);
  CHECK(bytes == bytes_of({0b10010110, 0b10000000}));
  CHECK(same_bits(unpacked(*codec, bytes, 10), Floats{1, -1, -1, 1, -1, 1, 1, -1, 1, -1}));
}

TEST_CASE("the residual goes into what is packed, and loses what was sent") {
  const auto two = two_bit_codec(0.5f);
  Floats residual = {0.25f, -0.25f, 0.0f};
  const Floats gradient = {0.25f, -0.5f, 0.375f};
  const Bytes bytes = packed(*two, gradient, residual);
  CHECK(bytes == bytes_of({0b11100000}));
  CHECK(same_bits(residual, Floats{0.25f, -0.25f, 0.0f}));  // not changed yet
  two->feed_back(gradient.data(), residual.data(), 3, bytes.data());
  CHECK(same_bits(residual, Floats{0.0f, -0.25f, 0.375f}));

  const auto one = one_bit_codec(0.5f);
  residual = {0.25f, -0.25f, 0.0f};
  one->feed_back(gradient.data(), residual.data(), 3, packed(*one, gradient, residual).data());
  CHECK(same_bits(residual, Floats{1.5f, 0.25f, 1.375f}));  // 0.5 is not above the threshold: -1
}

TEST_CASE("top-k sends index and value, the lower index of equals, and a NaN first") {
  const auto codec = top_k_codec(0.5);
  const Floats gradient = {1.0f, -2.0f, 2.0f, 0.5f, -1.0f};
  Floats residual = {0.0f, 0.0f, 0.0f, 0.5f, 0.0f};
  const Bytes bytes = packed(*codec, gradient, residual);
  // ceil(2.5) = 3 pairs: (0, 1), (1, -2), (2, 2); 3 and 4 have magnitude 1, too.
  CHECK(bytes == bytes_of({0, 0, 0, 0,    0, 0, 0x80, 0x3F, 1, 0, 0, 0,
                           0, 0, 0, 0xC0, 2, 0, 0,    0,    0, 0, 0, 0x40}));
  codec->feed_back(gradient.data(), residual.data(), 5, bytes.data());
  CHECK(same_bits(residual, Floats{0.0f, 0.0f, 0.0f, 1.0f, -1.0f}));

  const Floats odd = {kInfinity, 3.0f, std::numeric_limits<float>::quiet_NaN(), 1.0f};
  const Floats sent = unpacked(*codec, packed(*codec, odd, Floats(4, 0.0f)), 4);
  CHECK(sent[0] == kInfinity);
  CHECK(sent[1] == 0.0f);
  CHECK(std::isnan(sent[2]));
}

TEST_CASE("over many steps of random gradients, every format sends what its definition says") {
  std::mt19937 engine(7);
  for (const Format& format : formats()) {
    for (const std::size_t count : kCounts) {
      CAPTURE(format.name);
      CAPTURE(format.option);
      CAPTURE(count);
      CompressionReference reference(format.name, format.option, count);
      Floats residual(count, 0.0f);
      for (int step = 0; step < (count < 3000 ? 25 : 4); ++step) {
        const Floats gradient = random_gradient(count, engine);
        const Floats sent = reference.step(gradient);
        const Bytes bytes = packed(*format.codec, gradient, residual);
        format.codec->feed_back(gradient.data(), residual.data(), count, bytes.data());
        REQUIRE(bytes == reference.packed);
        REQUIRE(same_bits(unpacked(*format.codec, bytes, count), sent));
        if (format.codec->has_residual()) REQUIRE(same_bits(residual, reference.residual));
      }
    }
  }
}

TEST_CASE("top-k is exact where its sample misleads it") {
  const auto codec = top_k_codec(0.01);
  const std::size_t count = 100000;
  const Floats none(count, 0.0f);
  std::mt19937 engine(5);
  for (const int shape : {0, 1, 2}) {
    Floats gradient(count, 0.0f);  // all equal
    if (shape == 1) gradient = random_gradient(count, engine);
    for (std::size_t i = 0; i < 900; ++i) {
      if (shape == 1) gradient[i] += 9.0f;               // the largest in one place
      if (shape == 2) gradient[i * 12 + i % 12] = 1.0f;  // only in the places of the sample
    }
    CompressionReference reference("topk", 0.01, count);
    const Floats sent = reference.step(gradient);
    const Bytes bytes = packed(*codec, gradient, none);
    CHECK(bytes == reference.packed);
  }
}

TEST_CASE("a tensor that is cut at multiples of kCut gives the bytes of the whole") {
  std::mt19937 engine(11);
  const std::size_t count = 1003;
  for (const Format& format : formats()) {
    if (!format.codec->can_cut()) continue;
    CAPTURE(format.name);
    const Floats gradient = random_gradient(count, engine);
    const Floats residual = random_gradient(count, engine);
    const Bytes whole = packed(*format.codec, gradient, residual);
    Bytes pieces(whole.size());
    std::byte* to = pieces.data();
    for (std::size_t first = 0, now = Codec::kCut; first < count; first += now, now *= 3) {
      now = std::min(now, count - first);
      format.codec->pack(gradient.data() + first, residual.data() + first, now, to);
      to += format.codec->packed_bytes(now);
    }
    CHECK(pieces == whole);
  }
}

TEST_CASE("sums are in the canonical order, whatever range is asked for") {
  std::mt19937 engine(3);
  const std::size_t count = 5003;
  for (const Format& format : formats()) {
    for (const std::size_t senders : {1, 2, 3, 5, 9}) {
      CAPTURE(format.name);
      CAPTURE(senders);
      std::vector<Bytes> blocks;
      std::vector<Floats> values;
      std::vector<const std::byte*> packs;
      for (std::size_t sender = 0; sender < senders; ++sender) {
        blocks.push_back(
            packed(*format.codec, random_gradient(count, engine), random_gradient(count, engine)));
        values.push_back(unpacked(*format.codec, blocks.back(), count));
      }
      for (const Bytes& block : blocks) packs.push_back(block.data());
      const Floats expected = test::expected_sum(values);
      Codec::Workspace workspace;
      for (const std::size_t step : {std::size_t{8}, std::size_t{1000}, Codec::kTile}) {
        Floats sums(count);
        for (std::size_t first = 0; first < count; first += step) {
          const std::size_t now = std::min(step, count - first);
          format.codec->sum(packs, {count, first, now}, workspace, sums.data() + first);
        }
        CHECK(same_bits(sums, expected));
      }
    }
  }
}

TEST_CASE("every instruction set gives the same bits") {
  std::mt19937 engine(13);
  const QuantiseKernels& plain = *quantise_with(Isa::plain);
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    const QuantiseKernels* kernels = quantise_with(isa);
    if (kernels == nullptr) continue;
    for (std::size_t count = 0; count < kMagnitudes; count += 1 + count / 7) {
      CAPTURE(count);
      Floats gradient = random_gradient(count, engine);
      const Floats residual = random_gradient(count, engine);
      if (count > 5) gradient[3] = -0.0f;
      if (count > 5) gradient[4] = -kInfinity;
      const auto of = [&](const QuantiseKernels& which) {
        Bytes bytes(count + 2);
        which.pack_two_bit(gradient.data(), residual.data(), count, 0.5f, bytes.data());
        which.pack_one_bit(gradient.data(), residual.data(), count, 0.1f,
                           bytes.data() + count / 2 + 1);
        std::vector<Floats> all;
        for (const auto feed_back : {which.feed_back_two_bit, which.feed_back_one_bit}) {
          all.push_back(residual);
          feed_back(gradient.data(), all.back().data(), count, 0.5f);
        }
        all.push_back(residual);
        which.accumulate(gradient.data(), all.back().data(), count);
        std::vector<std::int32_t> integers(2 * kMagnitudes);
        which.magnitudes(gradient.data(), residual.data(), count, integers.data(),
                         integers.data() + kMagnitudes);
        const auto* begin = reinterpret_cast<const std::byte*>(integers.data());
        bytes.insert(bytes.end(), begin, begin + integers.size() * sizeof(std::int32_t));
        for (const Floats& one : all) {
          const auto* first = reinterpret_cast<const std::byte*>(one.data());
          bytes.insert(bytes.end(), first, first + count * sizeof(float));
        }
        return bytes;
      };
      REQUIRE(of(*kernels) == of(plain));
    }
  }
}

// --- options -------------------------------------------------------------------------------------

// Compressions from text: every option reaches its field, and every mistake its error.

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
