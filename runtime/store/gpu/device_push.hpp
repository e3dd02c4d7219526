// SPDX-License-Identifier: Apache-2.0
// A push of keys whose replicas are on GPUs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu/reducer.hpp"
#include "runtime/group.hpp"
#include "runtime/store/compression/gradient_compression.hpp"
#include "runtime/store/push.hpp"
#include "runtime/store/updates.hpp"

namespace tutti {

/// One rank: sum and update are one launch per GPU, whatever the number of keys. Several ranks: the
/// values are summed into a bucket, the bucket over the ranks, and the update reads the bucket.
/// The sum of values goes from left to right, in the order given.
class DevicePush {
 public:
  DevicePush(Group& group, KeyTable& table, const UpdateRule& rule,
             const GradientCompression& compression)
      : group_(group), table_(table), rule_(rule), compression_(compression) {}

  /// Errors  invalid_argument: keys on GPUs and on the cpu in one list, or, with several ranks, on
  ///         two GPUs; a compression; an optimizer that has no kernels or does not take the dtype.
  void check(std::span<const Push::Item> items) const;
  /// The reduction over ranks, made for the first push of several ranks; then kept. Collective.
  void prepare(std::span<const Push::Item> items);
  /// Collective, after all ranks have agreed on the call. What an updater throws fails the group.
  void run(std::span<const Push::Item> items);

 private:
  /// The keys of the push that are on one GPU.
  struct Work {
    std::vector<Entry*> entries;
    std::vector<gpus::TensorRow> rows;
    std::vector<UpdateStep> steps;
    std::vector<Tensor> moved;       ///< values that were elsewhere
    std::optional<Tensor> bucket;    ///< the sums, of all keys
    std::vector<gpus::Part> parts;   ///< of the bucket
    std::vector<std::byte*> places;  ///< of each row's sum in the bucket
    std::unique_ptr<gpus::LaunchTable> summing;
    std::unique_ptr<gpus::LaunchTable> updating;
  };

  void add(const Push::Item& item);
  [[nodiscard]] const std::byte* value_on(int device, const Push::Item& item, std::size_t index,
                                          Work& work);
  void add_inputs(int device, const Push::Item& item, Work& work);
  void lay_out(int device, Work& work);
  void fill_bucket(int device, Work& work);
  void reduce(Work& work);
  void update(int device, Work& work);
  void call_updater(const Updater& updater, int device, Work& work);

  Group& group_;
  KeyTable& table_;
  const UpdateRule& rule_;
  const GradientCompression& compression_;
  std::shared_ptr<gpus::Gpus> gpus_;
  gpus::Reducer* reducer_ = nullptr;  ///< the group's; null with one rank
  std::map<int, Work> work_;
};

}  // namespace tutti
