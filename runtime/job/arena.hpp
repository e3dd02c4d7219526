// SPDX-License-Identifier: Apache-2.0
// Arena: the memory that the ranks of a node share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/wait/node_memory.hpp"
#include "runtime/base/unique_handle.hpp"

namespace tutti {

/// The kind of memory behind arenas.
enum class Backing {
  memfd,    ///< an anonymous file: no mount limit, gone with the last process
  dev_shm,  ///< a file in /dev/shm, unlinked as soon as all peers have mapped it
  process,  ///< not shared: for a rank that is alone on its node, and for ranks that are threads
  touched,  ///< the same, but pages are allocated on first touch: for thousands of ranks
};

/// A file mapped up to its largest possible size. Pages that the owner has not committed are only
/// address space; touching them would be a fault, and no offset points into them. Without a file
/// nothing may be touched before open_up_to(), because a process that locks its mappings (mlockall)
/// would lock all of it.
class Mapping {
 public:
  Mapping() = default;
  /// Errors: out_of_memory if there is not enough address space (RLIMIT_AS).
  Mapping(int file, std::size_t bytes);
  /// For a mapping without a file: allows bytes from `begin` to `end` to be touched. Returns false
  /// with errno on failure.
  [[nodiscard]] bool open_up_to(std::size_t begin, std::size_t end) noexcept;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The information by which a peer finds an arena's file.
struct ArenaAddress {
  std::int64_t process = 0;
  std::int32_t file = -1;  ///< memfd: the owner's file descriptor
  char name[64] = {};      ///< dev_shm: the file's name
};

/// The name of a file in /dev/shm, which is removed by the destructor or by remove().
class SharedName {
 public:
  SharedName() = default;
  explicit SharedName(std::string path) : path_(std::move(path)) {}
  SharedName(SharedName&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  SharedName& operator=(SharedName&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~SharedName() { remove(); }
  void remove() noexcept;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// One rank's arena: the file, its mapping, and its allocations. Any thread may allocate and free.
class Arena {
 public:
  static constexpr std::size_t kAlignment = collectives::kLineBytes;

  /// Reserves `bytes` of address space; memory is committed as it is allocated. A
  /// WideControlBlock is constructed in the first bytes.
  Arena(Backing backing, std::size_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns zeroed memory. Errors: out_of_memory, with the needed and the available size, before
  /// any page is touched.
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* memory) noexcept;
  /// Frees the memory in a later allocate(), once `is_unused` says that no peer accesses it. It is
  /// never reused if there is no memory to remember it.
  void retire(std::vector<std::byte*> memory, std::function<bool()> is_unused) noexcept;

  /// Registers a group that makes calls with memory of this arena. If the group has failed, a peer
  /// that was stopped may resume in the middle of its last call and write to the arena. So memory
  /// that was allocated before is never reused after it is freed.
  void add_user(const void* group, std::function<bool()> has_failed);
  void remove_user(const void* group);

  [[nodiscard]] std::byte* data() const noexcept { return mapping_.data(); }
  [[nodiscard]] std::size_t reserved_bytes() const noexcept { return mapping_.size(); }
  /// True if the memory lies in this arena.
  [[nodiscard]] bool holds(const std::byte* memory) const noexcept {
    return memory >= data() && memory < data() + reserved_bytes();
  }
  [[nodiscard]] ArenaAddress address() const;
  /// dev_shm: removes the name, which is no longer needed once all peers have mapped the file.
  void unlink() noexcept { name_.remove(); }

  /// Returns why this process cannot make anonymous files, or an empty text if it can. Containers
  /// may forbid the call, and old kernels do not have it.
  static std::string why_no_memfd();

  /// Maps another process's arena. Errors: io if it cannot be opened, out_of_memory.
  static Mapping map_peer(Backing backing, const ArenaAddress& address, std::size_t bytes);

  /// Returns the address space to reserve: `asked`, or about twice a rank's share of the machine's
  /// memory, but at most all of it; less if RLIMIT_AS would not allow `ranks` arenas to be mapped.
  /// Each rank maps the arenas of all, so that on a large machine `ranks` times all of the memory
  /// could exceed the address space of a process.
  static std::size_t default_reserve(std::size_t asked, int ranks);

 private:
  struct Retired {
    std::vector<std::byte*> memory;
    std::function<bool()> is_unused;
  };
  struct Used {
    std::size_t bytes;
    std::uint64_t number;  ///< sequence number of the allocation
  };
  struct User {
    const void* group;
    std::function<bool()> has_failed;
  };

  void look_for_failures() noexcept;
  void free_retired() noexcept;
  void free_locked(std::byte* memory) noexcept;
  void commit(std::size_t end);
  void require_memory(std::size_t bytes) const;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes, const std::string& reason) const;
  [[noreturn]] void throw_no_pages(std::size_t bytes, int error) const;

  Backing backing_;
  SharedName name_;
  FileDescriptor file_;
  Mapping mapping_;
  std::mutex mutex_;  ///< guards the following members
  std::size_t committed_ = 0;
  std::size_t touched_ = 0;                  ///< bytes below this have been handed out before
  std::map<std::size_t, std::size_t> free_;  ///< offset -> size of each free range
  std::map<std::size_t, Used> allocated_;    ///< by offset
  std::vector<Retired> retired_;
  std::vector<User> users_;  ///< only those that have not failed
  std::uint64_t allocated_so_far_ = 0;
  std::uint64_t kept_ = 0;  ///< this many first allocations are never reused
};

}  // namespace tutti
