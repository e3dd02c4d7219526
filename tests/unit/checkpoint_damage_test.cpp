// SPDX-License-Identifier: Apache-2.0
// Whatever byte of a checkpoint is changed, cut off or added: it is noticed, and nothing is loaded.
#include <doctest/doctest.h>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

#include "runtime/checkpoint/seal.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/unit/expect_error.hpp"

using tutti::ErrorCode;
using tutti::KVStore;
using tutti::Tensor;

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

/// The keys 1 and 2, and adam's states of 1.
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

/// Loads with a file changed to `content`.
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
