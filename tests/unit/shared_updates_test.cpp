// SPDX-License-Identifier: Apache-2.0
// Updates that the ranks of a node share: each makes its part, with the same bits on all as where
// each makes all.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <stdexcept>

#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "collectives/node/call.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/scratch_folder.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using collectives::UpdatedArray;
using test::values_of;

namespace {

constexpr const char* kUpdated = "results=updated";

Settings sharing(const std::string& algorithms, Verify verify = Verify::off) {
  Settings settings;
  settings.chunk_bytes = 4096;
  settings.timeout = std::chrono::seconds(60);
  settings.algorithms = algorithms;
  settings.verify = verify;
  return settings;
}

// --- one call ------------------------------------------------------------------------------------

/// A consumer that adds the sum to a weight, and keeps twice the sum in a wider state.
class Adder final : public collectives::Consumer {
 public:
  /// `in_arena`: the state lies in the arena.
  Adder(Group& group, std::size_t count, bool in_arena)
      : weight_(group.allocate({static_cast<std::int64_t>(count)}, DType::float32)),
        state_(in_arena ? group.allocate(weight_.shape(), DType::float64)
                        : Tensor::zeros(weight_.shape(), DType::float64)),
        places_{{weight_.bytes(), sizeof(float)}, {state_.bytes(), sizeof(double)}} {}

  void consume(std::size_t, std::size_t first, std::size_t count, const std::byte* sum) override {
    const auto* const values = reinterpret_cast<const float*>(sum);
    for (std::size_t i = 0; i < count; ++i) {
      weight_.values<float>()[first + i] += values[i];
      state_.values<double>()[first + i] += 2.0 * static_cast<double>(values[i]);
    }
    consumed_ += count;
  }
  [[nodiscard]] bool takes_any_order() const override { return true; }
  [[nodiscard]] std::span<const UpdatedArray> updated_arrays(std::size_t) const override {
    return places_;
  }

  [[nodiscard]] std::size_t consumed() const { return consumed_; }
  [[nodiscard]] bool has(const std::vector<float>& sums) const {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (weight_.values<float>()[i] != sums[i]) return false;
      if (state_.values<double>()[i] != 2.0 * static_cast<double>(sums[i])) return false;
    }
    return true;
  }
  [[nodiscard]] std::byte* weight() { return weight_.bytes(); }

 private:
  Tensor weight_;
  Tensor state_;
  std::vector<UpdatedArray> places_;
  std::atomic<std::size_t> consumed_{0};
};

struct Consumed {
  std::size_t on_all = 0;  ///< elements that the consumers of all ranks have taken
  int right = 0;           ///< ranks that have the sums
};

/// Makes one sum of `count` elements. `apart`: a rank whose state peers cannot write; -1 for none.
Consumed consume_sum(int ranks, const Settings& settings, std::size_t count, int apart = -1) {
  const auto summands = test::summands_of(ranks, std::span(&count, 1)).front();
  std::atomic<std::size_t> consumed{0};
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({ranks}, settings, [&](Communicator& comm) {
    Adder adder(*comm.group(), count, comm.rank() != apart);
    const std::vector<float>& own = summands.inputs[static_cast<std::size_t>(comm.rank())];
    const collectives::Segment segment{reinterpret_cast<const std::byte*>(own.data()),
                                       adder.weight(), count, DType::float32};
    const auto text = [] { return std::string("a sum"); };
    comm.group()->engine().run({.kind = collectives::Kind::allreduce,
                                .segments = {&segment, 1},
                                .consumer = &adder,
                                .describe = text});
    consumed += adder.consumed();
    if (adder.has(summands.sum)) ++right;
  });
  CHECK(test::all_returned(outcomes));
  return {consumed, right};
}

}  // namespace

TEST_CASE("of a shared update each rank makes its part, and all ranks have all") {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const std::size_t count : {2049u, 5003u, 20001u}) {
      for (const char* inputs : {"staged", "fetched"}) {
        if (test::is_emulated() && *inputs == 'f') continue;
        CAPTURE(ranks);
        CAPTURE(count);
        const auto algorithms = std::string(kUpdated) + ",inputs=" + inputs;
        const Consumed got = consume_sum(ranks, sharing(algorithms), count);
        CHECK(got.on_all == count);
        CHECK(got.right == ranks);
      }
    }
  }
}

TEST_CASE("a rank's threads share its part") {
  Settings settings = sharing(kUpdated);
  settings.threads = 3;
  const std::size_t count = 300'001;
  const Consumed got = consume_sum(2, settings, count);
  CHECK(got.on_all == count);
  CHECK(got.right == 2);
}

TEST_CASE("where peers cannot write a rank's state, each rank updates for itself") {
  for (const int apart : {0, 2}) {
    const Consumed got = consume_sum(3, sharing(kUpdated), 5003, apart);
    CHECK(got.on_all == 3 * 5003);
    CHECK(got.right == 3);
  }
}

