// SPDX-License-Identifier: Apache-2.0
// Digests that differ although the replicas do not.
#include <doctest/doctest.h>

#include "tutti/kvstore.hpp"

#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr std::int64_t kCount = 20000;  // more than a push samples

/// Pushes, and expects the error that says what no comparison can mend; true if nothing changed.
bool is_refused(Communicator& world) {
  KVStore kv = KVStore::create(world);
  kv.init(3, Tensor::ones({kCount}));
  try {
    kv.push(3, Tensor::ones({kCount}));
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool is_right = error.code() == ErrorCode::divergence && error.recoverable() &&
                          text.find("push of key 3") != text.npos &&
                          text.find("again and again") != text.npos;
    kv.barrier();  // all can go on
    return is_right && kv.view(3).values<float>()[7] == 1;
  }
  return false;
}

}  // namespace

// Rank 0 looks at all of a key and the others at parts of it, which is refused where a job starts,
// and is changed here afterwards: it stands for whatever makes equal replicas look different.
TEST_CASE("a difference that comes back after every comparison is an error on all ranks") {
  for (const auto& nodes : std::vector<std::vector<int>>{{3}, {1, 1}}) {
    Settings settings;
    settings.log = LogLevel::quiet;
    settings.verify = Verify::sampled;
    auto groups = make_thread_groups(nodes, settings);
    const_cast<Settings&>(groups[0]->settings()).verify = Verify::full;
    std::vector<char> refused(groups.size(), 0);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        Communicator world(std::move(groups[rank]));
        refused[rank] = is_refused(world) ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const char is_right : refused) CHECK(is_right == 1);
  }
}
