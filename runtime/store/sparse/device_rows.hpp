// SPDX-License-Identifier: Apache-2.0
// The merged rows of a push on their way into tables on GPUs.
//
//   host   rows of all ranks -> sums, side by side
//                                 |  one copy for all keys of a GPU
//   GPU                         sums -> rows of the table and of the states, in one launch
//
// Rows that follow one another in the table do so in the sums, and are updated as one, because the
// optimizers that update rows are elementwise.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/gpu/gpus.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/updates.hpp"
#include "runtime/store/sparse/rows.hpp"

namespace tutti {

class DeviceRows {
 public:
  DeviceRows(Group& group, const UpdateRule& rule) : group_(group), rule_(rule) {}

  /// Begins a push: no rows are expected or taken.
  void clear();
  /// Announces a key that is on a GPU and has its states, of which the push changes at most so many
  /// rows.
  void expect(Entry& entry, std::size_t rows);
  /// Makes room for all rows that are expected. Errors: out_of_memory.
  void prepare();

  /// Sums the rows of all ranks, which are sorted by id, then by rank, with the bits of a key on
  /// the cpu. `most_updates` is that of RowUpdate.
  void take(Entry& entry, std::span<const FoundRow> found, std::uint64_t most_updates);
  /// Copies the sums to the GPUs and puts the updates into their streams, or calls the updater.
  /// Errors, also those of an updater, fail the group. Counts no updates.
  void run();

  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
  void leak_until_exit();

 private:
  /// One key of the push.
  struct Item {
    Entry* entry;
    std::size_t most_rows;
    std::size_t begin = 0;            ///< offset of its sums, in bytes
    std::vector<std::int64_t> ids{};  ///< ids of the rows, for an updater
  };
  /// The keys of the push that are on one GPU, and the sums of their rows.
  struct GpuRows {
    std::vector<Item> items;
    std::size_t taken = 0;          ///< number of items whose sums are there
    std::size_t bytes = 0;          ///< size of all sums
    std::optional<Tensor> on_host;  ///< the sums; keeps its size from push to push
    std::optional<Tensor> on_gpu;
    std::vector<gpus::TensorRow> rows;  ///< rows that are updated, or assigned
    std::vector<UpdateStep> steps;      ///< the step of each row, with an optimizer
    std::unique_ptr<gpus::LaunchTable> table;
    struct {
      std::size_t rows = 0;
      std::size_t elements = 0;
      bool is_for_updates = false;
    } room;  ///< room of the launch table
  };

  static void make_room(int device, GpuRows& work);
  void make_launch_room(int device, GpuRows& work);
  [[nodiscard]] static gpus::TensorRow row_of(Entry& entry, std::size_t first, std::size_t count,
                                              const std::byte* sum);
  void upload(GpuRows& work);
  void launch(int device, GpuRows& work);
  void call_updater(int device, GpuRows& work);

  Group& group_;
  const UpdateRule& rule_;
  std::shared_ptr<gpus::Gpus> gpus_;
  std::map<int, GpuRows> work_;
};

}  // namespace tutti
