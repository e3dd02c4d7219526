// SPDX-License-Identifier: Apache-2.0
// An updater that throws: the caller gets its exception, the peers learn of it, the job can end.
#include <stdexcept>
#include <string>

#include "tests/mpi/layouts.hpp"
#include "tests/mpi/store_fixture.hpp"

using test::filled;
using tutti::Key;
using tutti::KVStore;

namespace {

void throw_disk_full(const Key&, tutti::ConstTensorView, tutti::TensorView) {
  throw std::runtime_error("disk is full");
}

// The text of the std::runtime_error, not a tutti::Error, that `body` throws; empty if none.
std::string own_exception_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const tutti::Error&) {
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

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

TEST_CASE("an exception in an updater reaches the caller and fails a local store") {
  for (const char* type : {"local", "device"}) {
    KVStore kv = KVStore::create(type, test::settings());
    kv.init(3, filled(1));
    kv.set_updater(throw_disk_full);
    CHECK(test::agree(own_exception_of([&] { kv.push(3, filled(1)); }) == "disk is full"));
    CHECK(test::agree(is_failed(test::error_of([&] { kv.push(3, filled(1)); }), "disk is full")));
    CHECK(test::agree(is_failed(test::error_of([&] { (void)kv.view(3); }), "disk is full")));
  }
}

TEST_CASE("an updater that throws on every rank throws on every rank, and the store is failed") {
  KVStore kv = test::dist();
  kv.init(3, filled(1));
  kv.set_updater(throw_disk_full);
  std::string text;
  try {
    kv.push(3, filled(1));
  } catch (const std::exception& error) {  // its own, or a peer's that was faster
    text = error.what();
  }
  CHECK(test::agree(text.find("disk is full") != std::string::npos));
  CHECK(test::agree(is_failed(test::error_of([&] { kv.barrier(); }), "disk is full")));
}

TEST_CASE(
    "an updater that throws on one rank: its caller gets the exception, the peers an error "
    "with its text at their next collective call at the latest") {
  for (const test::Layout& layout : {test::one_node(), test::Layout{1}}) {
    CAPTURE(test::to_string(layout));
    KVStore kv = KVStore::create("dist", test::settings_for(layout));
    kv.init(3, filled(1));
    if (test::is_last()) {
      kv.set_updater(throw_disk_full);
      CHECK(own_exception_of([&] { kv.push(3, filled(1)); }) == "disk is full");
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
