// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <memory>
#include <vector>

#include "tutti/error.hpp"
#include "tutti/mpi_abi.hpp"

#include "collectives/job/leak.hpp"
#include "runtime/mpi/poll_pause.hpp"
#include "runtime/mpi/session.hpp"

namespace tutti {

namespace {

constexpr int kWorldTag = 1;

/// Memory that MPI may still read or write after a deadline has passed.
using Bytes = std::shared_ptr<std::vector<std::byte>>;

void wait(mpi::Request request, const Bytes& bytes, std::chrono::duration<double> timeout,
          const std::string& what) {
  thread_local mpi::PollPause pause;
  const auto begin = std::chrono::steady_clock::now();
  for (bool done = false;;) {
    mpi::check(mpi::calls().test(&request, &done), "MPI_Test");
    if (done) return;
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (timeout.count() > 0 && waited > timeout) {
      collectives::leak_until_exit(bytes);
      throw Error(ErrorCode::timeout,
                  what + " was not done within " +
                      std::to_string(static_cast<long long>(timeout.count())) +
                      " s; see what that rank is doing",
                  ErrorScope::failed);
    }
    pause.pause(waited);
  }
}

}  // namespace

MpiMessages::MpiMessages(std::chrono::duration<double> timeout) : timeout_(timeout) {
  if (!mpi::load_by_variables()) return;
  const mpi::Calls& calls = mpi::calls();
  Settings settings = mpi::settings_by_variables();
  settings.timeout = timeout;
  mpi::ensure_initialized(settings);
  mpi::Comm copy;
  mpi::check(calls.duplicate(calls.world(), &copy), "MPI_Comm_dup");
  mpi::check(calls.return_errors(copy), "MPI_Comm_set_errhandler");
  mpi::check(calls.rank(copy, &rank_), "MPI_Comm_rank");
  mpi::check(calls.size(copy, &size_), "MPI_Comm_size");
  comm_ = copy.bytes;
}

int MpiMessages::thread_level() const {
  const bool has_mpi = mpi::Comm{comm_}.is_set();
  return static_cast<int>(has_mpi ? mpi::thread_level() : mpi::ThreadLevel::multiple);
}

void MpiMessages::send(int to, std::span<const std::byte> bytes) const {
  const auto sent = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  mpi::Request request;
  mpi::check(mpi::calls().send(sent->data(), static_cast<int>(sent->size()), to, kWorldTag,
                               mpi::Comm{comm_}, &request),
             "MPI_Isend");
  wait(request, sent, timeout_, "a message to rank " + std::to_string(to));
}

void MpiMessages::receive(int from, std::span<std::byte> bytes) const {
  const auto received = std::make_shared<std::vector<std::byte>>(bytes.size());
  mpi::Request request;
  mpi::check(mpi::calls().receive(received->data(), static_cast<int>(received->size()), from,
                                  kWorldTag, mpi::Comm{comm_}, &request),
             "MPI_Irecv");
  wait(request, received, timeout_, "a message from rank " + std::to_string(from));
  if (!bytes.empty()) std::memcpy(bytes.data(), received->data(), bytes.size());
}

}  // namespace tutti
