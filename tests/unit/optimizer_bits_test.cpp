// SPDX-License-Identifier: Apache-2.0
// The bits of a weight do not depend on ranges, chunks, layouts, or the memory of gradients.
#include <algorithm>
#include <doctest/doctest.h>
#include <mutex>
#include <random>

#include "tests/support/optimizer_options.hpp"
#include "tests/support/oracle.hpp"
#include "tests/unit/threads.hpp"

using tutti::DType;
using tutti::KVStore;
using tutti::Tensor;

namespace {

/// Elements of the weight, which are no multiple of a power of two.
constexpr std::int64_t kCount = test::kFewCases ? 7001 : 20011;
constexpr int kSteps = 3;

/// Multiples of 1/8 with few bits, whose sums over ranks are exact.
Tensor exact_gradient(int rank, int ranks, int step, DType dtype) {
  Tensor wide = Tensor::zeros({kCount}, DType::float64);
  const auto values = wide.values<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double total =
        static_cast<double>((i * 37 + static_cast<std::size_t>(step) * 11) % 101) / 8 - 6;
    const double part = static_cast<double>(i % 3) / 8;
    values[i] = rank == 0 ? total - part * (ranks - 1) : part;
  }
  Tensor gradient = Tensor::empty({kCount}, dtype);
  gradient.view().copy_from(wide);
  return gradient;
}

/// The bytes of the weight on every rank after some steps.
std::vector<test::Bits> weights(const std::string& text, DType dtype, const std::vector<int>& nodes,
                                std::size_t chunk_bytes, bool in_arena) {
  tutti::Settings settings;
  settings.chunk_bytes = chunk_bytes;
  std::vector<test::Bits> all;
  std::mutex mutex;
  const auto outcomes = test::as_ranks(nodes, settings, [&](tutti::Communicator& world) {
    KVStore kv = KVStore::create(world);
    kv.set_optimizer(tutti::optimizer::create(text));
    kv.init({1, 2}, {test::random_tensor({kCount}, dtype, 0), test::random_tensor({5}, dtype, 0)});
    for (int step = 0; step < kSteps; ++step) {
      Tensor gradient = exact_gradient(world.rank(), world.size(), step, dtype);
      if (in_arena) {
        Tensor shared = kv.allocate({kCount}, dtype);
        shared.view().copy_from(gradient);
        gradient = std::move(shared);
      }
      kv.push(1, gradient);
    }
    const std::lock_guard lock(mutex);
    all.push_back(test::bits_of(kv.view(1)));
  });
  CHECK(test::all_returned(outcomes));
  return all;
}

/// Options that make every branch run: momentum, decay, clipping, centered and whole-tensor ones.
std::string text_of(const std::string& name, DType dtype) {
  std::string text = name + ",weight_decay=0.05,clip_gradient=5,learning_rate=0.01";
  if (test::reference_defaults().at(name).contains("momentum")) text += ",momentum=0.5";
  if (name == "rmsprop") text += ",centered=true";
  if (dtype == DType::float16 || dtype == DType::bfloat16) text += ",multi_precision=true";
  return text;
}

template <class Real>
std::vector<Real> updated_in_ranges(const tutti::Optimizer& optimizer,
                                    const std::vector<std::size_t>& ends) {
  std::vector<Real> weight(kCount);
  std::vector<std::vector<Real>> states(static_cast<std::size_t>(optimizer.num_states()),
                                        std::vector<Real>(kCount));
  const auto random = [](int owner) { return test::random_values<Real>(kCount, owner); };
  weight = random(0);
  for (std::size_t s = 0; s < states.size(); ++s) {
    if (optimizer.starts_as_weight(static_cast<int>(s))) states[s] = weight;
  }
  for (std::uint64_t t = 1; t <= kSteps; ++t) {
    const std::vector<Real> gradient = random(static_cast<int>(t));
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      std::vector<Real*> at;
      for (auto& state : states) at.push_back(state.data() + first);
      const tutti::ElementRange<Real> range{
          .gradient = std::span(gradient).subspan(first, end - first),
          .weight = std::span(weight).subspan(first, end - first),
          .states = at,
          .first = first};
      optimizer.update(optimizer.step(3, t, t), range);
      first = end;
    }
  }
  return weight;
}

}  // namespace

TEST_CASE("elementwise optimizers give the same bits however a tensor is cut into ranges") {
  std::mt19937 engine(11);
  for (const std::string& name : test::optimizer_names()) {
    const auto optimizer = tutti::optimizer::create(text_of(name, DType::float32));
    const bool whole = test::takes_norms(name);
    CHECK(optimizer->elementwise() != whole);
    if (whole) continue;
    CAPTURE(name);
    for (int round = 0; round < (test::kFewRounds ? 1 : 4); ++round) {
      std::vector<std::size_t> ends = {kCount};
      for (int cut = 0; cut < 30; ++cut) ends.push_back(engine() % kCount);
      std::ranges::sort(ends);
      CHECK(updated_in_ranges<float>(*optimizer, ends) ==
            updated_in_ranges<float>(*optimizer, {kCount}));
      CHECK(updated_in_ranges<double>(*optimizer, ends) ==
            updated_in_ranges<double>(*optimizer, {kCount}));
    }
  }
}

TEST_CASE("exact sums: the same weights on 1 to 4 ranks, any layout, chunk size and memory") {
  for (const std::string& name : test::optimizer_names()) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      if (test::kFewCases && dtype != DType::float32) continue;
      const std::string text = text_of(name, dtype);
      CAPTURE(text);
      const test::Bits expected = weights(text, dtype, {1}, 256 << 10, false).front();
      const auto check = [&](const std::vector<int>& nodes, std::size_t chunk, bool in_arena) {
        CAPTURE(nodes.size());
        CAPTURE(chunk);
        for (const test::Bits& found : weights(text, dtype, nodes, chunk, in_arena)) {
          CHECK((found == expected));
        }
      };
      check({1}, 4096, true);
      check({2}, 4096, false);
      check({2}, 256 << 10, true);
      check({3}, 16384, true);
      check({4}, 8192, false);
      check({2, 2}, 4096, true);
      check({1, 2}, 256 << 10, false);
    }
  }
}