TEST_CASE("a small update is made by each rank") {
  for (const std::size_t count : {std::size_t{1}, collectives::kInlineInNode / sizeof(float)}) {
    const Consumed got = consume_sum(2, sharing(kUpdated), count);
    CHECK(got.on_all == 2 * count);
    CHECK(got.right == 2);
  }
}

namespace {

/// A consumer with arrays to share, which throws or does nothing.
struct Thrower final : collectives::Consumer {
  static constexpr std::int64_t kCount = 5003;

  Thrower(Group& group, bool does_throw)
      : weight(group.allocate({kCount}, DType::float32)),
        place{weight.bytes(), sizeof(float)},
        throws(does_throw) {}
  void consume(std::size_t, std::size_t, std::size_t, const std::byte*) override {
    if (throws) throw std::runtime_error("no more");
  }
  [[nodiscard]] bool takes_any_order() const override { return true; }
  [[nodiscard]] std::span<const UpdatedArray> updated_arrays(std::size_t) const override {
    return {&place, 1};
  }

  Tensor weight;
  UpdatedArray place;
  bool throws;
};

}  // namespace

TEST_CASE("what a consumer throws in a shared update, all ranks throw") {
  const auto outcomes = test::as_ranks({3}, sharing(kUpdated), [&](Communicator& comm) {
    Thrower consumer(*comm.group(), comm.rank() == 1);
    const Tensor input = Tensor::ones({Thrower::kCount});
    const collectives::Segment segment{input.bytes(), consumer.weight.bytes(),
                                       static_cast<std::size_t>(Thrower::kCount), DType::float32};
    const auto text = [] { return std::string("a sum"); };
    comm.group()->engine().run({.kind = collectives::Kind::allreduce,
                                .segments = {&segment, 1},
                                .consumer = &consumer,
                                .describe = text});
  });
  CHECK(test::all_say(outcomes, ErrorCode::user_code, "no more"));
}

// --- pushes --------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kSizes[] = {0, 1, 5003, 20001};

Tensor random_tensor(int rank, std::size_t count, DType dtype) {
  const std::vector<float> values = values_of(rank, count);
  const ConstTensorView exact = view(values.data(), {static_cast<std::int64_t>(count)});
  Tensor tensor = Tensor::zeros(exact.shape(), dtype);
  for (std::size_t i = 0; i < count; ++i) {
    if (dtype == DType::float64) tensor.values<double>()[i] = static_cast<double>(values[i]);
  }
  if (dtype == DType::float32) tensor.view().copy_from(exact);
  if (size_of(dtype) == 2) {
    const auto* from = reinterpret_cast<const std::byte*>(values.data());
    std::byte* to = tensor.bytes();
    collectives::reduce({ReduceOp::sum, DType::float32, dtype}, {&from, 1}, {&to, 1}, count,
                        collectives::WritePolicy::cached);
  }
  return tensor;
}

/// The weights of all keys on each rank, after pushes of single keys and of lists.
std::vector<test::Bits> weights_after(int ranks, const Settings& settings, const std::string& name,
                                      DType dtype) {
  std::vector<test::Bits> weights(static_cast<std::size_t>(ranks));
  const auto outcomes = test::as_ranks({ranks}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.set_optimizer(optimizer::create(name));
    std::vector<Key> keys;
    std::vector<Tensor> gradients;
    for (const std::size_t count : kSizes) {
      keys.emplace_back(static_cast<std::int64_t>(keys.size()));
      kv.init(keys.back(), random_tensor(99, count, dtype));
      gradients.push_back(random_tensor(comm.rank(), count, dtype));
    }
    for (int round = 0; round < (test::kFewRounds ? 5 : 14); ++round) {
      kv.push(keys, gradients);
      kv.push(3, gradients[3]);
      kv.push(2, kv.view(2));  // the replica itself
    }
    CHECK(kv.verify().healed == 0);  // compares the states, too
    for (const Key& key : keys) {
      test::append(weights[static_cast<std::size_t>(comm.rank())], kv.view(key));
    }
  });
  CHECK(test::all_returned(outcomes));
  return weights;
}

}  // namespace

TEST_CASE("shared updates have the bits of those that each rank makes" *
          doctest::skip(test::is_emulated())) {
  const std::pair<const char*, DType> rules[] = {
      {"sgd,learning_rate=0.01", DType::float32},
      {"sgd,learning_rate=0.01,momentum=0.9", DType::float32},
      {"adam,learning_rate=0.01", DType::float64},
      {"sgld,learning_rate=0.01", DType::float32},
      {"adam,learning_rate=0.01,multi_precision=true", DType::bfloat16},
      {"sgd,learning_rate=0.01,momentum=0.9,multi_precision=true", DType::float16}};
  for (const int ranks : {2, 3, 4}) {
    for (const auto& rule : rules) {
      if (test::kFewCases && ranks != 3) continue;
      const char* const name = rule.first;
      const DType dtype = rule.second;
      CAPTURE(ranks);
      CAPTURE(name);
      const auto expected = weights_after(ranks, sharing("results=spread"), name, dtype);
      for (const test::Bits& bits : expected) CHECK((bits == expected.front()));
      for (const char* way : {"", ",inputs=fetched", ",streamed-slots=0", ",streamed-slots=1G"}) {
        CHECK(
            (weights_after(ranks, sharing(kUpdated + std::string(way)), name, dtype) == expected));
      }
      CHECK((weights_after(ranks, sharing("paths=in-turn"), name, dtype) == expected));
      CHECK((weights_after(ranks, sharing(""), name, dtype) == expected));
    }
  }
}

