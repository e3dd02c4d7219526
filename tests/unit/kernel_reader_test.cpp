// SPDX-License-Identifier: Apache-2.0
// Reading another process through the kernel: a child that this test has forked.
#include "runtime/job/kernel_reader.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <numeric>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutti/error.hpp"

using namespace tutti;
using Piece = collectives::PeerReader::Piece;

namespace {

/// True if the system has the call, which qemu-user does not. Doctest counts the skipped cases.
bool has_the_call() {
  char to = 0;
  char from = 1;
  const iovec here{&to, 1};
  const iovec there{&from, 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != ENOSYS;
}

/// A child that waits to be ended. It has the memory that this process had at the fork.
class Child {
 public:
  Child() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void end() {
    if (pid_ <= 0 || has_ended_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    has_ended_ = true;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  bool has_ended_ = false;
};

/// A reader for which the child is local rank 1.
KernelReader reader_of(const Child& child) {
  auto topology = collectives::Topology::consecutive(0, {2});
  topology.names = std::make_shared<const collectives::OneHost>("a");
  return {topology, {getpid(), child.pid()}};
}

std::uint64_t address_of(const void* place) { return reinterpret_cast<std::uintptr_t>(place); }

std::string error_of_read(KernelReader& reader, std::uint64_t from) {
  std::byte target[64];
  const Piece piece{.to = target, .from = from, .bytes = sizeof target};
  try {
    reader.read(1, std::span(&piece, 1));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::communication);
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("the kernel reader copies any number of pieces, also empty ones, in their order" *
          doctest::skip(!has_the_call())) {
  std::vector<std::uint32_t> source(3000);
  std::iota(source.begin(), source.end(), 1);
  const Child child;
  std::fill(source.begin(), source.end(), 0);  // in this process, not in the child
  KernelReader reader = reader_of(child);
  for (const std::size_t count : {0, 1, 511, 512, 513, 1500, 3000}) {
    CAPTURE(count);
    std::vector<std::uint32_t> target(source.size());
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bytes = i % 3 == 1 ? 0 : sizeof(std::uint32_t);
      pieces.push_back({.to = reinterpret_cast<std::byte*>(&target[i]),
                        .from = address_of(&source[count - 1 - i]),
                        .bytes = bytes});
    }
    reader.read(1, pieces);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
      const bool is_read = i < count && i % 3 != 1;
      wrong += target[i] != (is_read ? count - i : 0) ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("memory that the peer has not is an error that names the rank" *
          doctest::skip(!has_the_call())) {
  void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  munmap(page, 4096);
  const Child child;
  KernelReader reader = reader_of(child);
  const std::string text = error_of_read(reader, address_of(page));
  CHECK(text.find("cannot read the tensor of rank 1") != std::string::npos);
  CHECK(text.find("the memory that it called with is not there any more") != std::string::npos);
}

TEST_CASE("a peer that has ended is an error that says so" * doctest::skip(!has_the_call())) {
  Child child;
  KernelReader reader = reader_of(child);
  child.end();
  const std::string text = error_of_read(reader, address_of(&text));
  CHECK(text.find("rank 1") != std::string::npos);
  CHECK(text.find("its process has ended") != std::string::npos);
}

TEST_CASE("a probe finds its number, or says what stands there instead" *
          doctest::skip(!has_the_call())) {
  auto nonce = std::uint64_t{4711};
  Child child;
  CHECK(read_probe(child.pid(), {.address = address_of(&nonce), .nonce = 4711}).empty());
  CHECK(read_probe(child.pid(), {.address = address_of(&nonce), .nonce = 4712})
            .find("different PID namespaces") != std::string::npos);
  child.end();
  CHECK(read_probe(child.pid(), {.address = address_of(&nonce), .nonce = 4711}) ==
        std::string("process_vm_readv: ") + std::strerror(ESRCH));
}

TEST_CASE("what keeps a rank from reading is named with its remedy") {
  CHECK(why_not_readable(ENOSYS).find("CONFIG_CROSS_MEMORY_ATTACH") != std::string::npos);
  const std::string text = why_not_readable(EPERM);
  const bool names_remedy = text.find("kernel.yama.ptrace_scope") != std::string::npos ||
                            text.find("--cap-add SYS_PTRACE") != std::string::npos;
  CHECK(names_remedy);
}
