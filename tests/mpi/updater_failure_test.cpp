// SPDX-License-Identifier: Apache-2.0
// An updater that throws: all ranks get an Error, which on its own rank holds the exception.
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/mpi_test.hpp"

using test::filled;
using tutti::Key;
using tutti::KVStore;

namespace {

void throw_disk_full(const Key&, tutti::ConstTensorView, tutti::TensorView) {
  throw std::runtime_error("disk is full");
}

// The text of the exception that is nested in the Error that `body` throws; empty if there is none.
std::string original_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const tutti::Error& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (const std::runtime_error& original) {
      return original.what();
    }
  }
  return "";
}

bool names_key_and_rank(const tutti::Error& error) {
  const std::string text = error.what();
  return text.starts_with("rank ") &&
         text.find(": the updater of key 3 threw: disk is full") != std::string::npos;
}

/// An optimizer of the program's, called in pieces or for the whole sum.
class Throwing final : public tutti::Optimizer {
 public:
  explicit Throwing(bool elementwise, std::optional<tutti::Error> error = {})
      : Optimizer("throwing", {.learning_rate = 1}),
        elementwise_(elementwise),
        error_(std::move(error)) {}
  int num_states() const override { return 0; }
  bool elementwise() const override { return elementwise_; }
  bool updates_rows() const override { return true; }
  void update(const tutti::UpdateStep&, const tutti::ElementRange<float>&) const override {
    if (error_) throw tutti::Error(*error_);
    throw std::runtime_error("disk is full");
  }
  void update(const tutti::UpdateStep&, const tutti::ElementRange<double>&) const override {}

 private:
  bool elementwise_;
  std::optional<tutti::Error> error_;
};

/// Leaves the weights alone.
class Quiet final : public tutti::Optimizer {
 public:
  Quiet() : Optimizer("throwing", {.learning_rate = 1}) {}
  int num_states() const override { return 0; }
  void update(const tutti::UpdateStep&, const tutti::ElementRange<float>&) const override {}
  void update(const tutti::UpdateStep&, const tutti::ElementRange<double>&) const override {}
};

bool is_failed(const std::optional<tutti::Error>& error, const std::string& word) {
  return error && !error->recoverable() &&
         std::string(error->what()).find(word) != std::string::npos;
}

// What a peer's push, or the first collective call after it, throws.
std::optional<tutti::Error> first_error(KVStore& kv) {
  return test::error_of([&] {
    kv.push(3, filled(1));
    kv.barrier();
  });
}

}  // namespace

TEST_CASE("an exception in an updater fails a local store, nested in the Error of the push") {
  for (const char* type : {"local", "device"}) {
    KVStore kv = KVStore::create(type, test::settings());
    kv.init(3, filled(1));
    kv.set_updater(throw_disk_full);
    CHECK(test::agree(original_of([&] { kv.push(3, filled(1)); }) == "disk is full"));
    CHECK(test::agree(is_failed(test::error_of([&] { kv.push(3, filled(1)); }), "disk is full")));
    CHECK(test::agree(is_failed(test::error_of([&] { (void)kv.view(3); }), "disk is full")));
  }
}

TEST_CASE("an updater that throws on every rank throws on every rank, and the store is failed") {
  KVStore kv = test::dist();
  kv.init(3, filled(1));
  kv.set_updater(throw_disk_full);
  const auto error = test::error_of([&] { kv.push(3, filled(1)); });  // its own, or a peer's
  CHECK(test::agree(is_failed(error, "disk is full") && names_key_and_rank(*error)));
  CHECK(test::agree(error && error->code() == tutti::ErrorCode::user_code));
  CHECK(test::agree(is_failed(test::error_of([&] { kv.barrier(); }), "disk is full")));
}