// --- the conditions of sharing -------------------------------------------------------------------

namespace {

constexpr std::int64_t kElements = 6000;

/// Writable memory of a replica, to imitate an error of memory.
float* writable(const KVStore& kv, const Key& key) {
  return reinterpret_cast<float*>(const_cast<std::byte*>(kv.view(key).bytes()));
}

/// Changes the first element on the last rank and pushes. True if the push overwrote it, because
/// the first rank updates it for all.
bool is_shared(KVStore& kv, const Communicator& comm) {
  constexpr float kWrong = 1e6F;
  float* const weights = writable(kv, 1);
  const float right = *weights;
  if (comm.rank() == comm.size() - 1) *weights = kWrong;
  kv.push(1, Tensor::zeros({kElements}));
  if (*weights == right) return true;
  *weights = right;
  return false;
}

void check_shared(bool expected, const Settings& settings, const std::string& name) {
  const auto outcomes = test::as_ranks({3}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({kElements}, 1));
    kv.set_optimizer(optimizer::create(name));
    const bool is_last = comm.rank() == comm.size() - 1;
    if (is_last) CHECK(is_shared(kv, comm) == expected);
    if (!is_last) is_shared(kv, comm);
  });
  CHECK(test::all_returned(outcomes));
}

}  // namespace

TEST_CASE("updates are shared where no sample of replicas is compared") {
  const char* name = "sgd,momentum=0.9";
  check_shared(true, sharing(kUpdated), name);
  check_shared(false, sharing("results=spread"), name);
  check_shared(false, sharing(kUpdated, Verify::sampled), name);
}

TEST_CASE("updates that need whole tensors, or scaled gradients, are not shared") {
  for (const char* name : {"lars", "lamb", "sgd,clip_global_norm=1"}) {
    CAPTURE(std::string(name));
    check_shared(false, sharing(kUpdated), name);
  }
}

TEST_CASE("a list with more weights and states than an announcement names is not shared") {
  constexpr std::int64_t kKeys = 6000;  // with adam three places each; 131,072 bytes name 16,384
  const auto outcomes = test::as_ranks({2}, sharing(kUpdated), [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    std::vector<Key> keys;
    std::vector<Tensor> values;
    for (std::int64_t key = 0; key < kKeys; ++key) {
      keys.emplace_back(key);
      values.push_back(Tensor::full({3}, static_cast<double>(key)));
    }
    kv.init(keys, values);
    kv.set_optimizer(optimizer::create("adam,learning_rate=0.5"));
    kv.push(keys, values);
    kv.push(keys, values);
    CHECK(kv.verify().healed == 0);
    CHECK(kv.view(kKeys - 1).values<float>()[2] == doctest::Approx(kKeys - 2));
    float* const weights = writable(kv, 0);
    if (comm.rank() == 1) *weights = 7;  // a shared update would write 0
    kv.push(keys, values);
    CHECK(*weights == (comm.rank() == 1 ? 7 : 0));
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("what a bit did in one replica is found before it is shared, if all is compared") {
  Settings settings = sharing(kUpdated, Verify::full);
  settings.log = LogLevel::quiet;
  const auto outcomes = test::as_ranks({3}, settings, [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({kElements}, 1));
    kv.set_optimizer(optimizer::create("adam"));
    kv.push(1, Tensor::zeros({kElements}));
    if (comm.rank() == 0) *writable(kv, 1) = 7;
    kv.push(1, Tensor::zeros({kElements}));
    CHECK(kv.view(1).values<float>()[0] == 1);
    CHECK(kv.verify().healed_since_creation == 1);
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("loaded states are shared, and states of another optimizer") {
  const test::ScratchFolder folder;
  const auto outcomes = test::as_ranks({2}, sharing(kUpdated), [&](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    kv.init(1, Tensor::full({kElements}, 1));
    kv.set_optimizer(optimizer::create("adam"));
    is_shared(kv, comm);
    kv.save(folder.path() / "all");
    kv.save_optimizer_states(folder.path() / "states");
    const auto check = [&] {
      const bool shared = is_shared(kv, comm);
      if (comm.rank() == 1) CHECK(shared);
    };
    check();
    kv.load(folder.path() / "all");
    check();
    kv.load_optimizer_states(folder.path() / "states");
    check();
    kv.set_optimizer(optimizer::create("sgd,momentum=0.5"));
    check();
  });
  CHECK(test::all_returned(outcomes));
}
