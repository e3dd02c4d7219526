// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/verify/comparison.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/store/core/host_copies.hpp"
#include "runtime/store/core/together.hpp"
#include "runtime/store/verify/sample.hpp"

namespace tutti {

namespace {

constexpr std::size_t kChunksAtOnce = 4096;
constexpr std::size_t kGatheredAtOnce = 64;  // chunks that differ, whose digests all ranks gather
constexpr std::size_t kMostNamed = 8;

/// The lowest rank whose digest more than half of the ranks have; -1 if there is none.
int majority_of(std::span<const std::uint64_t> digests) {
  for (std::size_t rank = 0; rank < digests.size() / 2 + 1; ++rank) {
    const auto alike = std::ranges::count(digests, digests[rank]);
    if (2 * static_cast<std::size_t>(alike) > digests.size()) return static_cast<int>(rank);
  }
  return -1;
}

std::string in_hexadecimal(std::uint64_t digest) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

}  // namespace

VerifyResult Comparison::run(std::span<Entry* const> entries, const Optimizer* optimizer) {
  optimizer_ = optimizer;
  std::optional<HostCopies> host_copies;
  throw_together(group_.engine(), "verify", [&] { host_copies.emplace(group_, entries); });
  const VerifyResult result = run_on_host(entries);
  if (result.healed > 0) fail_together(group_.engine(), [&] { host_copies->write_back(); });
  return result;
}

VerifyResult Comparison::run_on_host(std::span<Entry* const> entries) {
  VerifyResult result;
  std::vector<Finding> findings;
  std::vector<Chunk> chunks;
  const auto compare_these = [&] {
    compare(chunks, findings);
    chunks.clear();
  };
  for (Entry* entry : entries) {
    for (std::size_t tensor = 0; tensor < num_tensors(*entry); ++tensor) {
      const std::size_t all = tensor_of(*entry, tensor).size_bytes();
      result.bytes += all;
      for (std::size_t first = 0; first < all; first += kChunkBytes) {
        chunks.push_back({entry, tensor, first, std::min(kChunkBytes, all - first)});
        if (chunks.size() == kChunksAtOnce) compare_these();
      }
    }
  }
  if (!chunks.empty()) compare_these();
  const auto has_no_majority = [](const Finding& finding) { return finding.source < 0; };
  if (std::ranges::any_of(findings, has_no_majority)) throw_divergence(findings);
  for (const Finding& finding : findings) heal(finding);
  result.healed = findings.size();
  if (group_.topology().rank != 0) return result;
  for (std::size_t i = 0; i < std::min(findings.size(), kMostNamed); ++i) {
    group_.log().warn(describe_healed(findings[i]));
  }
  if (findings.size() > kMostNamed) {
    group_.log().warn(std::to_string(findings.size() - kMostNamed) + " more chunks were healed");
  }
  return result;
}

/// Finds the chunks that differ. Where all ranks have the same digests, which is nearly always
/// everywhere, a rank sees only the largest and the smallest digest of each chunk: its memory does
/// not grow with the job.
void Comparison::compare(std::span<const Chunk> chunks, std::vector<Finding>& findings) {
  std::vector<std::int64_t> own;
  for (const Chunk& chunk : chunks) {
    const std::byte* bytes = tensor_of(*chunk.entry, chunk.tensor).bytes() + chunk.first;
    own.push_back(static_cast<std::int64_t>(XXH3_64bits(bytes, chunk.bytes)));
  }
  const auto describe = [&] {
    return "comparison of " + std::to_string(chunks.size()) + " chunks of the replicas";
  };
  std::vector<std::int64_t> largest = own;  // of the digests, followed by their complements
  for (const std::int64_t digest : own) largest.push_back(~digest);
  auto* bytes = reinterpret_cast<std::byte*>(largest.data());
  const collectives::Segment segment{bytes, bytes, largest.size(), DType::int64};
  group_.engine().run({.kind = collectives::Kind::allreduce,
                       .reduce = ReduceOp::max,
                       .digest = chunks.size(),
                       .segments = {&segment, 1},
                       .describe = describe,
                       .verb = collectives::Verb::verify});
  std::vector<std::size_t> different;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (largest[i] == ~largest[chunks.size() + i]) continue;
    different.push_back(i);
    if (different.size() == kGatheredAtOnce) gather(chunks, own, different, findings);
  }
  if (!different.empty()) gather(chunks, own, different, findings);
}

