// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/snapshots.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/checkpoint/exchange.hpp"
#include "runtime/checkpoint/generation_files.hpp"
#include "runtime/checkpoint/seal.hpp"
#include "runtime/job/memory_limits.hpp"

namespace tutti::checkpoint {

namespace {

constexpr std::uint64_t kProgressBytes = 4096;

std::uint64_t bytes_of(const Content& content) {
  std::uint64_t bytes = 0;
  for (const Content::Item& item : content.tensors) bytes += item.tensor.size_bytes();
  return bytes;
}

std::uint64_t bytes_of(const StoreContent& content, int ranks) {
  std::uint64_t bytes = bytes_of(content.weights);
  if (content.optimizer) bytes += bytes_of(*content.optimizer);
  if (content.residuals) bytes += bytes_of(*content.residuals) * static_cast<std::uint64_t>(ranks);
  return bytes;
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entries(folder, error); !error && entries != fs::directory_iterator();
       entries.increment(error)) {
    std::error_code ignored;
    bytes += entries->file_size(ignored);
  }
  return bytes;
}

/// Sends the bytes of a file of rank `source` to all ranks, of which some have mapped one for them.
void send_to_all(Communicator& ranks, std::span<std::byte> mapped, std::uint64_t bytes,
                 int source) {
  constexpr std::uint64_t kAtOnce = std::uint64_t{16} << 20;
  std::vector<std::uint8_t> unused(mapped.empty() ? std::min(bytes, kAtOnce) : 0);
  for (std::uint64_t at = 0; at < bytes; at += kAtOnce) {
    auto* const place =
        mapped.empty() ? unused.data() : reinterpret_cast<std::uint8_t*>(&mapped[at]);
    const auto count = static_cast<std::int64_t>(std::min(kAtOnce, bytes - at));
    ranks.broadcast(view(place, {count}), source);
  }
}

/// The error, or, if the file system has neither a block nor a name left, that memory is lacking:
/// without snapshots the job goes on.
Error or_no_memory(const Error& error, const fs::path& folder) {
  struct statvfs room {};
  const bool is_full = statvfs(folder.c_str(), &room) == 0 &&
                       (room.f_bavail == 0 || (room.f_files != 0 && room.f_favail == 0));
  if (error.code() != ErrorCode::io || !is_full) return error;
  return {ErrorCode::out_of_memory,
          "no memory is left for snapshots: " + std::string(error.what()) + "; make " +
              folder.string() + " larger, or save() alone"};
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

/// The steps of one node's ranks, which other nodes make at the same time. After an error the ranks
/// skip further steps, and stay in step with the other nodes until all agree.
class Snapshots::OnNode {
 public:
  explicit OnNode(fs::path folder) : folder_(std::move(folder)) {}
  template <class Body>
  void run(Body body) {
    if (error_) return;
    try {
      body();
    } catch (const Error& error) {
      if (!error.recoverable()) throw;
      error_ = or_no_memory(error, folder_);
    }
  }
  /// Collective over all ranks: the error of the lowest rank that has one.
  void agree(Communicator& ranks) const {
    ranks.agree([&] {
      if (error_) throw Error(error_->code(), error_->what());
    });
  }

 private:
  fs::path folder_;
  std::optional<Error> error_;
};

Snapshots::Snapshots(Communicator& ranks, const fs::path& folder, const fs::path& directory)
    : ranks_(ranks),
      node_(ranks.num_nodes() == 1 ? ranks : ranks.split(ranks.node(), ranks.rank())),
      generations_(make_folder_of_node(folder, directory)) {
  OnNode on_node(folder);
  on_node.run([&] {
    if (!is_first()) return;
    const fs::path path = generations_.directory() / "progress";
    make_memory_file(path, kProgressBytes);
    progress_ = reinterpret_cast<std::uint64_t*>(files_.map(path, kProgressBytes).data());
  });
  on_node.agree(ranks_);
  std::vector<std::int64_t> next(1);
  ranks_.agree([&] {
    if (is_first()) next[0] = static_cast<std::int64_t>(generations_.next()) - 1;
  });
  ranks_.allreduce(view(next.data(), {1}), ReduceOp::max);
  last_ = static_cast<std::uint64_t>(next[0]);
}

/// Nodes of one host have a number each, in the order of their ranks. Collective.
fs::path Snapshots::make_folder_of_node(const fs::path& folder, const fs::path& directory) {
  const std::string host = host_name();
  const auto own = static_cast<std::int64_t>(Digest().add(std::string_view(host)).value() | 1);
  const std::int64_t mine = is_first() ? own : 0;
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks_.size()));
  ranks_.allgather(view(&mine, {1}), view(all.data(), {ranks_.size()}));
  OnNode on_node(folder);
  std::string path;
  on_node.run([&] {
    path = text_of_first(node_, [&] {
      const auto before = std::count(all.begin(), all.begin() + ranks_.rank(), own);
      const fs::path of_node = folder / (host + "." + std::to_string(before));
      make_folder(of_node);
      const std::string name = in_hex(Digest().add(std::string_view(directory.native())).value());
      make_folder(of_node / name);
      return (of_node / name).string();
    });
  });
  on_node.agree(ranks_);
  return path;
}

