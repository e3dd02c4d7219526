// SPDX-License-Identifier: Apache-2.0
// What goes wrong with one rank's GPU: all ranks are told, none waits.
#include <chrono>
#include <doctest/doctest.h>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/support/fake_accelerator.hpp"
#include "tests/support/require_equal.hpp"
#include "tests/unit/threads.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::KVStore;
using tutti::Settings;
using tutti::Tensor;

namespace {

const std::vector<std::vector<int>> kSmallLayouts = {{3}, {1, 2}, {2, 2}};

float first_of(const KVStore& kv, const tutti::Key& key, std::int64_t count) {
  Tensor out = Tensor::zeros({count});
  kv.pull(key, out);
  return out.values<float>()[0];
}

/// All blocks of this size. Small ones come from elsewhere.
void take_all(std::vector<Tensor>& taken, std::int64_t count, tutti::Device device) {
  try {
    while (true) taken.push_back(Tensor::empty({count}, DType::float32, device));
  } catch (const tutti::Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
}

/// Every rank pushes again and again; before its second push rank 1 does this to its GPU.
template <class Spoil>
test::Outcomes push_while(const std::vector<int>& layout, const Settings& settings, Spoil spoil) {
  return test::as_ranks(layout, settings, [&](Communicator& communicator) {
    auto kv = KVStore::create(communicator);
    const auto mine = gpu(communicator.rank());
    kv.init(1, Tensor::zeros({100}, DType::float32, mine));
    const Tensor value = Tensor::ones({100}, DType::float32, mine);
    kv.push(1, value);
    tutti::synchronize(mine);
    kv.barrier();
    if (communicator.rank() == 1) spoil();
    kv.push(1, value);
    kv.push(1, value);
  });
}

}  // namespace

TEST_CASE("too little memory on one rank is refused by all, and the store goes on") {
  constexpr std::int64_t kCount = 300'000;
  constexpr std::size_t kMemory = std::size_t{16} << 20;
  for (const auto& layout : kSmallLayouts) {
    for (const char* path : {"auto", "host"}) {
      const test::FakeGpus gpus(test::size_of_job(layout), 3, kMemory);
      const auto outcomes = test::as_ranks(layout, test::by(path), [&](Communicator& communicator) {
        auto kv = KVStore::create(communicator);
        const auto mine = gpu(communicator.rank());
        for (const int key : {1, 2}) {
          kv.init(key, Tensor::zeros({key == 1 ? kCount : 4}, DType::float32, mine));
        }
        const Tensor value = Tensor::ones({kCount}, DType::float32, mine);
        std::vector<Tensor> taken;
        if (communicator.rank() == 1) take_all(taken, kCount, mine);
        const auto check_throws = [&](const char* words, const std::function<void()>& call) {
          try {
            call();
          } catch (const tutti::Error& error) {
            if (error.code() != ErrorCode::out_of_memory || !error.recoverable()) throw;
            if (std::string(error.what()).find(words) != std::string::npos) return;
            throw;
          }
          test::fail_here(std::string("expected an error, \"") + words + "...\", got none");
        };
        check_throws("push: ", [&] { kv.push(1, value); });
        kv.push(2, Tensor::ones({4}, DType::float32, mine));
        const auto sum = static_cast<float>(communicator.size());
        test::require_equal(first_of(kv, 2, 4), sum, "key 2");
        taken.clear();
        kv.push(1, value);
        test::require_equal(first_of(kv, 1, kCount), sum, "key 1");
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("memory that cannot be pinned is replaced by some that can") {
  for (const auto& layout : kSmallLayouts) {
    for (const char* path : {"auto", "host"}) {
      const test::FakeGpus gpus(test::size_of_job(layout), 9);
      gpus->refuse_to_pin();
      const auto outcomes = test::as_ranks(layout, test::by(path), [&](Communicator& communicator) {
        auto kv = KVStore::create(communicator);
        const auto mine = gpu(communicator.rank());
        kv.init(1, Tensor::zeros({3'000'000}, DType::float32, mine));
        kv.push(1, Tensor::ones({3'000'000}, DType::float32, mine));
        test::require_equal(first_of(kv, 1, 3'000'000), static_cast<float>(communicator.size()),
                            "key 1");
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("a GPU that breaks down in the middle of a push ends it on every rank at once") {
  for (const auto& layout : kSmallLayouts) {
    for (const char* path : {"auto", "host"}) {
      Settings settings = test::by(path);
      settings.timeout = std::chrono::hours(1);  // beyond the test's own limit: it plays no part
      const test::FakeGpus gpus(test::size_of_job(layout), 5);
      const auto outcomes = push_while(layout, settings, [&] { gpus->break_down(1); });
      CHECK(test::all_say(outcomes, ErrorCode::communication, "rank 1 (host"));
      CHECK(test::all_say(outcomes, ErrorCode::communication, "gpu(1) is broken"));
    }
  }
}

TEST_CASE("a GPU that hangs ends the push of every rank by the deadline, and names its rank") {
  for (const auto& layout : kSmallLayouts) {
    for (const char* path : {"auto", "host"}) {
      Settings settings = test::by(path);
      settings.timeout = std::chrono::duration<double>(0.5);
      const test::FakeGpus gpus(test::size_of_job(layout), 7);
      const auto outcomes = push_while(layout, settings, [&] { gpus->hang(1); });
      for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
        CAPTURE(rank);
        REQUIRE(outcomes[rank]);
        CHECK(outcomes[rank]->code() == ErrorCode::timeout);
        CHECK_FALSE(outcomes[rank]->recoverable());
        const std::string text = outcomes[rank]->what();
        const bool names_gpu = text.find("for its GPU, whose work has not ended") != text.npos;
        const bool names_rank = text.find("for rank 1 (host") != text.npos;
        CHECK((names_gpu || names_rank));
      }
    }
  }
}

TEST_CASE("a pull from a GPU that hangs has the group's deadline, and hears of a failure before") {
  for (const bool is_told : {false, true}) {
    Settings settings = test::by("auto");
    settings.timeout = std::chrono::duration<double>(is_told ? 300 : 0.5);
    const test::FakeGpus gpus(2, 11);
    const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& communicator) {
      auto kv = KVStore::create(communicator);
      kv.init(1, Tensor::zeros({100}, DType::float32, gpu(communicator.rank())));
      if (communicator.rank() == 0) {
        auto& engine = communicator.group()->engine();
        if (is_told) engine.raise_failure(ErrorCode::communication, "rank 0 gives up");
        return kv.barrier();
      }
      gpus->hang(1);
      static_cast<void>(first_of(kv, 1, 100));
    });
    REQUIRE(outcomes[1]);
    CHECK(outcomes[1]->code() == (is_told ? ErrorCode::communication : ErrorCode::timeout));
    CHECK_FALSE(outcomes[1]->recoverable());
    const std::string text = outcomes[1]->what();
    CAPTURE(text);
    CHECK(text.find(is_told ? "rank 0 gives up" : "a copy from gpu(1)") != std::string::npos);
    REQUIRE(outcomes[0]);
  }
}
