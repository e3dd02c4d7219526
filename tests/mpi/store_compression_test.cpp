// SPDX-License-Identifier: Apache-2.0
// Pushes under gradient compression: what every rank must then hold, bit by bit.
#include <map>

#include "tests/mpi/layouts.hpp"
#include "tests/mpi/oracle.hpp"
#include "tests/mpi/store_fixture.hpp"
#include "tests/support/compression_reference.hpp"

using test::CompressionReference;
using test::Floats;
using tutti::DType;
using tutti::ErrorCode;
using tutti::KVStore;
using tutti::Tensor;

namespace {

const std::vector<std::size_t> kCounts = {0, 1, 3, 4, 5, 1021, 70001};
constexpr int kSteps = 4;

struct Format {
  std::string name;
  double option;
  [[nodiscard]] std::string text(const std::string& leg = "all") const {
    const std::string of_type = name == "topk" ? ",ratio=" : ",threshold=";
    const bool has_option = name == "2bit" || name == "1bit" || name == "topk";
    return name + (has_option ? of_type + std::to_string(option) : "") + ",leg=" + leg;
  }
};
const std::vector<Format> kFormats = {{"2bit", 0.5}, {"2bit", 3}, {"1bit", 0.25},
                                      {"fp16", 0},   {"bf16", 0}, {"topk", 0.125}};

Floats gradient_of(int owner, std::size_t count, int step) {
  return test::random_values<float>(count, owner, 31 + static_cast<std::uint64_t>(step));
}

Tensor tensor_of(const Floats& values) {
  Tensor tensor = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::float32);
  std::ranges::copy(values, tensor.values<float>().begin());
  return tensor;
}

/// The senders of one key: the ranks, or the nodes of a layout, each with the sum over its ranks.
class Senders {
 public:
  Senders(const Format& format, std::size_t count, const test::Layout& ranks_of)
      : ranks_of_(ranks_of),
        references_(ranks_of.size(), CompressionReference(format.name, format.option, count)) {}

  Floats sum_of_step(std::size_t count, int step) {
    std::vector<Floats> sent;
    int first = 0;
    for (std::size_t sender = 0; sender < ranks_of_.size(); ++sender) {
      std::vector<Floats> gradients;
      for (int i = 0; i < ranks_of_[sender]; ++i) {
        gradients.push_back(gradient_of(first++, count, step));
      }
      sent.push_back(references_[sender].step(test::reduced(tutti::ReduceOp::sum, gradients)));
    }
    return test::reduced(tutti::ReduceOp::sum, sent);
  }

 private:
  test::Layout ranks_of_;
  std::vector<CompressionReference> references_;
};

test::Layout each_rank() { return test::Layout(static_cast<std::size_t>(test::size()), 1); }

/// A store with a key of each count, filled with zeros.
KVStore store_of(const tutti::Settings& settings, const std::string& compression) {
  KVStore kv = KVStore::create("dist", settings);
  for (const std::size_t count : kCounts) kv.init(count, tensor_of(Floats(count, 0.0f)));
  kv.set_gradient_compression(compression);
  return kv;
}

void push_step(KVStore& kv, int step, bool in_store) {
  std::vector<tutti::Key> keys;
  std::vector<Tensor> values;
  for (const std::size_t count : kCounts) {
    keys.emplace_back(count);
    const Tensor value = tensor_of(gradient_of(test::rank(), count, step));
    values.push_back(in_store ? kv.allocate(value.shape()) : Tensor::empty(value.shape()));
    values.back().view().copy_from(value);
  }
  std::vector<tutti::ConstTensorView> views(values.begin(), values.end());
  kv.push(keys, views);
}

