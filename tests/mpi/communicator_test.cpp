// SPDX-License-Identifier: Apache-2.0
// The collectives without keys.
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tutti/kvstore.hpp"

#include "tests/support/effort.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::ReduceOp;
using tutti::Tensor;

namespace {

constexpr std::initializer_list<ReduceOp> kOps = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min,
                                                  ReduceOp::max, ReduceOp::avg};

bool is_defined(ReduceOp op, DType dtype) {
  return op != ReduceOp::avg || dtype == DType::float16 || dtype == DType::bfloat16 ||
         dtype == DType::float32 || dtype == DType::float64;
}

Communicator new_world() { return Communicator::world(test::settings()); }

bool allreduce_is_right(Communicator& world, std::int64_t count, DType dtype, ReduceOp op) {
  Tensor tensor = test::random_tensor({count}, dtype, test::rank());
  world.allreduce(tensor, op);
  return test::same_bits(tensor, test::reduced_random(op, {count}, dtype, test::size()));
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TEST_CASE("allreduce gives sum, prod, min, max and avg of every dtype, in the canonical order") {
  Communicator world = new_world();
  for (const DType dtype : test::kDTypes) {
    for (const ReduceOp op : kOps) {
      if (!is_defined(op, dtype)) continue;
      for (const std::int64_t count : {1, 7, 255, 256, 257, 1031}) {
        CAPTURE(std::string(tutti::to_string(dtype)));
        CAPTURE(std::string(tutti::to_string(op)));
        CAPTURE(count);
        CHECK(test::agree(allreduce_is_right(world, count, dtype, op)));
      }
    }
  }
}

TEST_CASE("the average of integers is refused on every rank, by every call") {
  Communicator world = new_world();
  const std::vector<std::string> words = {"avg of int32", "floating-point", "use sum"};
  Tensor tensor = Tensor::ones({test::size()}, DType::int32);
  Tensor block = Tensor::ones({1}, DType::int32);
  CHECK(test::throws_on_all([&] { world.allreduce(tensor, ReduceOp::avg); },
                            ErrorCode::invalid_argument, words));
  CHECK(test::throws_on_all([&] { world.reduce(tensor, tensor, 0, ReduceOp::avg); },
                            ErrorCode::invalid_argument, words));
  CHECK(test::throws_on_all([&] { world.reduce_scatter(tensor, block, ReduceOp::avg); },
                            ErrorCode::invalid_argument, words));
  CHECK(test::throws_on_all([&] { world.allreduce_async(tensor, ReduceOp::avg).wait(); },
                            ErrorCode::invalid_argument, words));
}

TEST_CASE("an average on one rank against a sum on the others is a mismatch that says so") {
  if (test::size() == 1) return;
  Communicator world = new_world();
  Tensor tensor = Tensor::ones({3});
  const ReduceOp op = test::is_last() ? ReduceOp::avg : ReduceOp::sum;
  CHECK(test::throws_on_all([&] { world.allreduce(tensor, op); }, ErrorCode::mismatch,
                            {"allreduce (avg)", "allreduce (sum)", test::last()}));
}

TEST_CASE("averages have the same bits in every layout that keeps the order") {
  for (const bool reproducible : {false, true}) {
    for (const test::Layout& layout : reproducible ? test::all_layouts() : test::equal_blocks()) {
      CAPTURE(test::to_string(layout));
      Communicator world = Communicator::world(test::settings_for(layout, reproducible));
      for (const DType dtype : {DType::float16, DType::float32, DType::float64}) {
        if (!reproducible && dtype == DType::float16) continue;  // rounded between nodes
        for (const std::int64_t count : {0, 1, 7, 5003, 100003}) {
          CHECK(test::agree(allreduce_is_right(world, count, dtype, ReduceOp::avg)));
        }
      }
    }
  }
}

TEST_CASE("allreduce of sizes 0, 1, 2, odd and large gives the sum") {
  Communicator world = new_world();
  for (const std::int64_t count : {0, 1, 2, 3, 31, 33, 4095, 4097, 65537, 1 << 20}) {
    CAPTURE(count);
    CHECK(test::agree(allreduce_is_right(world, count, DType::float32, ReduceOp::sum)));
    if (count < 100000) {
      CHECK(test::agree(allreduce_is_right(world, count, DType::float64, ReduceOp::sum)));
      CHECK(test::agree(allreduce_is_right(world, count, DType::bfloat16, ReduceOp::sum)));
      CHECK(test::agree(allreduce_is_right(world, count, DType::uint8, ReduceOp::max)));
    }
  }
}

TEST_CASE("allreduce out of place leaves the input, and ranks may differ in place and memory") {
  Communicator world = new_world();
  for (const std::int64_t count : {1, 257, 70001}) {
    const tutti::Shape shape = {count};
    const Tensor input = test::random_tensor(shape, DType::float32, test::rank());
    const Tensor expected =
        test::reduced_random(ReduceOp::sum, shape, DType::float32, test::size());
    for (int variant = 0; variant < 8; ++variant) {
      CAPTURE(variant);
      const int mine = variant >> (test::rank() % 2);  // neighbours differ
      Tensor copy = (mine & 1) != 0 ? world.allocate(shape) : Tensor::empty(shape);
      Tensor output = (mine & 2) != 0 ? world.allocate(shape) : Tensor::zeros(shape);
      copy.view().copy_from(input);
      const bool in_place = (mine & 4) != 0;
      world.allreduce(copy, in_place ? copy.view() : output.view());
      CHECK(test::agree(test::same_bits(in_place ? copy : output, expected)));
      CHECK(test::agree(in_place || test::same_bits(copy, input)));
    }
  }
}

TEST_CASE("min and max give NaN where a rank has NaN, and order -0 below +0") {
  Communicator world = new_world();
  const int size = test::size();
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    Tensor tensor = Tensor::zeros({2 * size + 1});
    for (int i = 0; i < size; ++i) {
      if (i == test::rank()) {
        tensor.values<float>()[i] = std::numeric_limits<float>::quiet_NaN();
        tensor.values<float>()[size + i] = -0.0f;
      }
    }
    world.allreduce(tensor, op);
    const auto values = tensor.values<float>();
    bool right = !std::signbit(values[2 * size]);
    for (int i = 0; i < size; ++i) {
      const bool below_zero = op == ReduceOp::min || size == 1;
      right = right && std::isnan(values[i]) && std::signbit(values[size + i]) == below_zero;
    }
    CHECK(test::agree(right));
    CHECK(test::same_on_all(test::bytes_of(tensor)));
  }
}

