// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint, intact and damaged.
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tutti/tutti.hpp"

#include "runtime/base/file.hpp"
#include "runtime/checkpoint/generations.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/seal.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/scratch_folder.hpp"

using tutti::ErrorCode;
using namespace tutti::checkpoint;
using tutti::KVStore;
using tutti::Tensor;

// --- files ---------------------------------------------------------------------------------------

// The parts of a checkpoint that one rank handles: seals, manifests, files, generations.

namespace {

using Numbers = std::vector<std::uint64_t>;

void make_folders(const fs::path& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    fs::create_directories(directory / name);
    std::ofstream(directory / name / "file") << name;
  }
}

Manifest example() {
  return {.generation = 7,
          .files = {{"weights.safetensors", {1234567890123, "0123456789abcdef"}},
                    {"optimizer.safetensors", {0, "fedcba9876543210"}}},
          .metadata = {{"epoch", "3"}, {"a \"quoted\"\nline", "\u00e9"}, {"", ""}}};
}

constexpr rlim_t kLimit = kBlockBytes + 1000;  // within a block

/// True if the call throws the error of a file's largest size. It runs in a process of its own,
/// with which the limit ends.
bool meets_limit(const std::function<void()>& call) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{kLimit, kLimit};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);
    try {
      call();
    } catch (const tutti::Error& error) {
      _exit(std::string(error.what()).find("ulimit -f") != std::string::npos ? 0 : 2);
    }
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0;
}

struct AlignedBytes {
  explicit AlignedBytes(std::size_t count) : bytes(count + kBlockBytes) {
    void* start = bytes.data();
    std::size_t room = bytes.size();
    begin = static_cast<std::byte*>(std::align(kBlockBytes, count, start, room));
    std::mt19937 engine(5);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
  }
  std::vector<std::byte> bytes;
  std::byte* begin;
};

}  // namespace

TEST_CASE("a seal notices any change of any byte") {
  std::string text = "{\"xxh3\":\"" + std::string(kUnsealed) + "\",\"value\":12}";
  CHECK(seal_of(text, 9).empty());
  seal(text, 9);
  CHECK(seal_of(text, 9) == text.substr(9, 16));
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      CHECK(seal_of(changed, 9).empty());
    }
    CHECK(seal_of(text.substr(0, i), 9).empty());
  }
}

TEST_CASE("a manifest is read back") {
  const Manifest manifest = parse_manifest(to_text(example()));
  CHECK(manifest.generation == 7);
  CHECK(manifest.files == example().files);
  CHECK(manifest.metadata == example().metadata);
}

TEST_CASE("a manifest says who wrote it, and those of earlier versions do not") {
  Manifest manifest = example();
  CHECK(parse_manifest(to_text(manifest)).writer == Writer());
  manifest.writer = this_writer();
  CHECK(manifest.writer.process == getpid());
  CHECK(parse_manifest(to_text(manifest)).writer == manifest.writer);
}

TEST_CASE("another job that saves meanwhile is an error while it is alive, and else a warning") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {  // another process of this host, which lives as long as the test needs it
    const Writer self = this_writer();
    const bool is_written = write(ends[1], &self.begun, sizeof self.begun) == sizeof self.begun;
    if (!is_written) _exit(1);
    for (;;) pause();
  }
  const Writer own = this_writer();
  Writer other = own;
  other.process = child;
  REQUIRE(read(ends[0], &other.begun, sizeof other.begun) == sizeof other.begun);
  other.written = own.begun + 100;
  const auto look = [&] { require_only_writer("run", 7, other, own); };
  test::expect_error(
      look, ErrorCode::io,
      {"generation 7 in run", "pid " + std::to_string(child), "a folder of its own"});
  other.written = own.begun;  // as a resumed job finds it
  CHECK_NOTHROW(look());
  other.written = own.begun + 100;
  kill(child, SIGKILL);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK_NOTHROW(look());
  other.host = "elsewhere";
  CHECK_NOTHROW(look());
  CHECK_NOTHROW(require_only_writer("run", 7, own, own));
  CHECK_NOTHROW(require_only_writer("run", 7, Writer(), own));
  for (const int end : ends) close(end);
}

