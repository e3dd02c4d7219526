// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/generations.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <string>
#include <string_view>

namespace tutti::checkpoint {

namespace {

constexpr std::string_view kPrefix = "generation-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kRemoved = ".removed";

/// The number in "generation-NUMBER" and what follows it; 0 for any other name.
struct Name {
  std::uint64_t generation = 0;
  std::string_view suffix;
};

Name parse(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string_view digits = name.substr(kPrefix.size());
  Name result;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), result.generation);
  if (error != std::errc{} || digits.starts_with('0')) return {};
  result.suffix = digits.substr(static_cast<std::size_t>(end - digits.data()));
  return result;
}

void for_each_name(const fs::path& directory,
                   const std::function<void(const std::string&)>& visit) {
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  if (error == std::errc::no_such_file_or_directory) return;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    visit(entries->path().filename().string());
  }
  if (error) throw_io("list", directory, error.value());
}

/// Adds to `remaining` what cannot be removed.
void remove_folder(const fs::path& folder, std::vector<std::string>& remaining) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) remaining.push_back("cannot remove " + folder.string() + ": " + error.message());
}

}  // namespace

std::vector<std::uint64_t> Generations::list() const {
  std::vector<std::uint64_t> found;
  for_each_name(directory_, [&](const std::string& name) {
    const auto [generation, suffix] = parse(name);
    if (generation != 0 && suffix.empty()) found.push_back(generation);
  });
  std::ranges::sort(found, std::greater());
  return found;
}

fs::path Generations::folder(std::uint64_t generation) const {
  return directory_ / (std::string(kPrefix) + std::to_string(generation));
}

fs::path Generations::partial(std::uint64_t generation) const {
  return folder(generation) += kPartial;
}

void Generations::make_directory() const {
  std::error_code ignored;  // making it says what is wrong
  if (fs::is_directory(directory_, ignored)) return;
  make_folder(directory_);
  const fs::path parent = fs::absolute(directory_ / "").parent_path().parent_path();
  sync_folder(parent);
}

std::vector<std::string> Generations::remove_leftovers() const {
  std::vector<fs::path> leftovers;
  for_each_name(directory_, [&](const std::string& name) {
    const auto [generation, suffix] = parse(name);
    if (suffix == kPartial || suffix == kRemoved) leftovers.push_back(directory_ / name);
  });
  std::vector<std::string> remaining;
  for (const fs::path& leftover : leftovers) remove_folder(leftover, remaining);
  return remaining;
}

std::optional<fs::path> Generations::any_partial() const {
  std::optional<fs::path> found;
  for_each_name(directory_, [&](const std::string& name) {
    const auto [generation, suffix] = parse(name);
    if (generation != 0 && suffix == kPartial) found = directory_ / name;
  });
  return found;
}

std::uint64_t Generations::next() const {
  std::uint64_t greatest = 0;
  for_each_name(directory_, [&](const std::string& name) {
    greatest = std::max(greatest, parse(name).generation);
  });
  return greatest + 1;
}

void Generations::publish(std::uint64_t generation) const {
  sync_folder(partial(generation));
  move_to(partial(generation), folder(generation));
  sync_folder(directory_);
}

/// A folder loses its name before its files, so that a generation that has its name is whole.
std::vector<std::string> Generations::prune(std::uint64_t newest,
                                            std::optional<std::uint64_t> good) const {
  std::vector<std::string> remaining;
  std::vector<std::uint64_t> older = list();
  std::erase_if(older, [&](std::uint64_t generation) { return generation >= newest; });
  const bool is_there = good && std::ranges::find(older, *good) != older.end();
  if (older.empty()) return remaining;
  const std::uint64_t kept = is_there ? *good : older.front();
  for (const std::uint64_t generation : older) {
    if (generation == kept) continue;
    const fs::path removed = folder(generation) += kRemoved;
    std::error_code error;
    fs::rename(folder(generation), removed, error);
    if (error) {
      remaining.push_back("cannot rename " + folder(generation).string() + ": " + error.message());
    } else {
      remove_folder(removed, remaining);
    }
  }
  return remaining;
}

}  // namespace tutti::checkpoint
