// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint.hpp"

#include <charconv>
#include <random>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/checkpoint/exchange.hpp"
#include "runtime/checkpoint/generation_files.hpp"
#include "runtime/checkpoint/generations.hpp"
#include "runtime/checkpoint/memory_files.hpp"
#include "runtime/checkpoint/seal.hpp"

namespace tutti::checkpoint {

namespace {

/// The numbers of a text, with a space behind each.
std::vector<std::uint64_t> numbers_in(const std::string& text) {
  std::vector<std::uint64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* from = text.data(); from < end;) {
    std::uint64_t number = 0;
    from = std::from_chars(from, end, number).ptr + 1;
    numbers.push_back(number);
  }
  return numbers;
}

std::string random_hex() {
  std::random_device source;
  return in_hex((std::uint64_t{source()} << 32) | source());
}

/// The ranks that find in their folder what rank 0 has just put there: only they can write the same
/// file together. Collective.
std::vector<int> ranks_that_share(Communicator& ranks, const fs::path& folder) {
  const bool is_first = ranks.rank() == 0;
  const std::string nonce = text_of_first(ranks, [&] {
    const std::string text = random_hex();
    const fs::path path = folder / (".nonce-" + text);
    File file = File::open_new(path);
    try {
      file.write(text, 0);
    } catch (const Error&) {
      std::error_code ignored;  // the error under way is the reason
      fs::remove(path, ignored);
      throw;
    }
    return text;
  });
  const fs::path path = folder / (".nonce-" + nonce);
  bool is_there = is_first;
  try {
    is_there = is_there || read_text(path, nonce.size()) == nonce;
  } catch (const Error&) {
    is_there = false;  // such a rank leaves the writing to the others
  }
  std::vector<int> sharing = ranks_where(ranks, is_there);
  std::error_code ignored;  // it is the folder's next user who would notice
  if (is_first) fs::remove(path, ignored);
  return sharing;
}

/// The writer of a generation, by its manifest; nothing where it cannot be read, which is what
/// a load says.
Writer writer_of(const fs::path& generation) {
  try {
    return parse_manifest(read_text(generation / kManifest, kMostManifestBytes)).writer;
  } catch (const Error&) {
    return {};
  }
}

/// Rank 0 alone: makes the folder of a new generation, which is this job's alone while `lock`
/// lives. Adds what interrupted saves have left and cannot be removed.
std::uint64_t begin(const Generations& generations, std::optional<File>& lock,
                    std::vector<std::string>& remaining) {
  generations.make_directory();
  File folder = File::open_folder(generations.directory());
  if (!folder.lock()) {
    throw Error(ErrorCode::io, "another process is saving into " +
                                   generations.directory().string() +
                                   "; give each job, and each store of one process, its own");
  }
  lock = std::move(folder);
  remaining = generations.remove_leftovers();
  const auto existing = generations.list();
  if (!existing.empty()) {
    require_only_writer(generations.directory(), existing.front(),
                        writer_of(generations.folder(existing.front())), this_writer());
  }
  const std::uint64_t generation = generations.next();
  make_new_folder(generations.partial(generation));
  return generation;
}

/// Fills the partial folder and gives it its name. Collective.
void write_generation(Communicator& ranks, const Generations& generations, std::uint64_t generation,
                      const StoreContent& content) {
  const fs::path folder = generations.partial(generation);
  const auto writers = ranks_that_share(ranks, folder);
  Manifest manifest{.generation = generation,
                    .files = {},
                    .metadata = content.metadata,
                    .pushes = content.pushes};
  manifest.files[kWeights] = write_tensor_file(ranks, folder / kWeights, content.weights, writers);
  if (content.optimizer) {
    manifest.files[kOptimizer] =
        write_tensor_file(ranks, folder / kOptimizer, *content.optimizer, writers);
  }
  if (content.residuals) {
    exchange_residuals(ranks, *content.residuals, [&](const std::string& name, const Content& of) {
      manifest.files[name] = write_tensor_file(ranks, folder / name, of, writers);
    });
  }
  ranks.agree([&] {
    if (ranks.rank() != 0) return;
    manifest.writer = this_writer();
    write_manifest(folder, manifest);
    generations.publish(generation);
  });
}

/// Copies a file of the nodes' memory to the disk, which reads it where it is.
void copy_to_disk(const fs::path& from, const fs::path& to, std::uint64_t bytes) {
  MemoryFiles files;
  const std::span<const std::byte> source = files.map(from, bytes);
  File target = File::open_new(to);
  target.reserve(bytes);
  for (std::uint64_t at = 0; at < bytes; at += kChunkBytes) {
    target.write_out(source.subspan(at, std::min(kChunkBytes, bytes - at)), at);
  }
  target.sync();
}

/// The path of a file before it takes its name, in its folder, whose links are followed here.
/// The names of files end at 255 bytes, so that a long one gets another.
fs::path partial_of(const fs::path& path, const fs::path& folder) {
  constexpr std::size_t kMostName = 240;
  const std::string name = path.filename();
  const std::string begin =
      name.size() <= kMostName ? name : in_hex(Digest().add(std::string_view(name)).value());
  return folder / (begin + ".partial");
}

}  // namespace