/// Several pushes of all keys at once; after each, every key holds what its senders sent.
void check_pushes(const tutti::Settings& settings, const std::string& compression,
                  const Format& format, const test::Layout& ranks_of_senders) {
  CAPTURE(compression);
  KVStore kv = store_of(settings, compression);
  std::map<std::size_t, Senders> senders;
  for (const std::size_t count : kCounts) {
    senders.emplace(count, Senders(format, count, ranks_of_senders));
  }
  for (int step = 0; step < kSteps; ++step) {
    CAPTURE(step);
    push_step(kv, step, step % 2 == 0);
    for (const std::size_t count : kCounts) {
      CAPTURE(count);
      const Tensor expected = tensor_of(senders.at(count).sum_of_step(count, step));
      REQUIRE(test::agree(test::same_bits(test::stored(kv, count), expected)));
    }
  }
}

}  // namespace

TEST_CASE("leg=all: every rank sums what all ranks sent, in the canonical order") {
  for (const Format& format : kFormats) {
    check_pushes(test::settings(), format.text(), format, each_rank());
  }
}

TEST_CASE("leg=all gives the same bits on every layout and with every size of chunks") {
  for (const Format& format : {kFormats[0], kFormats[2], kFormats[3], kFormats[5]}) {
    for (const test::Layout& layout : test::all_layouts()) {
      CAPTURE(test::to_string(layout));
      tutti::Settings settings = test::settings_for(layout, layout.size() % 2 == 0);
      check_pushes(settings, format.text(), format, each_rank());
    }
    for (const std::size_t bytes : {std::size_t{4096}, std::size_t{65536}}) {
      CAPTURE(bytes);
      tutti::Settings settings = test::settings();
      settings.chunk_bytes = bytes;
      settings.piece_bytes = bytes;
      check_pushes(settings, format.text(), format, each_rank());
    }
  }
}

TEST_CASE("leg=between: nodes send their sums, packed; one node alone loses nothing") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    const tutti::Settings settings = test::settings_for(layout);
    if (layout.size() == 1) {
      check_pushes(settings, "2bit,leg=between", {"none", 0}, layout);
      continue;
    }
    for (const Format& format : kFormats) {
      if (format.name == "topk") continue;  // see below
      check_pushes(settings, format.text("between"), format, layout);
    }
  }
}

TEST_CASE("leg=between: top-k chooses within pieces, sends the largest, and forgets nothing") {
  constexpr std::ptrdiff_t kCount = 70001;
  for (const test::Layout& layout : test::all_layouts()) {
    if (layout.size() == 1) continue;
    CAPTURE(test::to_string(layout));
    KVStore kv = KVStore::create("dist", test::settings_for(layout));
    kv.init(1, tensor_of(Floats(kCount, 0.0f)));
    kv.set_gradient_compression("topk,ratio=0.25,leg=between");
    Floats arrived(kCount, 0.0f);
    Floats pushed(kCount, 0.0f);
    for (int step = 0; step < 40; ++step) {
      // A push of ones, then of zeros until everything has been sent.
      const float value = step == 0 ? 1.0f : 0.0f;
      kv.push(1, tensor_of(Floats(kCount, value)));
      const Tensor sum = test::stored(kv, 1);
      REQUIRE(test::same_on_all(test::bytes_of(sum)));
      const auto sums = sum.values<float>();
      const auto sent = std::ranges::count_if(sums, [](float one) { return one != 0.0f; });
      if (step < 3) CHECK(test::agree(sent >= kCount / 4 && sent <= kCount / 4 + 200));
      for (std::size_t i = 0; i < kCount; ++i) {
        arrived[i] += sums[i];
        pushed[i] += value * static_cast<float>(test::size());
      }
    }
    CHECK(test::agree(arrived == pushed));
  }
}

TEST_CASE("leg=between: what is small enough for a handshake is packed all the same") {
  for (const test::Layout& layout : test::all_layouts()) {
    if (layout.size() == 1) continue;
    CAPTURE(test::to_string(layout));
    KVStore kv = store_of(test::settings_for(layout), "1bit,threshold=0.25,leg=between");
    Senders senders({"1bit", 0.25}, 5, layout);
    for (int step = 0; step < kSteps; ++step) {
      kv.push(5, tensor_of(gradient_of(test::rank(), 5, step)));
      const Tensor expected = tensor_of(senders.sum_of_step(5, step));
      REQUIRE(test::agree(test::same_bits(test::stored(kv, 5), expected)));
    }
  }
}