TEST_CASE("a manifest with any byte changed, missing or added is damaged") {
  const std::string text = to_text(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    test::expect_error([&] { (void)parse_manifest(changed); }, ErrorCode::corrupt_file,
                       {"checksum"});
    test::expect_error([&] { (void)parse_manifest(text.substr(0, i)); }, ErrorCode::corrupt_file,
                       {"checksum"});
  }
  test::expect_error([&] { (void)parse_manifest(text + " "); }, ErrorCode::corrupt_file, {});
}

TEST_CASE("a manifest of a later format is refused as such, and any other content as none") {
  const auto sealed = [](std::string rest) {
    std::string text = "{\"xxh3\":\"" + std::string(kUnsealed) + "\"" + std::move(rest);
    seal(text, 9);
    return text;
  };
  test::expect_error([&] { (void)parse_manifest(sealed(",\"format\":2,\"other\":[]}")); },
                     ErrorCode::io, {"later version", "format 2", "up to 1"});
  for (const char* rest :
       {"}", ",\"format\":1}", ",\"format\":\"1\"}", ",\"format\":1,\"generation\":-1}", ""}) {
    test::expect_error([&] { (void)parse_manifest(sealed(rest)); }, ErrorCode::corrupt_file,
                       {"not a manifest"});
  }
}

TEST_CASE("generations are listed newest first, and nothing else is taken for one") {
  const test::ScratchFolder folder;
  const Generations generations(folder.path() / "there");
  CHECK(generations.list().empty());
  make_folders(folder.path() / "there",
               {"generation-2", "generation-10", "generation-9", "generation-11.partial",
                "generation-1.removed", "generation-", "generation-03", "generation-0",
                "generation-99999999999999999999", "generation-4x", "other"});
  CHECK(generations.list() == Numbers{10, 9, 2});
  CHECK(generations.next() == 12);
  CHECK(generations.remove_leftovers().empty());
  CHECK(generations.next() == 11);
  CHECK(!fs::exists(generations.directory() / "generation-11.partial"));
  CHECK(!fs::exists(generations.directory() / "generation-1.removed"));
  CHECK(fs::exists(generations.directory() / "generation-4x" / "file"));
  CHECK(generations.list() == Numbers{10, 9, 2});
}

TEST_CASE("two generations are kept: the new one and the one that is known to be whole") {
  const test::ScratchFolder folder;
  const Generations generations(folder.path());
  const std::vector<std::string> all = {"generation-1", "generation-2", "generation-3",
                                        "generation-4"};
  make_folders(folder.path(), all);
  CHECK(generations.prune(4, std::nullopt).empty());
  CHECK(generations.list() == Numbers{4, 3});
  make_folders(folder.path(), all);
  CHECK(generations.prune(4, 2).empty());
  CHECK(generations.list() == Numbers{4, 2});
  CHECK(generations.prune(4, 1).empty());  // generation 1 is not there any more
  CHECK(generations.list() == Numbers{4, 2});
  CHECK(generations.prune(2, 1).empty());
  CHECK(generations.list() == Numbers{4, 2});
}

TEST_CASE("a full disk is an error that names the file and says what to do") {
  File full = File::open_to_write("/dev/full");
  test::expect_error([&] { full.write(std::string("text"), 0); }, ErrorCode::io,
                     {"cannot write /dev/full", "No space left on device", "free some space"});
}

TEST_CASE("the limit of file sizes is an error, not the end of the process") {
  const test::ScratchFolder folder;
  CHECK(meets_limit([&] { File::open_new(folder.path() / "a").reserve(kLimit + 1); }));
  CHECK(!meets_limit([&] { File::open_new(folder.path() / "b").reserve(kLimit); }));
  const AlignedBytes data(2 * kBlockBytes);
  const std::span<const std::byte> two_blocks(data.begin, 2 * kBlockBytes);
  CHECK(meets_limit([&] { File::open_new(folder.path() / "c").write_out(two_blocks, 0); }));
  CHECK(File::open(folder.path() / "c").size() == kLimit);
}

