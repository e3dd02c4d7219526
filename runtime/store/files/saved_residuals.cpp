// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/files/saved_residuals.hpp"

#include <algorithm>
#include <unordered_map>

#include "tutti/error.hpp"

namespace tutti {

namespace {

/// The ranks of each node as text: "0 1 | 2 3".
std::string nodes_to_string(const collectives::Nodes& nodes) {
  std::string text;
  for (const collectives::NodeRanks ranks : nodes) {
    text += text.empty() ? "" : " |";
    for (const int rank : ranks) text += (text.empty() ? "" : " ") + std::to_string(rank);
  }
  return text;
}

/// Requires one file for each rank, with the tensors of rank 0's: they are delivered to the same
/// tensors.
void require_alike(std::span<const checkpoint::TensorFile> files, int ranks) {
  if (files.size() != static_cast<std::size_t>(ranks)) {
    throw Error(ErrorCode::corrupt_file, "there are residuals of " + std::to_string(files.size()) +
                                             " ranks, which say that they are of " +
                                             std::to_string(ranks));
  }
  const auto is_same = [](const checkpoint::TensorInfo& left, const checkpoint::TensorInfo& right) {
    return left.name == right.name && left.dtype == right.dtype && left.shape == right.shape;
  };
  const auto& first = files.front().header().tensors;
  for (std::size_t rank = 1; rank < files.size(); ++rank) {
    if (std::ranges::equal(first, files[rank].header().tensors, is_same)) continue;
    throw Error(ErrorCode::corrupt_file, "the residuals of rank " + std::to_string(rank) +
                                             " are of other keys than those of rank 0");
  }
}

}  // namespace

std::string owner_of_residuals(const GradientCompression& compression, const Group& group) {
  const collectives::Topology& topology = group.topology();
  std::string text = compression::to_string(compression.options()) + " on " +
                     std::to_string(topology.size) + (topology.size == 1 ? " rank" : " ranks");
  if (compression.codec_of(compression::Leg::between) == nullptr) return text;
  return text + ", nodes " + nodes_to_string(topology.nodes) + ", chunks of " +
         std::to_string(group.settings().chunk_bytes);
}

std::optional<checkpoint::Content> residual_content(std::span<Entry* const> entries,
                                                    const std::string& owner,
                                                    ReadableValues& readable) {
  checkpoint::Content content;
  for (Entry* entry : entries) {
    if (entry->residual) {
      content.tensors.push_back({to_string(entry->key), readable.take(*entry->residual)});
    }
  }
  if (content.tensors.empty()) return std::nullopt;
  content.texts = {{kOwnerName, owner}};
  return content;
}

StagedResiduals::StagedResiduals(const checkpoint::LoadedStore& loaded,
                                 std::span<Entry* const> entries, const std::string& owner,
                                 int ranks)
    : files_(loaded.residuals), entries_(entries) {
  const std::string& saved = loaded.residuals_owner;
  if (saved.empty()) return;
  if (saved != owner) {
    refusal_ = "its residuals of gradient compression are of " + saved +
               ", this store's would be of " + owner + ": they begin at zero";
    return;
  }
  require_alike(files_, ranks);
  std::unordered_map<std::string, Entry*> by_name;
  for (Entry* entry : entries) by_name.emplace(to_string(entry->key), entry);
  for (const checkpoint::TensorInfo& tensor : files_.front().header().tensors) {
    const auto place = by_name.find(tensor.name);
    if (place == by_name.end() || !(place->second->shape() == tensor.shape) ||
        tensor.dtype != DType::float32) {
      throw Error(ErrorCode::corrupt_file,
                  "there is a residual that is of no key of the checkpoint: " + tensor.name);
    }
    staged_.push_back({place->second, Tensor::empty(tensor.shape), Tensor::empty(tensor.shape)});
  }
}

void StagedResiduals::deliver(Communicator& readers, int rank) {
  if (staged_.empty()) return;
  for (std::size_t saved_by = 0; saved_by < files_.size(); ++saved_by) {
    const bool is_own = static_cast<int>(saved_by) == rank;
    std::vector<std::byte*> destinations;
    for (Staged& staged : staged_) {
      destinations.push_back((is_own ? staged.own : staged.another).bytes());
    }
    files_[saved_by].deliver(readers, destinations);
  }
}

void StagedResiduals::commit() {
  for (Entry* entry : entries_) entry->drop_residual();
  for (Staged& staged : staged_) {
    staged.entry->residual = std::move(staged.own);
    staged.entry->has_sent = true;
  }
}

}  // namespace tutti
