// SPDX-License-Identifier: Apache-2.0
// NCCL as the reducer's NodeLibrary (runtime/gpu/node_library.hpp).
#pragma once

#include <memory>
#include <mutex>

#include "runtime/gpu/node_library.hpp"

namespace tutti::nccl {

struct Loaded;
class Parting;

/// Loads NCCL when it is first asked for, by any thread.
class Library final : public gpus::NodeLibrary {
 public:
  Library();
  ~Library() override;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] std::string unusable() override;
  [[nodiscard]] std::string describe() override;
  [[nodiscard]] gpus::NodeId make_id() override;
  [[nodiscard]] std::unique_ptr<gpus::NodeCollectives> join(
      const gpus::NodeId& id, int local_rank, int local_size, int device,
      const gpus::Patience& patience) override;

 private:
  const Loaded& loaded();

  std::once_flag once_;
  std::shared_ptr<const Loaded> loaded_;
  std::shared_ptr<Parting> parting_;
};

}  // namespace tutti::nccl
