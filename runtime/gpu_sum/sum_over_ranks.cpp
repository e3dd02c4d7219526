// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_sum/sum_over_ranks.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/gpu_sum/make_reducer.hpp"

namespace tutti::gpus {

namespace {

/// Checks the tensors of an allreduce. Local. Errors: invalid_argument, and those of the GPU.
void require(const ConstTensorView& input, const TensorView& output) {
  if (input.shape() != output.shape() || input.dtype() != output.dtype()) {
    throw Error(ErrorCode::invalid_argument, "input " + to_string(input.shape()) + " " +
                                                 to_string(input.dtype()) + " and output " +
                                                 to_string(output.shape()) + " " +
                                                 to_string(output.dtype()) + " must be alike");
  }
  const auto gpus = find_gpus();
  if (gpus == nullptr || input.device().index >= gpus->count()) {
    throw Error(ErrorCode::invalid_argument,
                "a tensor on " + to_string(input.device()) + ", which this process has not");
  }
  gpus->require_stream(input.device().index);
}

Tensor new_bucket(const Group& group, const ConstTensorView& input) {
  const std::size_t unit = kGrain * group.topology().largest_node();
  const std::size_t bytes = (input.size_bytes() + unit - 1) / unit * unit;
  return Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::uint8, input.device());
}

/// Calls body(). Its error, such as a lack of memory, becomes everybody's while the others can
/// still refuse the call.
template <class Body>
auto or_refuse(Group& group, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    group.engine().throw_on_all_ranks(error.code(), std::string("allreduce: ") + error.what());
  }
}

/// Tells the other ranks of an allreduce. All ranks make this call, with tensors that are alike and
/// on GPUs.
void announce(Group& group, const ConstTensorView& input) {
  const auto describe = [&] {
    return "allreduce (sum) of " + to_string(input.shape()) + " " + to_string(input.dtype()) +
           " on a GPU";
  };
  const std::uint64_t digest =
      Digest().add(input.shape(), input.dtype()).add(std::string_view("gpu")).value();
  group.engine().run({.kind = collectives::Kind::allreduce,
                      .digest = digest,
                      .segments = {},
                      .describe = describe});
}

}  // namespace

Patience patience_of(Group& group, const char* what) {
  const auto describe = [what] { return std::string(what); };
  return {group.settings().timeout, [&group, describe] { group.engine().check_peers(describe); }};
}

std::vector<int> job_ranks(const collectives::Topology& topology, std::span<const int> ranks) {
  std::vector<int> found(ranks.begin(), ranks.end());
  if (topology.job_ranks.empty()) return found;
  for (int& rank : found) rank = topology.job_ranks[static_cast<std::size_t>(rank)];
  return found;
}

void abort_beside(const std::shared_ptr<NodeCollectives>& node) noexcept {
  if (node == nullptr) return;
  try {
    collectives::leak_until_exit(node);
    std::promise<void> aborted;
    std::future<void> end = aborted.get_future();
    std::thread([node, aborted = std::move(aborted)]() mutable {
      node->abort();
      aborted.set_value();
    }).detach();
    end.wait_for(kForAborts);
  } catch (const std::exception&) {  // no thread, or no memory: the process ends with its streams
  }
}

std::string ended_ranks(const Group& group) {
  const std::vector<int> gone = group.ended_local_ranks();
  if (gone.empty()) return {};
  return names_of(group.topology(), gone) +
         " ended without a word, and its GPU's part is missing; it was killed or left the program";
}

std::optional<std::string> failure_of(const Group& group, NodeCollectives& node) {
  constexpr int kLooks = 20;
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto failure = node.failure();
  if (!failure) return std::nullopt;
  for (int look = 0; look < kLooks; ++look) {
    const std::string gone = ended_ranks(group);
    if (!gone.empty()) return gone + " (" + *failure + ")";
    std::this_thread::sleep_for(kPause);
  }
  return failure;
}

