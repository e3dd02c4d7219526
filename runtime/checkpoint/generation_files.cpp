// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/generation_files.hpp"

#include "tutti/error.hpp"

#include "runtime/checkpoint/exchange.hpp"

namespace tutti::checkpoint {

namespace {

std::string residuals_of(int rank) { return "residuals-" + std::to_string(rank) + ".safetensors"; }

/// A file that every whole generation has.
void require_there(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) || error) return;  // other errors: whoever opens it says them
  throw Error(ErrorCode::corrupt_file, path.string() + " is missing");
}

/// A generation that is being read.
struct Source {
  Communicator& ranks;
  fs::path folder;
  Manifest manifest;
  MemoryFiles* memory;  ///< for the mappings of one in the memory of a node; null on the disk
};

TensorFile read_part(const Source& source, const std::string& name) {
  Communicator& ranks = source.ranks;
  const fs::path path = source.folder / name;
  ranks.agree([&] {
    if (ranks.rank() == 0) require_there(path);
  });
  TensorFile file = TensorFile::read(ranks, path, source.memory);
  ranks.agree([&] {
    const auto expected = source.manifest.files.find(name);
    if (expected == source.manifest.files.end() || expected->second != file.summary()) {
      throw Error(ErrorCode::corrupt_file,
                  path.string() + " is not the file that " + kManifest + " names");
    }
  });
  return file;
}

/// Whose residuals a generation has: what the header of rank 0's says.
std::string owner_of_residuals(const Source& source, const Wanted& wanted) {
  Communicator& ranks = source.ranks;
  const fs::path path = source.folder / residuals_of(0);
  ranks.agree([&] {
    if (ranks.rank() == 0) require_there(path);
  });
  const Header header = TensorFile::read_header(ranks, path);
  std::string owner;
  ranks.agree([&] { in_place(path.string(), [&] { owner = header.text(wanted.owner_name); }); });
  return owner;
}

/// Reads none that would be thrown away: there may be many, of many ranks. Those of another number
/// of ranks are no part of what has to be whole, so damage of them is none of the generation.
void read_residuals(const Source& source, const Wanted& wanted, LoadedStore& loaded) {
  int count = 0;
  while (source.manifest.files.contains(residuals_of(count))) ++count;
  if (count == 0) return;
  try {
    loaded.residuals_owner = owner_of_residuals(source, wanted);
  } catch (const Error& error) {
    if (!is_damage(error) || count == wanted.ranks) throw;
    loaded.residuals_owner = std::to_string(count) + " ranks";
  }
  if (loaded.residuals_owner != wanted.owner) return;
  for (int rank = 0; rank < count; ++rank) {
    loaded.residuals.push_back(read_part(source, residuals_of(rank)));
  }
}

}  // namespace

LoadedStore read_generation(Communicator& ranks, const Generations& generations,
                            std::uint64_t generation, const Wanted& wanted, MemoryFiles* memory) {
  Source source{
      .ranks = ranks, .folder = generations.folder(generation), .manifest = {}, .memory = memory};
  const fs::path path = source.folder / kManifest;
  const std::string text = text_of_first(ranks, [&] {
    require_there(path);
    return read_text(path, kMostManifestBytes);
  });
  Manifest& manifest = source.manifest;
  ranks.agree([&] { in_place(path.string(), [&] { manifest = parse_manifest(text); }); });
  LoadedStore loaded{.weights = read_part(source, kWeights),
                     .optimizer = {},
                     .residuals = {},
                     .residuals_owner = {},
                     .result = {.generation = generation,
                                .metadata = manifest.metadata,
                                .pushes = manifest.pushes},
                     .readers = ranks};
  if (wanted.weights_only) return loaded;
  if (manifest.files.contains(kOptimizer)) {
    loaded.optimizer = read_part(source, kOptimizer);
  }
  read_residuals(source, wanted, loaded);
  return loaded;
}

void write_manifest(const fs::path& folder, const Manifest& manifest) {
  const std::string text = to_text(manifest);
  File file = File::open_new(folder / kManifest);
  file.reserve(text.size());
  file.write(text, 0);
  file.sync();
}

void exchange_residuals(
    Communicator& ranks, const Content& own,
    collectives::FunctionRef<void(const std::string& name, const Content& content)> write) {
  std::vector<Tensor> copies;
  Content content{.tensors = {}, .texts = own.texts};
  ranks.agree([&] {
    for (const auto& [name, tensor] : own.tensors) {
      copies.push_back(Tensor::empty(tensor.shape(), tensor.dtype()));
      content.tensors.push_back({name, copies.back().view()});
    }
  });
  for (int rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (rank == ranks.rank()) copies[i].view().copy_from(own.tensors[i].tensor);
      ranks.broadcast(copies[i], rank);
    }
    write(residuals_of(rank), content);
  }
}

}  // namespace tutti::checkpoint
