// SPDX-License-Identifier: Apache-2.0
// The files of one generation, on the disk or in the memory of a node.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "collectives/job/function_ref.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/generations.hpp"
#include "runtime/checkpoint/manifest.hpp"

namespace tutti::checkpoint {

inline constexpr const char* kWeights = "weights.safetensors";
inline constexpr const char* kOptimizer = "optimizer.safetensors";
inline constexpr const char* kManifest = "manifest.json";

/// Whether all ranks know that a generation is damaged, so that they can go on to another.
inline bool is_damage(const Error& error) {
  return error.code() == ErrorCode::corrupt_file && error.scope() == ErrorScope::agreed;
}

/// Reads and verifies what is wanted of a generation that rank 0 sees; one in the memory of a node,
/// whose ranks these are, is mapped into `memory`. Collective. Errors: see load().
LoadedStore read_generation(Communicator& ranks, const Generations& generations,
                            std::uint64_t generation, const Wanted& wanted,
                            MemoryFiles* memory = nullptr);

/// A new file in the folder, synced. Errors: io; invalid_argument if the metadata are too much.
void write_manifest(const fs::path& folder, const Manifest& manifest);

/// Calls `write` with the name and the content of each rank's file, one rank after the other. A
/// rank's residuals come to all ranks first, so that also those of ranks that do not see a folder
/// are saved in it, and all that see it write. Collective.
void exchange_residuals(
    Communicator& ranks, const Content& own,
    collectives::FunctionRef<void(const std::string& name, const Content& content)> write);

}  // namespace tutti::checkpoint
