// SPDX-License-Identifier: Apache-2.0
// Compressed pushes: what arrives, and what is refused.
#include <map>

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/mpi/store_fixture.hpp"
#include "tests/support/compression_reference.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"

using test::CompressionReference;
using test::Floats;
using tutti::ConstTensorView;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;
using tutti::TensorView;

// --- sums ----------------------------------------------------------------------------------------

// Pushes under gradient compression: what every rank must then hold, bit by bit.

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

// --- rules ---------------------------------------------------------------------------------------

// What compression means to the other calls of a store: updaters, outputs, lists, errors.

namespace {

constexpr std::int64_t kCount = 70001;  // above the size from which outputs are written directly

Tensor gradient_of(int owner, int step) {
  return test::random_tensor({kCount}, DType::float32, owner, 5 + static_cast<std::uint64_t>(step));
}

Floats floats_of(const ConstTensorView& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

/// "2bit,threshold=2" of every rank's gradient_of().
class TwoBitSum {
 public:
  TwoBitSum()
      : ranks_(static_cast<std::size_t>(test::size()), CompressionReference("2bit", 2, kCount)) {}

  Tensor step(int step) {
    std::vector<Floats> sent;
    for (int rank = 0; rank < test::size(); ++rank) {
      sent.push_back(
          ranks_[static_cast<std::size_t>(rank)].step(floats_of(gradient_of(rank, step))));
    }
    Tensor sum = Tensor::empty({kCount});
    std::ranges::copy(test::reduced(tutti::ReduceOp::sum, sent), sum.values<float>().begin());
    return sum;
  }

 private:
  std::vector<CompressionReference> ranks_;
};
constexpr const char* kTwoBit = "2bit,threshold=2";

KVStore two_bit_store() {
  KVStore kv = test::dist();
  kv.init(3, test::filled(1, {kCount}));
  kv.set_gradient_compression(kTwoBit);
  return kv;
}

bool holds(const KVStore& kv, const Tensor& expected) {
  return test::agree(test::same_bits(test::stored(kv, 3), expected));
}

}  // namespace

TEST_CASE("optimizers and updaters see the sum of what was sent") {
  const auto updater = [](const Key&, ConstTensorView merged, TensorView stored) {
    stored += 0.25 * merged;
  };
  for (const char* optimizer : {"", "sgd,momentum=0.9", "adam", "lamb"}) {
    CAPTURE(std::string(optimizer));
    KVStore kv = two_bit_store();
    KVStore plain = KVStore::create("local");
    plain.init(3, test::filled(1, {kCount}));
    for (KVStore* store : {&kv, &plain}) {
      if (*optimizer == '\0') store->set_updater(updater);
      if (*optimizer != '\0') store->set_optimizer(tutti::optimizer::create(optimizer));
    }
    TwoBitSum reference;
    for (int step = 0; step < 3; ++step) {
      kv.push(3, gradient_of(test::rank(), step));
      plain.push(3, reference.step(step));
      REQUIRE(holds(kv, test::stored(plain, 3)));
    }
  }
}

TEST_CASE("init and pull are not compressed") {
  KVStore kv = test::dist();
  kv.set_gradient_compression("1bit");
  kv.init(3, gradient_of(test::rank(), 0));
  CHECK(holds(kv, gradient_of(0, 0)));
}

TEST_CASE("lists of values and repeated keys are summed before they are compressed") {
  KVStore kv = two_bit_store();
  TwoBitSum reference;
  const Tensor expected = reference.step(0);
  const Tensor gradient = gradient_of(test::rank(), 0);
  Tensor quarter = Tensor::zeros({kCount});
  quarter.view() += 0.25 * ConstTensorView(gradient);
  kv.push(3, {quarter, quarter, quarter, quarter});
  CHECK(holds(kv, expected));
  kv.set_gradient_compression(kTwoBit);
  kv.push({3, 3, 3, 3}, {quarter, quarter, quarter, quarter});
  CHECK(holds(kv, expected));
}

TEST_CASE("pushpull writes sums to its outputs, also over the values themselves") {
  for (const bool in_store : {true, false}) {
    CAPTURE(in_store);
    KVStore kv = two_bit_store();
    TwoBitSum reference;
    Tensor value = in_store ? kv.allocate({kCount}) : Tensor::empty({kCount});
    Tensor output = in_store ? kv.allocate({kCount}) : Tensor::empty({kCount});
    for (int step = 0; step < 4; ++step) {
      value.view().copy_from(gradient_of(test::rank(), step));
      const Tensor expected = reference.step(step);
      if (step % 2 == 0) {
        kv.pushpull(3, value, output);
        CHECK(test::agree(test::same_bits(output, expected)));
      } else {
        kv.pushpull(3, value);
        CHECK(test::agree(test::same_bits(value, expected)));
      }
      REQUIRE(holds(kv, expected));
    }
  }
}

TEST_CASE("a key may be pushed from its own replica") {
  KVStore kv = two_bit_store();
  kv.push(3, kv.view(3));
  CHECK(test::all_are(kv.view(3), 0.0f));
  kv.set_gradient_compression("1bit");
  kv.push(3, kv.view(3));
  CHECK(test::all_are(kv.view(3), static_cast<float>(-test::size())));
}

TEST_CASE("setting a compression begins with residuals of zero; none sends everything") {
  KVStore kv = two_bit_store();
  TwoBitSum reference;
  const Tensor first = reference.step(0);
  kv.push(3, gradient_of(test::rank(), 0));
  CHECK(holds(kv, first));
  kv.set_gradient_compression(kTwoBit);
  kv.push(3, gradient_of(test::rank(), 0));
  CHECK(holds(kv, first));
  kv.set_gradient_compression("none");
  kv.push(3, gradient_of(test::rank(), 0));
  CHECK(holds(
      kv, test::reduced_random(tutti::ReduceOp::sum, {kCount}, DType::float32, test::size(), 5)));
}

TEST_CASE("a checkpoint from before the first push begins with residuals of zero") {
  test::with_folder([](const test::fs::path& folder) {
    KVStore kv = two_bit_store();
    kv.save(folder / "dist");
    for (int turn = 0; turn < 2; ++turn) {
      CAPTURE(turn);
      TwoBitSum reference;
      kv.push(3, gradient_of(test::rank(), 0));
      CHECK(holds(kv, reference.step(0)));
      kv.push(3, gradient_of(test::rank(), 1));
      CHECK(holds(kv, reference.step(1)));
      kv.load(folder / "dist");
    }
  });
}

TEST_CASE("a push that is refused or differs between ranks leaves the residuals alone") {
  KVStore kv = two_bit_store();
  kv.init(4, test::filled(0, {kCount}));
  TwoBitSum reference;
  kv.push(3, gradient_of(test::rank(), 0));
  CHECK(holds(kv, reference.step(0)));
  CHECK(test::throws_on_all(
      [&] {
        if (test::rank() == test::size() - 1) return kv.push(3, test::filled(1));
        kv.push(3, gradient_of(test::rank(), 1));
      },
      ErrorCode::invalid_argument, {"push: key 3 (70001) float32: a value has shape (2, 3)"}));
  if (test::size() > 1) {
    CHECK(test::throws_on_all(
        [&] { kv.push(test::rank() == 0 ? 3 : 4, gradient_of(test::rank(), 1)); },
        ErrorCode::mismatch,
        {"push of key 3 (70001) float32, compressed by 2bit,threshold=2,leg=all", "key 4"}));
  }
  kv.push(3, gradient_of(test::rank(), 2));
  CHECK(holds(kv, reference.step(2)));
}

TEST_CASE("keys that are not float32 are refused on every rank") {
  for (const char* text : {"2bit", "1bit", "fp16", "bf16", "topk", "2bit,leg=between"}) {
    CAPTURE(std::string(text));
    KVStore kv = test::dist();
    kv.init("wide", Tensor::zeros({3}, DType::float64));
    kv.set_gradient_compression(text);
    const std::string name = std::string(text).substr(0, 4);
    CHECK(test::throws_on_all([&] { kv.push("wide", Tensor::zeros({3}, DType::float64)); },
                              ErrorCode::invalid_argument,
                              {"push: key wide (3) float64: " + name,
                               "compresses float32 values only", "a store without compression"}));
    kv.set_gradient_compression("none");
    kv.push("wide", Tensor::zeros({3}, DType::float64));
  }
}

TEST_CASE("ranks that compress differently are told so") {
  if (test::size() == 1) return;
  const std::vector<std::pair<const char*, const char*>> pairs = {{"2bit", "none"},
                                                                  {"2bit", "1bit"},
                                                                  {"2bit", "2bit,threshold=0.25"},
                                                                  {"topk", "topk,ratio=0.02"},
                                                                  {"2bit", "2bit,leg=between"},
                                                                  {"fp16", "bf16"}};
  for (const auto& [first, second] : pairs) {
    const char* other = second;  // clang before version 16 captures no structured binding
    CAPTURE(std::string(other));
    KVStore kv = test::dist();
    kv.init(3, test::filled(0));
    kv.set_gradient_compression(test::rank() == 0 ? first : other);
    CHECK(test::throws_on_all(
        [&] { kv.push(3, test::filled(1)); }, ErrorCode::mismatch,
        {"compressed by " + tutti::compression::to_string(tutti::compression::create(first))}));
  }
}

TEST_CASE("what depends on the layout is refused where reproducibility is asked for") {
  KVStore kv = KVStore::create("dist", test::settings_for(test::one_node(), true));
  CHECK(test::throws_on_all([&] { kv.set_gradient_compression("2bit,leg=between"); },
                            ErrorCode::invalid_argument,
                            {"leg=between", "TUTTI_REPRODUCIBLE=1", "use leg=all"}));
  kv.set_gradient_compression("2bit,leg=all");
}

TEST_CASE("an updater cannot change the compression") {
  KVStore kv = test::dist();
  kv.init(3, test::filled(0));
  std::string text;
  kv.set_updater([&](const Key&, ConstTensorView, TensorView) {
    try {
      kv.set_gradient_compression("2bit");
    } catch (const tutti::Error& error) {
      text = error.what();
    }
  });
  kv.push(3, test::filled(1));
  CHECK(test::agree(text.starts_with("set_gradient_compression is a collective call")));
}
