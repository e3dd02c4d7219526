// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/arena.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "tutti/error.hpp"

#include "collectives/wait/node_memory.hpp"
#include "runtime/base/write_signals.hpp"
#include "runtime/job/memory_limits.hpp"

namespace tutti {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr const char* kDevShm = "/dev/shm";

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::string mebibytes(std::size_t bytes) {
  return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}

/// Returns the remedy for a call that failed for lack of a resource.
std::string remedy_for(int error) {
  if (error == EMFILE || error == ENFILE) return "; raise the limit of open files, ulimit -n 1024";
  if (error == ENOMEM || error == EAGAIN) return limits_of_memory();
  return {};
}

[[noreturn]] void throw_errno(ErrorCode code, const std::string& what) {
  const int error = errno;
  throw Error(code, what + ": " + std::strerror(error) + remedy_for(error));
}

// Known to kernels from 6.3 on, where it may be mandatory (vm.memfd_noexec=2).
#ifdef MFD_NOEXEC_SEAL
constexpr unsigned kNotExecutable = MFD_NOEXEC_SEAL;
#else
constexpr unsigned kNotExecutable = 8;
#endif

/// Makes an anonymous file that nobody can execute or shrink: a peer that touches a part which was
/// cut off would be killed. Returns -1 with errno on failure.
FileDescriptor make_memfd() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  FileDescriptor file(memfd_create("tutti-arena", kFlags | kNotExecutable));
  if (file.get() < 0 && errno == EINVAL) {
    file = FileDescriptor(memfd_create("tutti-arena", kFlags));
  }
  if (file.get() < 0) return file;
  fchmod(file.get(), 0600);  // only the user's own entry in /proc leads to the file
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
  return file;
}

/// Returns a name that no other job has, even if others use this machine's /dev/shm.
std::string random_name() {
  std::random_device device;
  char name[64];
  std::snprintf(name, sizeof name, "%s/tutti-%d-%08x%08x", kDevShm, getpid(), device(), device());
  return name;
}

int retry_open(const char* path, int flags, mode_t mode = 0) {
  int file = -1;
  do {
    file = open(path, flags | O_CLOEXEC, mode);
  } while (file < 0 && errno == EINTR);
  return file;
}

}  // namespace

// --- Mapping ------------------------------------------------------------------------------------