Saved save(Communicator& ranks, const fs::path& directory, const StoreContent& content,
           std::optional<std::uint64_t> good) {
  const bool is_first = ranks.rank() == 0;
  const Generations generations(directory);
  std::optional<File> lock;  // on rank 0
  Saved saved;
  std::uint64_t& generation = saved.generation;
  try {
    const std::string number = text_of_first(
        ranks, [&] { return std::to_string(begin(generations, lock, saved.remaining)); });
    std::from_chars(number.data(), number.data() + number.size(), generation);
    write_generation(ranks, generations, generation, content);
  } catch (const Error&) {
    std::error_code ignored;  // the error under way is the reason; the next save tries again
    if (lock) fs::remove_all(generations.partial(generation), ignored);
    throw;
  }
  ranks.agree([&] {
    if (!is_first) return;
    const auto unpruned = generations.prune(generation, good);
    saved.remaining.insert(saved.remaining.end(), unpruned.begin(), unpruned.end());
  });
  return saved;
}

Saved save_copy(const fs::path& snapshot, const fs::path& directory,
                std::optional<std::uint64_t> good) {
  const Generations generations(directory);
  std::optional<File> lock;
  Saved saved;
  saved.generation = begin(generations, lock, saved.remaining);
  const fs::path folder = generations.partial(saved.generation);
  try {
    Manifest manifest = parse_manifest(read_text(snapshot / kManifest, kMostManifestBytes));
    manifest.generation = saved.generation;
    manifest.writer = this_writer();
    for (const auto& [name, file] : manifest.files) {
      copy_to_disk(snapshot / name, folder / name, file.bytes);
    }
    write_manifest(folder, manifest);
    generations.publish(saved.generation);
  } catch (const Error&) {
    std::error_code ignored;  // the error under way is the reason; the next save tries again
    fs::remove_all(folder, ignored);
    throw;
  }
  const auto unpruned = generations.prune(saved.generation, good);
  saved.remaining.insert(saved.remaining.end(), unpruned.begin(), unpruned.end());
  return saved;
}

std::optional<std::uint64_t> newest_pushes(Communicator& ranks, const fs::path& directory) {
  const std::vector<std::uint64_t> found = numbers_in(text_of_first(ranks, [&] {
    const Generations generations(directory);
    for (const std::uint64_t generation : generations.list()) {
      try {
        const fs::path path = generations.folder(generation) / kManifest;
        const Manifest manifest = parse_manifest(read_text(path, kMostManifestBytes));
        return std::to_string(manifest.pushes) + " ";
      } catch (const Error&) {  // load() says what it is
        continue;
      }
    }
    return std::string();
  }));
  return found.empty() ? std::nullopt : std::optional(found.front());
}

std::optional<LoadedStore> load(Communicator& ranks, const fs::path& directory,
                                const Wanted& wanted) {
  const Generations generations(directory);
  const std::string numbers = text_of_first(ranks, [&] {
    std::string text;
    for (const std::uint64_t generation : generations.list()) {
      text += std::to_string(generation) + " ";
    }
    return text;
  });
  std::vector<std::string> damaged;
  for (const std::uint64_t generation : numbers_in(numbers)) {
    try {
      LoadedStore loaded = read_generation(ranks, generations, generation, wanted);
      loaded.result.damaged = std::move(damaged);
      return loaded;
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      damaged.push_back("generation " + std::to_string(generation) +
                        " is damaged: " + error.what());
    }
  }
  if (damaged.empty()) return std::nullopt;
  std::string text = "no checkpoint in " + directory.string() + " is whole";
  for (const std::string& reason : damaged) text += "; " + reason;
  throw Error(ErrorCode::corrupt_file, text, ErrorScope::agreed, ranks.rank() == 0);
}

void save_file(Communicator& ranks, const fs::path& path, const Content& content) {
  const bool is_first = ranks.rank() == 0;
  const fs::path given = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code ignored;  // making it says what is wrong
  const fs::path real = fs::canonical(given, ignored);
  const fs::path folder = ignored ? given : real;
  const fs::path partial = partial_of(path, folder);
  const auto writers = ranks_that_share(ranks, folder);
  if (is_first) fs::remove(partial, ignored);
  try {
    write_tensor_file(ranks, partial, content, writers);
    ranks.agree([&] {
      if (!is_first) return;
      move_to(partial, path);
      sync_folder(folder);
    });
  } catch (const Error&) {
    if (is_first) fs::remove(partial, ignored);
    throw;
  }
}

TensorFile load_file(Communicator& ranks, const fs::path& path) {
  return TensorFile::read(ranks, path);
}

}  // namespace tutti::checkpoint
