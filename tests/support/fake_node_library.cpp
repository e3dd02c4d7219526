// SPDX-License-Identifier: Apache-2.0
// Collectives among fake GPUs: work that waits at the front of each rank's stream until all ranks'
// streams have come to it.
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include "tests/support/fake_accelerator.hpp"

namespace test {

namespace {

using tutti::DType;

enum class Verb { allreduce, reduce_scatter, allgather };

/// One collective call of a node, as its ranks come to it.
struct Step {
  std::map<int, std::byte*> arrived;      ///< local rank -> its data
  std::map<int, const std::byte*> given;  ///< the inputs of an allreduce
  bool done = false;
};

struct Meeting {
  explicit Meeting(int ranks) : size(ranks) {}
  int size;
  std::atomic<int> joined{0};
  std::atomic<bool> aborted{false};
  std::map<std::size_t, Step> steps;
};

tutti::TensorView view(std::byte* data, DType dtype, std::size_t count) {
  return {data, {static_cast<std::int64_t>(count)}, dtype};
}

/// Sums shard `shard` of every rank's data into a new tensor.
tutti::Tensor sum_of(const Step& step, std::size_t shard, std::size_t count, DType dtype) {
  const std::size_t offset = shard * count * size_of(dtype);
  tutti::Tensor sum = tutti::Tensor::zeros({static_cast<std::int64_t>(count)}, dtype);
  for (const auto& [rank, data] : step.given) {
    sum.view() += view(const_cast<std::byte*>(data) + offset, dtype, count);
  }
  return sum;
}

void perform(Verb verb, const Step& step, std::size_t count, DType dtype) {
  const std::size_t bytes = count * size_of(dtype);
  std::vector<tutti::Tensor> results;
  for (const auto& [rank, data] : step.arrived) {
    const auto shard = static_cast<std::size_t>(verb == Verb::allreduce ? 0 : rank);
    if (verb == Verb::allgather) {
      results.push_back(tutti::Tensor::zeros({static_cast<std::int64_t>(count)}, dtype));
      results.back().view().copy_from(view(data + shard * bytes, dtype, count));
    } else {
      results.push_back(sum_of(step, shard, count, dtype));
    }
  }
  for (const auto& [rank, data] : step.arrived) {
    for (std::size_t shard = 0; shard < results.size(); ++shard) {
      const bool is_own = shard == static_cast<std::size_t>(rank);
      if (verb != Verb::allgather && !is_own) continue;
      std::byte* to = data + (verb == Verb::allreduce ? 0 : shard * bytes);
      std::memcpy(to, results[shard].bytes(), bytes);
    }
  }
}

class FakeCollectives final : public gpus::NodeCollectives {
 public:
  FakeCollectives(FakeAccelerator& accelerator, std::shared_ptr<Meeting> meeting, int rank,
                  int device)
      : accelerator_(accelerator),
        meeting_(std::move(meeting)),
        aborts_wait_(accelerator.aborts_wait()),
        rank_(rank),
        device_(device) {}

  void allreduce(gpus::Stream stream, std::span<const gpus::Sum> sums,
                 const gpus::Patience& /*patience*/) override {
    accelerator_.await_sum_delay();
    for (const gpus::Sum& sum : sums) {
      enqueue({Verb::allreduce, sum.from, sum.to, sum.count, sum.dtype}, stream);
    }
  }
  void reduce_scatter(gpus::Stream stream, std::byte* data, std::size_t count, DType dtype,
                      const gpus::Patience& /*patience*/) override {
    enqueue({Verb::reduce_scatter, data, data, count, dtype}, stream);
  }
  void allgather(gpus::Stream stream, std::byte* data, std::size_t count, DType dtype,
                 const gpus::Patience& /*patience*/) override {
    enqueue({Verb::allgather, data, data, count, dtype}, stream);
  }
  std::optional<std::string> failure() override {
    if (is_aborted_) return "aborted";
    return accelerator_.failure_of_collectives();
  }
  void abort() noexcept override {
    while (*aborts_wait_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    is_aborted_ = true;
    meeting_->aborted = true;
  }
  void part() noexcept override {}

 private:
  struct Call {
    Verb verb;
    const std::byte* from;
    std::byte* to;
    std::size_t count;
    DType dtype;
  };

  void enqueue(const Call& call, gpus::Stream stream) {
    const std::size_t number = next_++;
    accelerator_.count_collective();
    accelerator_.enqueue(device_, stream, [=, meeting = meeting_, rank = rank_] {
      if (meeting->aborted) return true;
      Step& step = meeting->steps[number];
      step.given[rank] = call.from;
      step.arrived[rank] = call.to;
      if (!step.done && static_cast<int>(step.arrived.size()) == meeting->size) {
        perform(call.verb, step, call.count, call.dtype);
        step.done = true;
      }
      return step.done;
    });
  }

  FakeAccelerator& accelerator_;
  std::shared_ptr<Meeting> meeting_;
  std::shared_ptr<const std::atomic<bool>> aborts_wait_;  ///< outlives the accelerator
  int rank_;
  int device_;
  std::size_t next_ = 0;
  std::atomic<bool> is_aborted_{false};
};

class FakeNodeLibrary final : public gpus::NodeLibrary {
 public:
  FakeNodeLibrary(FakeAccelerator& accelerator, std::string unusable)
      : accelerator_(accelerator), unusable_(std::move(unusable)) {}

  std::string unusable() override { return unusable_; }
  std::string describe() override { return "by fake NCCL"; }

  gpus::NodeId make_id() override {
    const std::lock_guard lock(mutex_);
    gpus::NodeId id{};
    std::snprintf(id.data(), id.size(), "node %d", ++ids_);
    return id;
  }

  std::unique_ptr<gpus::NodeCollectives> join(const gpus::NodeId& id, int local_rank,
                                              int local_size, int device,
                                              const gpus::Patience& patience) override {
    if (local_size == accelerator_.refused_join()) {
      throw tutti::Error(tutti::ErrorCode::communication, "no way to the other node");
    }
    accelerator_.count_join();
    std::shared_ptr<Meeting> meeting;
    {
      const std::lock_guard lock(mutex_);
      auto& found = meetings_[id];
      if (found == nullptr) found = std::make_shared<Meeting>(local_size);
      meeting = found;
    }
    ++meeting->joined;
    while (meeting->joined < local_size) {
      patience.poll();
      std::this_thread::yield();
    }
    return std::make_unique<FakeCollectives>(accelerator_, meeting, local_rank, device);
  }

 private:
  FakeAccelerator& accelerator_;
  std::string unusable_;
  std::mutex mutex_;
  int ids_ = 0;
  std::map<gpus::NodeId, std::shared_ptr<Meeting>> meetings_;
};

}  // namespace

std::unique_ptr<gpus::NodeLibrary> make_fake_node_library(FakeAccelerator& accelerator,
                                                          std::string unusable) {
  return std::make_unique<FakeNodeLibrary>(accelerator, std::move(unusable));
}

}  // namespace test