TEST_CASE("a sum starts from the first operand: -0 on all ranks stays -0, infinities stay") {
  Communicator world = new_world();
  Tensor tensor = Tensor::full({3}, -0.0);
  tensor.values<float>()[1] = std::numeric_limits<float>::infinity();
  tensor.values<float>()[2] = std::numeric_limits<float>::denorm_min();
  world.allreduce(tensor);
  const auto values = tensor.values<float>();
  const float tiny = std::numeric_limits<float>::denorm_min() * static_cast<float>(test::size());
  CHECK(test::agree(std::signbit(values[0]) && std::isinf(values[1]) && values[2] == tiny));
}

TEST_CASE("broadcast gives every rank the root's bits, from every root, of every dtype and size") {
  Communicator world = new_world();
  for (const std::int64_t count : {0, 1, 2, 255, 256, 257, 65537}) {
    for (int root = 0; root < test::size(); ++root) {
      for (const DType dtype : {DType::float32, DType::uint8, DType::int64, DType::float16}) {
        Tensor tensor = test::random_tensor({count}, dtype, test::rank());
        world.broadcast(tensor, root);
        CHECK(test::agree(test::same_bits(tensor, test::random_tensor({count}, dtype, root))));
      }
    }
  }
}

TEST_CASE("many broadcasts and reductions in a row, with some ranks slow, stay apart") {
  Communicator world = new_world();
  bool right = true;
  for (int i = 0; i < 400; ++i) {
    if (i % 40 == test::rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Tensor tensor = Tensor::full({1 + i % 300}, 1000 * test::rank() + i);
    const int root = (i / 2) % test::size();
    if (i % 2 == 0) {
      world.broadcast(tensor, root);
      right = right && tensor.values<float>().back() == static_cast<float>(1000 * root + i);
    } else {
      world.allreduce(tensor, ReduceOp::max);
      right = right &&
              tensor.values<float>().back() == static_cast<float>(1000 * (test::size() - 1) + i);
    }
  }
  CHECK(test::agree(right));
}

TEST_CASE("barrier returns on no rank before every rank has called it") {
  for (const test::Layout& layout : {test::one_node(), test::Layout{1}}) {
    Communicator world = Communicator::world(test::settings_for(layout));
    for (int late = 0; late < test::size(); ++late) {
      if (test::rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const double came = now();
      world.barrier();
      const double left = now();
      CHECK(test::agree(left >= test::largest(came)));
    }
  }
}

TEST_CASE("agree: the error of the lowest failing rank reaches every rank with the same text") {
  Communicator world = new_world();
  for (int lowest = 0; lowest < test::size(); ++lowest) {
    const auto error = test::error_of([&] {
      world.agree([&] {
        if (test::rank() < lowest) return;
        throw tutti::Error(ErrorCode::corrupt_file,
                           "bad checksum, found by rank " + std::to_string(test::rank()));
      });
    });
    REQUIRE(
        test::agree(test::is_refusal(error, ErrorCode::corrupt_file,
                                     {"bad checksum, found by rank " + std::to_string(lowest)})));
    const std::string text = error->what();
    CHECK(test::same_on_all(std::as_bytes(std::span(text))));
  }
  Tensor tensor = Tensor::ones({2});
  world.allreduce(tensor);
  CHECK(test::agree(tensor.values<float>()[1] == static_cast<float>(test::size())));
}

TEST_CASE("agree: too little memory on one rank is out_of_memory on every rank") {
  Communicator world = new_world();
  CHECK(test::throws_on_all(
      [&] {
        world.agree([&] {
          if (test::rank() == test::size() - 1) throw std::bad_alloc();
        });
      },
      ErrorCode::out_of_memory, {"rank " + std::to_string(test::size() - 1), "no memory"}));
}

TEST_CASE("agree: replicas that differ, to one rank, are an error of every rank") {
  Communicator world = new_world();
  CHECK(test::throws_on_all(
      [&] {
        world.agree([&] {
          if (test::rank() == test::size() - 1) {
            throw tutti::Error(ErrorCode::divergence, "the loss is not finite");
          }
        });
      },
      ErrorCode::divergence,
      {"rank " + std::to_string(test::size() - 1), "the loss is not finite"}));
  world.barrier();
}

TEST_CASE("a call of more chunks than can be counted is refused on every rank") {
  if (test::size() == 1) return;  // one rank counts none
  tutti::Settings settings = test::settings();
  settings.chunk_bytes = 4096;
  Communicator world = Communicator::world(settings);
  float element = 0;
  constexpr std::int64_t kCount = std::int64_t{1} << 54;  // of which nothing is read or written
  const tutti::TensorView huge(reinterpret_cast<std::byte*>(&element), {kCount}, DType::float32);
  CHECK(test::throws_on_all([&] { world.allreduce(huge); }, ErrorCode::invalid_argument,
                            {"72057594037927936 bytes in chunks of ", "raise TUTTI_CHUNK_BYTES"}));
  CHECK(test::agree(allreduce_is_right(world, 1031, DType::float32, ReduceOp::sum)));
}

// It ends without a word to the others, who would take a destructor's for the rank's own.
TEST_CASE("a process that a rank forks may not make its calls, and says nothing in its name") {
  if (test::kFewRounds) {
    MESSAGE("skipped: the locks of a sanitizer's allocator do not survive a fork beside threads");
    return;
  }
  auto world = std::make_unique<Communicator>(new_world());
  auto kv = std::make_unique<tutti::KVStore>(tutti::KVStore::create("dist", test::settings()));
  kv->init(0, Tensor::zeros({2}));
  Tensor tensor = Tensor::ones({2});
  const tutti::Pending pushed = kv->push_async(0, tensor);  // maybe under way at the fork
  const pid_t child = fork();
  if (child == 0) {
    const auto is_refused = [&](const auto& call) {
      const auto error = test::error_of(call);
      return error.has_value() && error->code() == ErrorCode::invalid_argument &&
             std::string(error->what()).find("was forked by rank ") != std::string::npos;
    };
    const bool is_right = is_refused([&] { world->allreduce(tensor); }) &&
                          is_refused([&] { world->allreduce_async(tensor); }) &&
                          is_refused([&] { kv->push(0, tensor); }) &&
                          is_refused([&] { kv->pull(0, tensor); }) &&
                          is_refused([&] { static_cast<void>(world->allocate({2})); }) &&
                          (pushed.ready() || is_refused([&] { pushed.wait(); }));
    *kv = tutti::KVStore::create("local");
    kv.reset();
    world.reset();
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  pushed.wait();
  CHECK(test::agree(status == 0));
  CHECK(test::agree(allreduce_is_right(*world, 257, DType::float32, ReduceOp::sum)));
  kv->push(0, Tensor::ones({2}));
  kv->barrier();
}

TEST_CASE("agree: an exception of another type on one rank throws on every rank with its text") {
  Communicator world = new_world();
  std::string text;
  try {
    world.agree([&] {
      if (test::rank() == test::size() - 1)
        throw std::runtime_error("vanished: " + std::string(600, 'x'));
    });
  } catch (const std::exception& error) {
    text = error.what();
  }
  CHECK(test::agree(text.find("vanished: xxx") != std::string::npos));
  world.barrier();
}

TEST_CASE("the number of nodes, the node and the local rank follow the layout") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    const Communicator world = Communicator::world(test::settings_for(layout));
    int node = 0;
    int first = 0;
    while (test::rank() >= first + layout[static_cast<std::size_t>(node)]) {
      first += layout[static_cast<std::size_t>(node++)];
    }
    CHECK(test::agree(world.rank() == test::rank() && world.size() == test::size()));
    CHECK(test::agree(world.num_nodes() == static_cast<int>(layout.size())));
    CHECK(test::agree(world.node() == node && world.local_rank() == test::rank() - first));
    CHECK(test::agree(world.local_size() == layout[static_cast<std::size_t>(node)]));
  }
}

TEST_CASE("one number of ranks per node is repeated, the last node takes what is left") {
  const Communicator world = Communicator::world(test::settings_for({2}));
  CHECK(test::agree(world.num_nodes() == (test::size() + 1) / 2));
  CHECK(test::agree(world.node() == test::rank() / 2 && world.local_rank() == test::rank() % 2));
}

TEST_CASE("self is one rank on one node") {
  Communicator self = Communicator::self(test::settings());
  CHECK(test::agree(self.rank() == 0 && self.size() == 1 && self.num_nodes() == 1 &&
                    self.node() == 0 && self.local_rank() == 0 && self.local_size() == 1));
  Tensor input = test::random_tensor({1023}, DType::float32, test::rank());
  Tensor output = self.allocate({1023});
  self.allreduce(input, output);
  self.broadcast(output, 0);
  self.barrier();
  CHECK(test::agree(test::same_bits(output, input)));
}

TEST_CASE("allocate gives zeros, of any size, aligned to 128 bytes") {
  Communicator world = new_world();
  for (const std::int64_t count : {0, 1, 1000, 1000000}) {
    const Tensor tensor = world.allocate({count}, DType::int64);
    bool zero = reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 128 == 0;
    for (const std::int64_t value : tensor.values<std::int64_t>()) zero = zero && value == 0;
    CHECK(test::agree(zero));
  }
}

TEST_CASE("memory that is given back is used again: no end of allocations in a small arena") {
  tutti::Settings settings = test::settings();
  settings.arena_bytes = std::size_t{64} << 20;
  Communicator world = Communicator::world(settings);
  bool zero = true;
  for (int i = 0; i < 100; ++i) {
    Tensor tensor = world.allocate({1 << 20});
    zero = zero && tensor.values<float>()[i] == 0 && tensor.values<float>().back() == 0;
    tensor.fill(1);
  }
  CHECK(test::agree(zero));
}

TEST_CASE("what no address space has room for is refused, and memory goes on as before") {
  Communicator world = Communicator::world(test::settings());
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& shape : {tutti::Shape{most}, tutti::Shape{std::int64_t{1} << 62}}) {
    const auto error = test::error_of([&] { (void)world.allocate(shape); });
    CHECK(test::agree(error && error->code() == ErrorCode::out_of_memory && error->recoverable() &&
                      std::string(error->what()).find(to_string(shape)) != std::string::npos));
  }
  const Tensor one = world.allocate({7});
  const Tensor two = world.allocate({7});
  CHECK(test::agree(one.bytes() != two.bytes()));
}

TEST_CASE("ranks that log more than others sum small data as they do") {
  tutti::Settings settings = test::settings();
  if (test::rank() == 0) settings.log = tutti::LogLevel::debug;
  Communicator world = Communicator::world(settings);
  bool right = true;
  for (int call = 1; call <= 4; ++call) {
    for (const std::int64_t count : {1, 6, 7}) {
      Tensor data = Tensor::full({count}, call * (1 + test::rank()));
      world.allreduce(data);
      const double all = call * test::size() * (test::size() + 1) / 2;
      right =
          right && data.value(0) == all && data.value(static_cast<std::size_t>(count) - 1) == all;
    }
  }
  CHECK(test::agree(right));
}