void SumOverRanks::allreduce(const std::shared_ptr<Gpus>& gpus, int device,
                             std::span<const Sum> sums) {
  auto found = reducers_.find(device);
  if (found == reducers_.end()) {
    std::size_t bytes = 0;
    for (const Sum& sum : sums) bytes += sum.count * size_of(sum.dtype);
    found = reducers_.emplace(device, make_reducer(*group_, gpus, device, bytes)).first;
  }
  last_ = found->second.get();
  last_->allreduce(sums);
}

void SumOverRanks::begin_turn(SumTurn& turn, Gpus& gpus, int device) const {
  const auto found = reducers_.find(device);
  if (found != reducers_.end() && found->second->takes_turns()) turn.begin(gpus, device);
}

void SumOverRanks::begin_reading(int device) {
  last_ = reducers_.at(device).get();
  last_->begin_reading();
}

void SumOverRanks::finish() {
  if (last_ != nullptr) last_->finish();
}

void SumOverRanks::await() {
  for (auto& [device, reducer] : reducers_) reducer->await();
}

void SumOverRanks::check() {
  for (auto& [device, reducer] : reducers_) reducer->check();
}

/// Sums in a bucket, since the caller's memory cannot be padded. Counts are the same on all ranks,
/// also where another rank needs no copy.
void SumOverRanks::allreduce_in(const Tensor& bucket, const std::shared_ptr<Gpus>& gpus,
                                const ConstTensorView& input, const TensorView& output) {
  const Device device = input.device();
  auto* data = const_cast<std::byte*>(bucket.bytes());
  const std::size_t padded = bucket.size_bytes() / size_of(input.dtype());
  const std::size_t count = traits(device.index).takes_inputs ? input.count() : padded;
  const Sum sum{data, data, count, input.dtype()};
  gpus->copy(data, device, input.bytes(), device, input.size_bytes());
  if (sum.count > 0) allreduce(gpus, device.index, {&sum, 1});
  gpus->copy(output.bytes(), device, data, device, output.size_bytes());
}

/// Copies the input to where all ranks' kernels read it, and sums from there. All ranks do so.
void SumOverRanks::allreduce_in_windows(Gpus& gpus, const ConstTensorView& input,
                                        const TensorView& output) {
  const Device device = input.device();
  const std::span<std::byte* const> windows = this->windows(device.index);
  gpus.copy(own_window(device.index), device, input.bytes(), device, input.size_bytes());
  begin_reading(device.index);
  std::array<const std::byte*, TensorRow::kMostInputs> inputs{};
  std::ranges::copy(windows, inputs.begin());
  gpus.kernels(device.index)
      .tree_sum(gpus.stream(device.index), std::span(inputs).first(windows.size()), output.bytes(),
                input.dtype(), input.count());
}

void SumOverRanks::allreduce(const ConstTensorView& input, const TensorView& output) {
  Group& group = *group_;
  SumTurn turn;
  or_refuse(group, [&] {
    require(input, output);
    begin_turn(turn, *find_gpus(), input.device().index);
  });
  const SumTraits own = traits(input.device().index);
  const bool fits_windows = input.count() > 0 && input.size_bytes() <= own.window_bytes;
  std::optional<Tensor> bucket;
  if (!own.takes_inputs && !fits_windows) {
    bucket = or_refuse(group, [&] { return new_bucket(group, input); });
  }
  announce(group, input);
  if (group.topology().size == 1) return output.copy_from(input);
  const auto gpus = require_gpus("allreduce", input.device());
  const int device = input.device().index;
  const auto make_sum = [&] {
    if (fits_windows) {
      allreduce_in_windows(*gpus, input, output);
    } else if (!bucket) {
      const Sum sum{input.bytes(), output.bytes(), input.count(), input.dtype()};
      if (sum.count > 0) allreduce(gpus, device, {&sum, 1});
    } else {
      allreduce_in(*bucket, gpus, input, output);
    }
    finish();
  };
  carry_out(group, make_sum, [] {});
}

}  // namespace tutti::gpus