TEST_CASE("what is written out is read back, on a disk and in memory, aligned or not") {
  const std::vector<std::size_t> sizes{0, 1, kBlockBytes - 1, kBlockBytes, 3 * kBlockBytes + 5};
  const AlignedBytes data(sizes.back() + 1);
  for (const fs::path& place : {fs::temp_directory_path(), fs::path("/dev/shm")}) {
    const test::ScratchFolder folder(place);
    for (const std::size_t position : {std::size_t{0}, std::size_t{3}, 2 * kBlockBytes}) {
      for (const std::size_t offset : {0, 1}) {
        for (const std::size_t size : sizes) {
          File file = File::open_new(folder.path() / "file");
          file.write_out({data.begin + offset, size}, position);
          file.write(std::string("end"), position + size);
          std::vector<std::byte> got(size + 3);
          File::open(file.path()).read(got, position);
          CHECK(std::memcmp(got.data(), data.begin + offset, size) == 0);
          CHECK(std::memcmp(got.data() + size, "end", 3) == 0);
          CHECK(file.size() == position + size + 3);
          fs::remove(file.path());
        }
      }
    }
  }
}

TEST_CASE("files that are missing, there already, or no folders are errors with path and reason") {
  const test::ScratchFolder folder;
  const fs::path file = folder.path() / "file";
  test::expect_error([&] { (void)File::open(file); }, ErrorCode::io,
                     {"cannot open " + file.string(), "No such file", "check the path"});
  File::open_new(file).write(std::string("12345"), 0);
  test::expect_error([&] { (void)File::open_new(file); }, ErrorCode::io, {"File exists"});
  test::expect_error([&] { sync_folder(file); }, ErrorCode::io, {"Not a directory"});
  test::expect_error([&] { Generations(file).make_directory(); }, ErrorCode::io, {file.string()});
  test::expect_error([&] { (void)Generations(file).list(); }, ErrorCode::io, {"cannot list"});
  test::expect_error([&] { Generations(folder.path() / "a" / "b").make_directory(); },
                     ErrorCode::io, {"No such file", "must exist"});
  test::expect_error([&] { (void)read_text(file, 4); }, ErrorCode::corrupt_file,
                     {"5 bytes", "at most 4"});
  CHECK(read_text(file, 5) == "12345");
  std::vector<std::byte> bytes(6);
  test::expect_error([&] { File::open(file).read(bytes, 0); }, ErrorCode::corrupt_file,
                     {"truncated", "byte 5"});
}

TEST_CASE("a folder that is locked is locked for every other handle until that one is gone") {
  const test::ScratchFolder folder;
  {
    File first = File::open_folder(folder.path());
    CHECK(first.lock());
    CHECK(!File::open_folder(folder.path()).lock());
  }
  CHECK(File::open_folder(folder.path()).lock());
}

// --- damage --------------------------------------------------------------------------------------

// Any byte of a checkpoint is changed, cut off or added: the load notices it, and loads nothing.

namespace fs = std::filesystem;

