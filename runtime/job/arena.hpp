// SPDX-License-Identifier: Apache-2.0
// The memory that the ranks of a node share.
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

/// What arenas are made of.
enum class Backing {
  memfd,    ///< an anonymous file: no mount limit, gone with the last process
  dev_shm,  ///< a file in /dev/shm, unlinked as soon as all peers have mapped it
  process,  ///< not shared at all: a rank that is alone on its node, and threads as ranks
  touched,  ///< the same, of pages that are there once they are touched: thousands of ranks
};

/// A file mapped from its first to its last possible byte. Pages that the owner has not committed
/// are address space only; touching them would be a fault, and no offset points into them. Without
/// a file nothing may be touched before open_up_to(): a process that locks what it maps (mlockall)
/// would lock all of it.
class Mapping {
 public:
  Mapping() = default;
  /// Errors: out_of_memory if the address space is not to be had (RLIMIT_AS).
  Mapping(int file, std::size_t bytes);
  /// Without a file: lets bytes from `begin` to `end` be touched. False with errno if it cannot.
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

/// How a peer finds an arena's file.
struct ArenaAddress {
  std::int64_t process = 0;
  std::int32_t file = -1;  ///< memfd: the owner's file descriptor
  char name[64] = {};      ///< dev_shm: the file's name
};

/// The name of a file in /dev/shm, which goes with this or at remove().
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

/// One rank's arena: the file, its mapping, and who has which bytes of it. Any thread may allocate
/// and free.
class Arena {
 public:
  static constexpr std::size_t kAlignment = collectives::kLineBytes;

  /// `bytes` of address space; memory is committed as it is allocated. The first
  /// sizeof(ControlBlock) bytes hold a constructed ControlBlock.
  Arena(Backing backing, std::size_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Zeroed memory. Errors: out_of_memory with what is needed and what there is, before a page is
  /// touched.
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* memory) noexcept;
  /// Frees these in a later allocate(), once `is_unused` says that no peer looks at them.
  void retire(std::vector<std::byte*> memory, std::function<bool()> is_unused);

  /// A group makes calls with memory of this arena. Once it has failed, a peer that was stopped may
  /// go on in the middle of its last call and write there: what was allocated until then is never
  /// used again after it is freed.
  void add_user(const void* group, std::function<bool()> has_failed);
  void remove_user(const void* group);

  [[nodiscard]] std::byte* data() const noexcept { return mapping_.data(); }
  [[nodiscard]] std::size_t reserved_bytes() const noexcept { return mapping_.size(); }
  /// True if the memory lies in this arena.
  [[nodiscard]] bool holds(const std::byte* memory) const noexcept {
    return memory >= data() && memory < data() + reserved_bytes();
  }
  [[nodiscard]] ArenaAddress address() const;
  /// dev_shm: removes the name, which is not needed once all peers have mapped the file.
  void unlink() noexcept { name_.remove(); }

  /// Why this process gets no anonymous files, for a message; empty if it does. Containers may
  /// forbid the call, and old kernels do not have it.
  static std::string why_no_memfd();

  /// Maps another process's arena. Errors: io if it cannot be opened, out_of_memory.
  static Mapping map_peer(Backing backing, const ArenaAddress& address, std::size_t bytes);

  /// The address space to reserve: `asked`, or about twice a rank's share of the machine's memory,
  /// and at most all of it; less where RLIMIT_AS would not let `ranks` arenas be mapped. Each of
  /// them maps those of all, so that a share of all memory would be `ranks` times what a process
  /// can address on a large machine.
  static std::size_t default_reserve(std::size_t asked, int ranks);

 private:
  struct Retired {
    std::vector<std::byte*> memory;
    std::function<bool()> is_unused;
  };
  struct Used {
    std::size_t bytes;
    std::uint64_t number;  ///< of its allocation
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
  std::mutex mutex_;  ///< what follows
  std::size_t committed_ = 0;
  std::size_t touched_ = 0;                  ///< bytes below this were handed out at some time
  std::map<std::size_t, std::size_t> free_;  ///< offset -> bytes of a free range
  std::map<std::size_t, Used> allocated_;    ///< by offset
  std::vector<Retired> retired_;
  std::vector<User> users_;  ///< that have not failed
  std::uint64_t allocated_so_far_ = 0;
  std::uint64_t kept_ = 0;  ///< so many first allocations are never used again
};

}  // namespace tutti