TEST_CASE(
    "an updater that throws on one rank: its Error holds the exception, and the peers throw an "
    "Error with its text at their next collective call at the latest") {
  for (const test::Layout& layout : {test::one_node(), test::Layout{1}}) {
    CAPTURE(test::to_string(layout));
    KVStore kv = KVStore::create("dist", test::settings_for(layout));
    kv.init(3, filled(1));
    if (test::is_last()) {
      kv.set_updater(throw_disk_full);
      CHECK(original_of([&] { kv.push(3, filled(1)); }) == "disk is full");
    } else {
      kv.set_updater([](const Key&, tutti::ConstTensorView, tutti::TensorView) {});
    }
    const auto error = test::is_last() ? test::error_of([&] { kv.barrier(); }) : first_error(kv);
    CHECK(test::agree(is_failed(error, "disk is full")));
    CHECK(test::agree(test::is_last() ||
                      is_failed(error, "rank " + std::to_string(test::size() - 1))));
    CHECK(test::agree(is_failed(test::error_of([&] { kv.push(3, filled(1)); }), "disk is full")));
  }
}

TEST_CASE("an Error that an updater throws, and what is no exception at all, are user_code, too") {
  const std::vector<std::function<void()>> bodies = {
      [] { throw tutti::Error(tutti::ErrorCode::io, "no weights file"); }, [] { throw 42; }};
  const std::vector<std::string> texts = {"no weights file", "an exception of unknown type"};
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    KVStore kv = KVStore::create("local", test::settings());
    kv.init(3, filled(1));
    kv.set_updater([&](const Key&, tutti::ConstTensorView, tutti::TensorView) { bodies[i](); });
    const auto error = test::error_of([&] { kv.push(3, filled(1)); });
    CHECK(test::agree(is_failed(error, "the updater of key 3 threw: " + texts[i])));
    CHECK(test::agree(error && error->code() == tutti::ErrorCode::user_code && error->reporter()));
  }
}

TEST_CASE("an optimizer of the program's that throws fails its store as an updater does") {
  for (const bool elementwise : {true, false}) {
    CAPTURE(elementwise);
    KVStore kv = KVStore::create("local", test::settings());
    kv.init(3, filled(1));
    kv.set_optimizer(std::make_shared<Throwing>(elementwise));
    CHECK(test::agree(original_of([&] { kv.push(3, filled(1)); }) == "disk is full"));
    CHECK(test::agree(is_failed(test::error_of([&] { (void)kv.view(3); }), "disk is full")));
  }
}

TEST_CASE(
    "an optimizer that throws what another group has agreed on fails its store all the same") {
  for (const tutti::ErrorScope scope : {tutti::ErrorScope::agreed, tutti::ErrorScope::failed}) {
    for (const bool elementwise : {true, false}) {
      CAPTURE(elementwise);
      const tutti::Error other(tutti::ErrorCode::io, "no weights file", scope);
      KVStore kv = test::dist();
      kv.init(3, filled(1));
      if (test::is_last()) {
        kv.set_optimizer(std::make_shared<Throwing>(elementwise, other));
      } else {
        kv.set_optimizer(std::make_shared<Quiet>());
      }
      CHECK(test::agree(is_failed(first_error(kv), "no weights file")));
    }
  }
}

TEST_CASE("an optimizer of the program's that throws on rows fails its store on all ranks") {
  KVStore kv = test::dist();
  kv.init_row_sparse(3, {5, 2});
  kv.set_optimizer(std::make_shared<Throwing>(true));
  const tutti::Tensor ids = tutti::Tensor::from<std::int64_t>({1});
  const auto push = [&] { kv.push(3, row_sparse(ids, filled(1, {1, 2}))); };
  const auto error = test::error_of(push);
  CHECK(test::agree(is_failed(error, "optimizer throwing threw: disk is full")));
  CHECK(test::agree(error && error->code() == tutti::ErrorCode::user_code));
  CHECK(test::agree(is_failed(test::error_of([&] { kv.barrier(); }), "disk is full")));
  KVStore local = KVStore::create("local", test::settings());
  local.init_row_sparse(3, {5, 2});
  local.set_optimizer(std::make_shared<Throwing>(true));
  CHECK(test::agree(original_of([&] {
                      local.push(3, row_sparse(ids, filled(1, {1, 2})));
                    }) == "disk is full"));
}