namespace {

std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

/// A store with the keys 1 and 2, and adam's states of key 1.
KVStore trained() {
  KVStore kv = KVStore::create("local");
  kv.set_optimizer(tutti::optimizer::adam());
  kv.init({1, 2}, {Tensor::full({40}, 1), Tensor::full({3}, 2)});
  kv.push(1, Tensor::full({40}, 0.5));
  return kv;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

/// Expects an error of a load after a file was changed to `content`.
void expect_damage(KVStore& kv, const fs::path& directory, const fs::path& file,
                   const std::string& content) {
  write(file, content);
  test::expect_error([&] { kv.load(directory); }, ErrorCode::corrupt_file,
                     {"no checkpoint in", file.filename().string()});
}

}  // namespace

TEST_CASE("every changed byte of every file of a checkpoint is noticed") {
  const test::ScratchFolder folder;
  KVStore kv = trained();
  kv.save(folder.path(), {{"epoch", "3"}});
  const Tensor before = [&] {
    Tensor copy = Tensor::zeros({40});
    kv.pull(1, copy);
    return copy;
  }();
  const auto files = files_in(folder.path() / "generation-1");
  CHECK(files.size() == 3);
  std::mt19937_64 random(1);
  for (const fs::path& file : files) {
    const std::string content = content_of(file);
    for (std::size_t at = 0; at < content.size(); ++at) {
      std::string changed = content;
      changed[at] = static_cast<char>(changed[at] ^ (1U << random() % 8));
      expect_damage(kv, folder.path(), file, changed);
    }
    write(file, content);
  }
  CHECK(kv.load(folder.path()).generation == 1);
  const auto values = kv.view(1).values<float>();
  CHECK(std::equal(values.begin(), values.end(), before.values<float>().begin()));
}

TEST_CASE("a file of a checkpoint that is shorter, longer, or has bytes exchanged is noticed") {
  const test::ScratchFolder folder;
  KVStore kv = trained();
  kv.save(folder.path());
  std::mt19937_64 random(2);
  for (const fs::path& file : files_in(folder.path() / "generation-1")) {
    const std::string content = content_of(file);
    for (int i = 0; i < 200; ++i) {
      expect_damage(kv, folder.path(), file, content.substr(0, random() % content.size()));
      std::string changed = content;
      changed.insert(random() % (content.size() + 1), random() % 20 + 1, '\0');
      expect_damage(kv, folder.path(), file, changed);
      changed = content;
      const std::size_t one = random() % content.size();
      const std::size_t other = random() % content.size();
      std::swap(changed[one], changed[other]);
      if (changed != content) expect_damage(kv, folder.path(), file, changed);
    }
    write(file, content);
  }
}

TEST_CASE("every changed byte of a file of optimizer states is noticed") {
  const test::ScratchFolder folder;
  KVStore kv = trained();
  const fs::path path = folder.path() / "states";
  kv.save_optimizer_states(path);
  const std::string content = content_of(path);
  for (std::size_t at = 0; at < content.size(); ++at) {
    std::string changed = content;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    write(path, changed);
    test::expect_error([&] { kv.load_optimizer_states(path); }, ErrorCode::corrupt_file,
                       {path.string()});
  }
  write(path, content);
  kv.load_optimizer_states(path);
}

TEST_CASE("a file of another library, or none at all, is refused as optimizer states") {
  const test::ScratchFolder folder;
  KVStore kv = trained();
  const fs::path path = folder.path() / "states";
  const std::string json = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(json.size());
  write(path, length + json + "1234");
  test::expect_error([&] { kv.load_optimizer_states(path); }, ErrorCode::corrupt_file,
                     {path.string(), "not this library's"});
  write(path, "");
  test::expect_error([&] { kv.load_optimizer_states(path); }, ErrorCode::corrupt_file,
                     {path.string(), "0 bytes"});
  write(path, std::string(100, '\xff'));
  test::expect_error([&] { kv.load_optimizer_states(path); }, ErrorCode::corrupt_file,
                     {path.string(), "header's length"});
}

TEST_CASE("a file of a later format is refused as such, not as damage") {
  const test::ScratchFolder folder;
  KVStore kv = trained();
  const fs::path path = folder.path() / "states";
  kv.save_optimizer_states(path);
  std::string content = content_of(path);
  const std::string format = "\"tutti.format\":\"";
  content[content.find(format) + format.size()] = '7';
  std::string head = content.substr(0, 4096);
  const std::size_t place = head.find("xxh3\":\"") + 7;
  head.replace(place, 16, tutti::checkpoint::kUnsealed);
  tutti::checkpoint::seal(head, place);
  write(path, head + content.substr(4096));
  test::expect_error([&] { kv.load_optimizer_states(path); }, ErrorCode::io,
                     {path.string(), "later version", "format 7"});
}
