// SPDX-License-Identifier: Apache-2.0
// Replaces library.cpp in builds that found no header of NCCL.
#include "tutti/error.hpp"

#include "runtime/nccl/library.hpp"

namespace tutti::nccl {

struct Loaded {
  std::string reason = "this build has no NCCL (nccl.h was not found)";
};

class Parting {};

Library::Library() = default;
Library::~Library() = default;

const Loaded& Library::loaded() {
  if (loaded_ == nullptr) loaded_ = std::make_shared<const Loaded>();
  return *loaded_;
}

std::string Library::unusable() { return loaded().reason; }
std::string Library::describe() { return "without NCCL"; }
gpus::NodeId Library::make_id() { throw Error(ErrorCode::invalid_argument, loaded().reason); }

std::unique_ptr<gpus::NodeCollectives> Library::join(const gpus::NodeId& /*id*/, int /*local_rank*/,
                                                     int /*local_size*/, int /*device*/,
                                                     const gpus::Patience& /*patience*/) {
  throw Error(ErrorCode::invalid_argument, loaded().reason);
}

}  // namespace tutti::nccl

namespace tutti::gpus {

std::unique_ptr<NodeLibrary> find_node_library() { return std::make_unique<nccl::Library>(); }

}  // namespace tutti::gpus
