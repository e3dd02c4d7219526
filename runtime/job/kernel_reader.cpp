// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/kernel_reader.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sys/uio.h>

#include "tutti/error.hpp"

#include "collectives/text/numbers.hpp"
#include "runtime/base/system_file.hpp"

namespace tutti {

namespace {

using Piece = collectives::PeerReader::Piece;

// The largest number of pieces in a call of the kernel (IOV_MAX).
constexpr std::size_t kMostPieces = 512;

iovec vector_of(const void* address, std::size_t bytes) {
  return {.iov_base = const_cast<void*>(address), .iov_len = bytes};
}

/// The pieces of one call of the kernel; `done` bytes of the first one have been copied already.
class Batch {
 public:
  Batch(std::span<const Piece> pieces, std::size_t done)
      : size_(std::min(pieces.size(), kMostPieces)) {
    for (std::size_t i = 0; i < size_; ++i, done = 0) {
      const Piece& piece = pieces[i];
      local_[i] = vector_of(piece.to + done, piece.bytes - done);
      remote_[i] = vector_of(std::bit_cast<const void*>(piece.from + done), piece.bytes - done);
    }
  }
  /// Returns the number of bytes copied, or -1 with errno.
  [[nodiscard]] ssize_t read_from(pid_t process) const {
    return process_vm_readv(process, local_.data(), size_, remote_.data(), size_, 0);
  }

 private:
  std::size_t size_;
  std::array<iovec, kMostPieces> local_;
  std::array<iovec, kMostPieces> remote_;
};

int yama_scope() {
  const std::string text = read_system_file("/proc/sys/kernel/yama/ptrace_scope");
  return number_of<int>(first_word(text)).value_or(0);
}

}  // namespace

KernelReader::KernelReader(const collectives::Topology& topology, std::vector<pid_t> processes)
    : topology_(topology), processes_(std::move(processes)) {}

/// Continues after partial copies by the kernel. A call that copies nothing is an error.
void KernelReader::read(int local_rank, std::span<const Piece> pieces) {
  const pid_t process = processes_[static_cast<std::size_t>(local_rank)];
  std::size_t done = 0;  // bytes of the first piece
  while (!pieces.empty()) {
    const ssize_t copied = Batch(pieces, done).read_from(process);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) fail(local_rank, copied < 0 ? errno : EFAULT);
    done += static_cast<std::size_t>(copied);
    while (!pieces.empty() && done >= pieces.front().bytes) {
      done -= pieces.front().bytes;
      pieces = pieces.subspan(1);
    }
  }
}

std::unique_ptr<collectives::PeerReader> KernelReader::for_group(const collectives::Topology& group,
                                                                 std::span<const int> peers) const {
  std::vector<pid_t> processes;
  for (const int peer : peers) processes.push_back(processes_[static_cast<std::size_t>(peer)]);
  return std::make_unique<KernelReader>(group, std::move(processes));
}

void KernelReader::fail(int local_rank, int error) const {
  const int rank = topology_.local_ranks()[static_cast<std::size_t>(local_rank)];
  const std::string where = "cannot read the tensor of " + collectives::name_of(topology_, rank);
  const std::string what = std::strerror(error);
  if (error == ESRCH) throw Error(ErrorCode::communication, where + ": its process has ended");
  if (error == EFAULT) {
    throw Error(ErrorCode::communication,
                where + ": the memory that it called with is not there any more (" + what + ")");
  }
  throw Error(
      ErrorCode::communication,
      where + ": " + what + "; set TUTTI_ALGORITHMS=inputs=staged,results=spread to do without");
}

std::string read_probe(pid_t process, const Probe& probe) {
  std::uint64_t seen = 0;
  const iovec local = vector_of(&seen, sizeof seen);
  const iovec remote = vector_of(std::bit_cast<const void*>(probe.address), sizeof seen);
  const ssize_t copied = process_vm_readv(process, &local, 1, &remote, 1, 0);
  if (copied < 0) return why_not_readable(errno);
  if (copied == sizeof seen && seen == probe.nonce) return {};
  return "another process answers to its number: the ranks are in different PID namespaces (start "
         "the "
         "ranks of a host in one: --pid=host for a container)";
}

std::string why_not_readable(int error) {
  const std::string what = std::string("process_vm_readv: ") + std::strerror(error);
  if (error == ENOSYS) return what + "; this kernel was built without CONFIG_CROSS_MEMORY_ATTACH";
  if (error != EPERM) return what;
  if (const int scope = yama_scope(); scope > 0) {
    return what + "; Yama restricts tracing: set kernel.yama.ptrace_scope to 0 (it is " +
           std::to_string(scope) + ")";
  }
  return what +
         "; run all ranks as one user, and allow the call in the container's seccomp profile "
         "(docker run --cap-add SYS_PTRACE)";
}

}  // namespace tutti
