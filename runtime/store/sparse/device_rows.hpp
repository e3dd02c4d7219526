// SPDX-License-Identifier: Apache-2.0
// The merged rows of a push on their way into tables on GPUs.
//
//   host   rows of all ranks -> sums, side by side
//                                 |  one copy for all keys of a GPU
//   GPU                         sums -> rows of the table and of the states, in one launch
//
// Rows that follow one another in the table do so in the sums, and are updated as one: the
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

  /// A push begins: nothing is expected, nothing taken.
  void clear();
  /// The push changes at most so many rows of this key, which is on a GPU and has its states.
  void expect(Entry& entry, std::size_t rows);
  /// Makes room for all that is expected. Errors: out_of_memory.
  void prepare();

  /// Sums the rows of all ranks, which are sorted by id, then by rank, with the bits of a key on
  /// the cpu. `most_updates` as RowUpdate has it.
  void take(Entry& entry, std::span<const FoundRow> found, std::uint64_t most_updates);
  /// Brings the sums to the GPUs and puts the updates into their streams, or calls the updater.
  /// What goes wrong, also in an updater, fails the group. Counts nothing.
  void run();

  /// After a failure: to free what a stream uses would wait for the stream.
  void leak_until_exit();

 private:
  /// One key of the push.
  struct Item {
    Entry* entry;
    std::size_t most_rows;
    std::size_t begin = 0;            ///< of its sums, in bytes
    std::vector<std::int64_t> ids{};  ///< for an updater
  };
  /// The keys of the push that are on one GPU, and the sums of their rows.
  struct GpuRows {
    std::vector<Item> items;
    std::size_t taken = 0;          ///< items whose sums are there
    std::size_t bytes = 0;          ///< of sums
    std::optional<Tensor> on_host;  ///< the sums; keeps its size from push to push
    std::optional<Tensor> on_gpu;
    std::vector<gpus::TensorRow> rows;  ///< what is updated, or assigned
    std::vector<UpdateStep> steps;      ///< of each of them, with an optimizer
    std::unique_ptr<gpus::LaunchTable> table;
    struct {
      std::size_t rows = 0;
      std::size_t elements = 0;
      bool is_for_updates = false;
    } room;  ///< that the launch table has
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