/// The mapping is aligned to huge pages, so that the kernel can use them.
Mapping::Mapping(int file, std::size_t bytes) : bytes_(bytes) {
  void* space = mmap(nullptr, bytes + kHugePage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) {
    throw_errno(ErrorCode::out_of_memory,
                "cannot reserve " + mebibytes(bytes) +
                    " of address space for node-shared memory (raise ulimit -v or lower "
                    "TUTTI_ARENA_BYTES)");
  }
  auto* begin = static_cast<std::byte*>(space);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  std::byte* aligned = begin + (rounded_up(address, kHugePage) - address);
  const int flags = MAP_FIXED | MAP_NORESERVE | MAP_SHARED;
  if (file >= 0 && mmap(aligned, bytes, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(space, bytes + kHugePage);
    errno = error;
    throw_errno(ErrorCode::out_of_memory, "cannot map node-shared memory");
  }
  if (aligned > begin) munmap(begin, static_cast<std::size_t>(aligned - begin));
  std::byte* rest = aligned + bytes;
  if (begin + bytes + kHugePage > rest) {
    munmap(rest, static_cast<std::size_t>(begin + bytes + kHugePage - rest));
  }
  data_ = aligned;
  // Forked processes keep the mapping, because workers that a program forks read data in it. They
  // share the pages if there is a file; otherwise they have the contents from the time of the fork.
  madvise(data_, bytes_, MADV_HUGEPAGE);  // only advice, which the kernel may not know
  madvise(data_, bytes_, MADV_DONTDUMP);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

bool Mapping::open_up_to(std::size_t begin, std::size_t end) noexcept {
  return mprotect(data_ + begin, end - begin, PROT_READ | PROT_WRITE) == 0;
}

void SharedName::remove() noexcept {
  if (!path_.empty()) ::unlink(path_.c_str());
  path_.clear();
}

// --- Arena --------------------------------------------------------------------------------------

Arena::Arena(Backing backing, std::size_t bytes) : backing_(backing) {
  if (backing == Backing::memfd) {
    file_ = make_memfd();
    if (file_.get() < 0) throw_errno(ErrorCode::io, "memfd_create");
  } else if (backing == Backing::dev_shm) {
    const std::string name = random_name();
    file_ = FileDescriptor(retry_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    if (file_.get() < 0) throw_errno(ErrorCode::io, "cannot create " + name);
    name_ = SharedName(name);
  }
  mapping_ = Mapping(file_.get(), rounded_up(bytes, kHugePage));
  if (backing == Backing::touched) {
    madvise(mapping_.data(), mapping_.size(), MADV_NOHUGEPAGE);
    if (!mapping_.open_up_to(0, mapping_.size())) throw_no_pages(mapping_.size(), errno);
  }
  const std::size_t control = rounded_up(sizeof(collectives::WideControlBlock), kAlignment);
  commit(control);
  free_[control] = mapping_.size() - control;
  touched_ = control;
  new (mapping_.data()) collectives::WideControlBlock;
}

std::string Arena::why_no_memfd() {
  const FileDescriptor file = make_memfd();
  return file.get() >= 0 ? "" : std::string("memfd_create: ") + std::strerror(errno);
}

ArenaAddress Arena::address() const {
  ArenaAddress address;
  address.process = getpid();
  address.file = file_.get();
  std::snprintf(address.name, sizeof address.name, "%s", name_.path().c_str());
  return address;
}

Mapping Arena::map_peer(Backing backing, const ArenaAddress& address, std::size_t bytes) {
  const std::string path = backing == Backing::memfd ? "/proc/" + std::to_string(address.process) +
                                                           "/fd/" + std::to_string(address.file)
                                                     : address.name;
  // In another PID namespace the number belongs to another process, and its file may be anything,
  // such as a device that acts when it is opened, or a file of another user. So the first handle
  // only examines the file, and the second handle is opened from it.
  const int follow = backing == Backing::memfd ? 0 : O_NOFOLLOW;
  const FileDescriptor seen(retry_open(path.c_str(), O_PATH | follow));
  if (seen.get() < 0) throw_errno(ErrorCode::io, "cannot open a peer's memory, " + path);
  struct stat found {};
  const bool is_known = fstat(seen.get(), &found) == 0 && S_ISREG(found.st_mode) &&
                        found.st_uid == geteuid() &&
                        found.st_size >= static_cast<off_t>(sizeof(collectives::WideControlBlock));
  if (!is_known) throw Error(ErrorCode::io, path + " is not a peer's memory");
  const std::string same = "/proc/self/fd/" + std::to_string(seen.get());
  const FileDescriptor file(retry_open(same.c_str(), O_RDWR));
  if (file.get() < 0) throw_errno(ErrorCode::io, "cannot open a peer's memory, " + path);
  return Mapping(file.get(), rounded_up(bytes, kHugePage));
}

std::size_t Arena::default_reserve(std::size_t asked, int ranks) {
  const auto sharing = static_cast<std::size_t>(std::max(ranks, 1));
  std::size_t bytes = asked;
  if (asked == 0) bytes = physical_memory() / std::max<std::size_t>(1, sharing / 2);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min<std::size_t>(bytes, limit.rlim_cur / (2 * (sharing + 1)));
  }
  return rounded_up(std::max(bytes, kHugePage), kHugePage);
}

void Arena::require_memory(std::size_t bytes) const {
  const AvailableMemory available =
      available_memory(backing_ == Backing::dev_shm ? kDevShm : nullptr);
  if (bytes > available.bytes) {
    throw_out_of_memory(bytes, "only " + std::to_string(available.bytes >> 20) +
                                   " MiB are available according to " + available.source);
  }
}

void Arena::throw_out_of_memory(std::size_t bytes, const std::string& reason) const {
  throw Error(ErrorCode::out_of_memory,
              "node-shared memory: " + mebibytes(bytes) + " more are needed (this rank has " +
                  mebibytes(committed_) + "), but " + reason +
                  "; use fewer or smaller keys, fewer ranks per node, or a larger limit");
}

/// Throws the error for pages that could not be allocated. What was available a moment ago may have
/// been taken by another process; the kernel reports that by one of several error numbers.
void Arena::throw_no_pages(std::size_t bytes, int error) const {
  if (error == EFAULT || error == ENOMEM || error == ENOSPC) {
    const bool is_mounted = backing_ == Backing::dev_shm;
    throw_out_of_memory(bytes,
                        std::string("there are no more") + (is_mounted ? " in /dev/shm" : "") +
                            ": other ranks or processes have taken them" + limits_of_memory());
  }
  if (error == EFBIG) {
    throw_out_of_memory(bytes,
                        "ulimit -f allows no larger file, which is what ranks share "
                        "(ulimit -f unlimited, in the shell or batch script that starts the "
                        "job)");
  }
  throw_out_of_memory(bytes, std::string("the kernel refuses them: ") + std::strerror(error));
}

/// Grows the file, and touches the new pages on the owner, so that they are placed near it, and so
/// that a lack of memory is an error now instead of a fault later.
void Arena::commit(std::size_t end) {
  if (end <= committed_ || backing_ == Backing::touched) return;
  const std::size_t target = std::min(rounded_up(end, kHugePage), mapping_.size());
  require_memory(target - committed_);
  const WriteSignalsBlocked no_signals;  // signals of ulimit -f
  const bool has_grown = backing_ == Backing::process
                             ? mapping_.open_up_to(committed_, target)
                             : ftruncate(file_.get(), static_cast<off_t>(target)) == 0;
  if (!has_grown) throw_no_pages(target - committed_, errno);
#ifdef MADV_POPULATE_WRITE
  int status = 0;
  do {
    status = madvise(mapping_.data() + committed_, target - committed_, MADV_POPULATE_WRITE);
  } while (status != 0 && errno == EINTR);
  if (status == 0 || backing_ == Backing::process) {
    committed_ = target;
    return;
  }
  if (errno != EINVAL) throw_no_pages(target - committed_, errno);
#endif
  if (backing_ != Backing::process) {  // Linux before 5.14 has no MADV_POPULATE_WRITE
    int error = 0;
    do {
      error = posix_fallocate(file_.get(), static_cast<off_t>(committed_),
                              static_cast<off_t>(target - committed_));
    } while (error == EINTR);
    if (error != 0) throw_no_pages(target - committed_, error);
  }
  committed_ = target;
}

std::byte* Arena::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  look_for_failures();
  free_retired();
  bytes = rounded_up(std::max<std::size_t>(bytes, 1), kAlignment);
  const auto fits = std::find_if(free_.begin(), free_.end(),
                                 [&](const auto& block) { return block.second >= bytes; });
  if (fits == free_.end()) {
    throw Error(ErrorCode::out_of_memory, "node-shared memory: " + mebibytes(bytes) +
                                              " do not fit into the " + mebibytes(mapping_.size()) +
                                              " reserved; raise TUTTI_ARENA_BYTES, and ulimit -v "
                                              "if it is set");
  }
  const auto [offset, size] = *fits;
  commit(offset + bytes);
  free_.erase(fits);
  if (size > bytes) free_[offset + bytes] = size - bytes;
  allocated_[offset] = {bytes, allocated_so_far_++};
  if (offset < touched_) {
    std::memset(mapping_.data() + offset, 0, std::min(bytes, touched_ - offset));
  }
  touched_ = std::max(touched_, offset + bytes);
  return mapping_.data() + offset;
}

void Arena::free(std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  look_for_failures();
  free_locked(memory);
}

void Arena::add_user(const void* group, std::function<bool()> has_failed) {
  const std::lock_guard lock(mutex_);
  users_.push_back({group, std::move(has_failed)});
}

void Arena::remove_user(const void* group) {
  const std::lock_guard lock(mutex_);
  look_for_failures();
  std::erase_if(users_, [&](const User& user) { return user.group == group; });
}

void Arena::look_for_failures() noexcept {
  const auto failed = std::erase_if(users_, [](const User& user) { return user.has_failed(); });
  if (failed > 0) kept_ = allocated_so_far_;
}

void Arena::retire(std::vector<std::byte*> memory, std::function<bool()> is_unused) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    retired_.push_back({std::move(memory), std::move(is_unused)});
  } catch (const std::bad_alloc&) {  // as promised
  }
  free_retired();
}

void Arena::free_retired() noexcept {
  std::erase_if(retired_, [this](const Retired& retired) {
    if (!retired.is_unused()) return false;
    for (std::byte* memory : retired.memory) free_locked(memory);
    return true;
  });
}

void Arena::free_locked(std::byte* memory) noexcept {
  const auto found = allocated_.find(static_cast<std::size_t>(memory - mapping_.data()));
  const std::size_t offset = found->first;
  std::size_t bytes = found->second.bytes;
  if (found->second.number < kept_) return;
  allocated_.erase(found);
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  try {
    free_[offset] = bytes;
  } catch (const std::bad_alloc&) {  // the block is not used again, as it cannot be recorded
  }
}

}  // namespace tutti