/// The node's first rank alone: a partial folder, if possible one whose files have memory already.
void Snapshots::begin(std::uint64_t number, std::uint64_t bytes, std::uint64_t held) const {
  std::vector<std::uint64_t> whole = generations_.list();  // newest first
  if (!whole.empty()) whole.erase(whole.begin());
  std::erase(whole, held);
  std::optional<fs::path> reused = generations_.any_partial();
  if (!reused && !whole.empty()) reused = generations_.folder(whole.back());
  require_memory(reused.value_or(fs::path()), bytes);
  const fs::path partial = generations_.partial(number);
  if (reused) {
    if (*reused != partial) move_to(*reused, partial);
    std::error_code ignored;  // making it says what is wrong
    fs::remove(partial / kManifest, ignored);
  } else {
    make_new_folder(partial);
  }
}

void Snapshots::require_memory(const fs::path& reused, std::uint64_t bytes) const {
  const std::uint64_t there = reused.empty() ? 0 : bytes_in(reused);
  const AvailableMemory available = available_memory(generations_.directory().c_str());
  if (bytes <= there || bytes - there <= available.bytes) return;
  throw Error(ErrorCode::out_of_memory,
              "a snapshot takes " + in_kib_or_mib(bytes) + " of each node's memory, twice, and " +
                  in_kib_or_mib(bytes - there) + " more are needed now, but only " +
                  in_kib_or_mib(available.bytes) + " are available according to " +
                  available.source + "; use a larger limit, fewer keys, or save() alone");
}

std::uint64_t Snapshots::take(const StoreContent& content, std::uint64_t held) {
  const std::uint64_t number = ++last_;
  const fs::path folder = generations_.partial(number);
  Manifest manifest{
      .generation = number, .files = {}, .metadata = content.metadata, .pushes = content.pushes};
  OnNode on_node(generations_.directory());
  on_node.run([&] {
    node_.agree([&] {
      if (is_first()) begin(number, bytes_of(content, ranks_.size()), held);
    });
    manifest.files[kWeights] = write_memory_file(node_, files_, folder / kWeights, content.weights);
    if (!content.optimizer) return;
    manifest.files[kOptimizer] =
        write_memory_file(node_, files_, folder / kOptimizer, *content.optimizer);
  });
  if (content.residuals) {
    exchange_residuals(ranks_, *content.residuals, [&](const std::string& name, const Content& of) {
      on_node.run(
          [&] { manifest.files[name] = write_memory_file(node_, files_, folder / name, of); });
    });
  }
  on_node.run([&] {
    node_.agree([&] {
      if (!is_first()) return;
      manifest.writer = this_writer();
      write_manifest(folder, manifest);
      generations_.publish(number);
    });
  });
  on_node.agree(ranks_);
  return number;
}

// --- loading ----------------------------------------------------------------------------------

/// Returns the snapshots of this node on its first rank, and none on the others.
std::vector<Snapshots::Found> Snapshots::found_here() const {
  std::vector<Found> found;
  if (!is_first()) return found;
  for (const std::uint64_t number : generations_.list()) {
    try {
      const fs::path path = generations_.folder(number) / kManifest;
      const Manifest manifest = parse_manifest(read_text(path, kMostManifestBytes));
      found.push_back(
          {static_cast<std::int64_t>(manifest.pushes), static_cast<std::int64_t>(number)});
    } catch (const Error&) {
      drop(number);
    }
  }
  return found;
}

/// Each rank's newest one, and the newest of all.
std::vector<Snapshots::Found> Snapshots::newest_of_nodes(Found& newest) {
  const std::vector<Found> here = found_here();
  const Found own = here.empty() ? Found() : std::ranges::max(here);
  constexpr std::int64_t kFields = 2;
  const std::array<std::int64_t, kFields> mine{own.pushes, own.number};
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks_.size() * kFields));
  ranks_.allgather(view(mine.data(), {kFields}), view(all.data(), {ranks_.size() * kFields}));
  std::vector<Found> of_ranks;
  for (std::size_t i = 0; i < all.size(); i += kFields) of_ranks.push_back({all[i], all[i + 1]});
  newest = std::ranges::max(of_ranks);
  return of_ranks;
}

/// Gives up a damaged snapshot; its files serve as memory for the next one.
void Snapshots::drop(std::uint64_t number) const {
  std::error_code ignored;  // then it is found once more, and passed over once more
  fs::rename(generations_.folder(number), generations_.partial(number), ignored);
}