/// Gathers every rank's digests of the chunks in `different`, which is empty afterwards.
void Comparison::gather(std::span<const Chunk> chunks, std::span<const std::int64_t> own,
                        std::vector<std::size_t>& different, std::vector<Finding>& findings) {
  const auto ranks = static_cast<std::size_t>(group_.topology().size);
  const std::size_t count = different.size();
  std::vector<std::uint64_t> mine;
  for (const std::size_t chunk : different) mine.push_back(static_cast<std::uint64_t>(own[chunk]));
  std::vector<std::uint64_t> all(ranks * count);
  const std::vector<collectives::Segment> segments = collectives::allgather_segments(
      group_.topology().size, reinterpret_cast<const std::byte*>(mine.data()),
      reinterpret_cast<std::byte*>(all.data()), count, DType::int64);
  const auto describe = [&] {
    return "comparison of " + std::to_string(count) + " chunks that differ between replicas";
  };
  group_.engine().run({.kind = collectives::Kind::allgather,
                       .digest = count,
                       .segments = segments,
                       .describe = describe,
                       .verb = collectives::Verb::verify});
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::uint64_t> digests;
    for (std::size_t rank = 0; rank < ranks; ++rank) digests.push_back(all[rank * count + i]);
    const int source = majority_of(digests);
    findings.push_back({chunks[different[i]], std::move(digests), source});
  }
  different.clear();
}

/// Heals a chunk through a copy, so that only the minority's memory is written.
void Comparison::heal(const Finding& finding) {
  const Chunk& chunk = finding.chunk;
  const Tensor& tensor = tensor_of(*chunk.entry, chunk.tensor);
  std::byte* own = const_cast<std::byte*>(tensor.bytes()) + chunk.first;
  std::vector<std::byte> right(chunk.bytes);
  const collectives::Segment segment{.input = own,
                                     .output = right.data(),
                                     .count = chunk.bytes,
                                     .dtype = DType::uint8,
                                     .source = finding.source};
  const auto text = [&] { return "healing of " + describe(chunk); };
  group_.engine().run({.kind = collectives::Kind::broadcast,
                       .root = finding.source,
                       .digest = Digest().add(chunk.entry->key).add(chunk.first).value(),
                       .segments = {&segment, 1},
                       .describe = text,
                       .verb = collectives::Verb::verify});
  const auto self = static_cast<std::size_t>(group_.topology().rank);
  const auto source = static_cast<std::size_t>(finding.source);
  if (finding.digests[self] != finding.digests[source]) {
    std::memcpy(own, right.data(), chunk.bytes);
  }
}

/// A chunk for messages: "key 3 (2, 3) float32, weights, chunk 0 (elements 0 to 5)".
std::string Comparison::describe(const Chunk& chunk) const {
  const Entry& entry = *chunk.entry;
  const Tensor& tensor = tensor_of(entry, chunk.tensor);
  const std::size_t size = size_of(tensor.dtype());
  std::string part = "weights";
  if (chunk.tensor > 0) {
    part = "state " + std::to_string(chunk.tensor - 1);
    if (optimizer_ != nullptr) part += " of " + optimizer_->name();
  }
  return tutti::to_string(entry.key, entry.shape(), entry.dtype()) + ", " + part + ", chunk " +
         std::to_string(chunk.first / kChunkBytes) + " (elements " +
         std::to_string(chunk.first / size) + " to " +
         std::to_string((chunk.first + chunk.bytes) / size - 1) + ")";
}

std::string Comparison::describe_healed(const Finding& finding) const {
  const auto& topology = group_.topology();
  const std::uint64_t right = finding.digests[static_cast<std::size_t>(finding.source)];
  std::vector<int> wrong;
  for (int rank = 0; rank < topology.size; ++rank) {
    if (finding.digests[static_cast<std::size_t>(rank)] != right) wrong.push_back(rank);
  }
  const std::size_t alike = finding.digests.size() - wrong.size();
  return names_of(topology, wrong) + ": " + describe(finding.chunk) + " differed from what " +
         std::to_string(alike) + " of " + std::to_string(topology.size) +
         " ranks hold; healed from " + name_of(topology, finding.source) +
         ". Watch this host's memory.";
}

void Comparison::throw_divergence(const std::vector<Finding>& findings) const {
  const auto& topology = group_.topology();
  const auto first =
      std::ranges::find_if(findings, [](const Finding& one) { return one.source < 0; });
  std::map<std::uint64_t, std::vector<int>> holders;
  for (int rank = 0; rank < topology.size; ++rank) {
    holders[first->digests[static_cast<std::size_t>(rank)]].push_back(rank);
  }
  std::string text =
      "replicas are not equal: " + describe(first->chunk) + " differs: it has the digest";
  const char* separator = " ";
  for (const auto& [digest, ranks] : holders) {
    text += separator + in_hexadecimal(digest) + " on " + names_of(topology, ranks);
    separator = ", ";
  }
  for (std::size_t i = 0, named = 1; i < findings.size() && named < kMostNamed; ++i) {
    if (&findings[i] == &*first) continue;
    text += "; so does " + describe(findings[i].chunk);
    ++named;
  }
  if (findings.size() > kMostNamed) {
    text += "; and " + std::to_string(findings.size() - kMostNamed) + " more chunks";
  }
  text +=
      "; more than half of the ranks must agree to heal the others. A memory error, or an "
      "updater that does not compute the same on every rank; nothing was changed. Load the last "
      "checkpoint, or start again from it";
  throw Error(ErrorCode::divergence, text, ErrorScope::agreed, /*reporter=*/topology.rank == 0);
}

}  // namespace tutti