/// Brings the newest one to the nodes whose first rank has another, byte by byte.
void Snapshots::hand_over(const Found& newest, const std::vector<Found>& of_ranks) {
  const auto source = static_cast<int>(std::ranges::find(of_ranks, newest) - of_ranks.begin());
  const auto number = static_cast<std::uint64_t>(newest.number);
  const bool is_source = ranks_.rank() == source;
  const bool lacks = is_first() && of_ranks[static_cast<std::size_t>(ranks_.rank())] != newest;
  if (ranks_where(ranks_, lacks).empty()) return;

  const fs::path from = generations_.folder(number);
  const fs::path to = generations_.partial(number);
  const std::string text =
      text_of(ranks_, source, [&] { return read_text(from / kManifest, kMostManifestBytes); });
  Manifest manifest;
  ranks_.agree([&] { manifest = parse_manifest(text); });
  std::uint64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  ranks_.agree([&] {
    if (!lacks) return;
    drop(number);
    begin(number, bytes, 0);
    for (const auto& [name, file] : manifest.files) make_memory_file(to / name, file.bytes);
  });
  for (const auto& entry : manifest.files) {
    std::span<std::byte> mapped;
    ranks_.agree([&] {
      if (!lacks && !is_source) return;
      mapped = files_.map((is_source ? from : to) / entry.first, entry.second.bytes);
    });
    send_to_all(ranks_, mapped, entry.second.bytes, source);
  }
  ranks_.agree([&] {
    if (!lacks) return;
    File::open_new(to / kManifest).write(text, 0);
    generations_.publish(number);
  });
}

std::optional<LoadedStore> Snapshots::load(const Wanted& wanted,
                                           std::optional<std::uint64_t> on_disk) {
  std::vector<std::string> damaged;
  while (true) {
    Found newest;
    const std::vector<Found> of_ranks = newest_of_nodes(newest);
    if (newest.number == 0) return std::nullopt;
    if (on_disk && std::cmp_less_equal(newest.pushes, *on_disk)) return std::nullopt;
    hand_over(newest, of_ranks);
    const auto number = static_cast<std::uint64_t>(newest.number);
    std::optional<LoadedStore> loaded;
    std::string damage;
    OnNode on_node(generations_.directory());
    on_node.run([&] {
      try {
        loaded = read_generation(node_, generations_, number, wanted, &files_);
      } catch (const Error& error) {
        if (!is_damage(error)) throw;
        damage = error.what();
        if (is_first()) drop(number);
      }
    });
    on_node.agree(ranks_);
    const std::vector<int> hit = ranks_where(ranks_, !damage.empty());
    if (hit.empty()) {
      loaded->result.from_memory = true;
      loaded->result.damaged = std::move(damaged);
      return loaded;
    }
    damaged.push_back("snapshot " + std::to_string(number) +
                      " is damaged: " + text_of(ranks_, hit.front(), [&] { return damage; }));
  }
}

std::uint64_t Snapshots::last_push() {
  std::int64_t last = progress_ == nullptr ? 0 : static_cast<std::int64_t>(*progress_);
  ranks_.allreduce(view(&last, {1}), ReduceOp::max);
  return static_cast<std::uint64_t>(last);
}

// --- the job's folder -------------------------------------------------------------------------

namespace {

constexpr std::string_view kFolderPrefix = "/dev/shm/tutti-";

/// Removes folders of this user's whose store's process is gone.
void remove_left_folders() {
  std::error_code error;
  for (fs::directory_iterator entries("/dev/shm", error);
       !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path path = entries->path();
    std::error_code ignored;
    if (!path.native().starts_with(kFolderPrefix) || !fs::exists(path / "lock", ignored)) continue;
    try {
      File lock = File::open(path / "lock");
      if (lock.lock()) fs::remove_all(path, ignored);
    } catch (const Error&) {  // another user's, or gone by now
    }
  }
}

fs::path random_path() {
  std::random_device source;
  std::string name(kFolderPrefix);
  for (int i = 0; i < 2; ++i) name += in_hex((std::uint64_t{source()} << 32) | source());
  return name;
}

}  // namespace

/// A lock has its name once it is held, so that nobody takes it meanwhile.
SnapshotFolder::SnapshotFolder(fs::path path) : path_(std::move(path)) {
  const bool is_own = path_.empty();
  if (is_own) {
    remove_left_folders();
    path_ = random_path();
  }
  constexpr mode_t kOwnerAlone = 0700;
  if (mkdir(path_.c_str(), kOwnerAlone) != 0 && errno != EEXIST) {
    throw_io("make the folder", path_, errno);
  }
  struct stat status {};
  const bool is_users = lstat(path_.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                        status.st_uid == geteuid() && (status.st_mode & 077) == 0;
  if (!is_users) {
    throw Error(ErrorCode::io, path_.string() +
                                   " is not a folder of this user alone (mode 700); name another "
                                   "one in TUTTI_SNAPSHOTS");
  }
  if (!is_own) return;
  lock_ = File::open_new(path_ / "unlocked");
  if (lock_->lock()) move_to(path_ / "unlocked", path_ / "lock");
}

SnapshotFolder::~SnapshotFolder() {
  std::error_code ignored;  // the next job's store removes it
  if (lock_) fs::remove_all(path_, ignored);
}

}  // namespace tutti::checkpoint
