// SPDX-License-Identifier: Apache-2.0
// GPUs for machines without one: memory of the host, and streams whose work runs late, in a random
// order that only streams and events restrict. Code that works by luck alone fails with some seed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti/settings.hpp"
#include "tutti/tensor.hpp"

#include "runtime/gpu/accelerator.hpp"

namespace test {

namespace gpus = tutti::gpus;

class FakeAccelerator final : public gpus::Accelerator {
 public:
  /// Work that is put into a stream. Returns false if it cannot run yet, and is then tried again.
  using Work = std::function<bool()>;

  explicit FakeAccelerator(int devices, unsigned seed = 1,
                           std::size_t memory_bytes = std::size_t{1} << 30);
  ~FakeAccelerator() override;

  [[nodiscard]] int count() const override { return static_cast<int>(devices_.size()); }
  [[nodiscard]] gpus::DeviceInfo info(int device) const override;
  [[nodiscard]] std::string describe() const override { return "fake GPUs"; }

  std::byte* allocate(int device, std::size_t bytes) override;
  void release(int device, std::byte* memory) noexcept override;
  std::byte* allocate_pinned(int device, std::size_t bytes) override;
  void release_pinned(std::byte* memory) noexcept override;

  [[nodiscard]] std::string refusal_of(int device, gpus::Stream stream) const override;
  gpus::Stream create_stream(int device) override;
  void destroy_stream(int device, gpus::Stream stream) noexcept override;
  gpus::Event create_event(int device) override;
  void destroy_event(gpus::Event event) noexcept override;
  void record(gpus::Event event, int device, gpus::Stream stream) override;
  void wait(int device, gpus::Stream stream, gpus::Event event) override;
  bool done(gpus::Event event) override;

  void copy(int device, gpus::Stream stream, std::byte* to, const std::byte* from,
            std::size_t bytes) override;
  gpus::Kernels& kernels(int device) override;
  bool pin(int device, std::byte* memory, std::size_t bytes) override;
  void unpin(std::byte* memory) noexcept override;
  void begin_range(const char* name) noexcept override;
  void end_range() noexcept override;
  gpus::NodeLibrary& node_library() override { return *node_library_; }
  gpus::PeerAccess* peer_access() override { return peer_access_.get(); }

  void enqueue(int device, gpus::Stream stream, Work work);
  /// Runs all work that can run, of all streams.
  void run_all();
  /// Work that has not run yet.
  [[nodiscard]] std::size_t pending() const;
  /// From now on work of this device never runs, as if a kernel hung.
  void hang(int device);
  /// Makes the device run again.
  void go_on(int device);
  /// From now on collectives report this error.
  void fail_collectives(const std::string& why);
  [[nodiscard]] std::optional<std::string> failure_of_collectives() const;
  /// From now on work for this device is refused, as by a GPU that fell off the bus.
  void break_down(int device);
  /// From now on pinning memory of others fails.
  void refuse_to_pin() { can_pin_ = false; }
  /// From now on the library for collectives cannot be used.
  void lose_node_library(const std::string& why);
  /// From now on no process can use memory of another.
  void lose_peer_access() { peer_access_.reset(); }
  /// From now on this device cannot use memory of others.
  void cut_off(int device) { cut_off_ = device; }
  void require_reach(int device) const;
  /// Bytes of the device that are allocated.
  [[nodiscard]] std::size_t used(int device);
  /// From now on these two devices report that they are one.
  void merge(int device, int other) { merged_[other] = device; }
  /// From now on all devices are slices of GPUs.
  void slice() { is_sliced_ = true; }
  /// From now on the order of this stream is unknown, as if it were being captured.
  void capture(gpus::Stream stream) { captured_ = stream; }
  /// From now on no abort of collectives returns, as long as this object lives.
  void let_aborts_wait() { *aborts_wait_ = true; }
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> aborts_wait() const {
    return aborts_wait_;
  }
  /// From now on the next event of this device cannot be made.
  void lack_an_event() { lacks_event_ = true; }
  /// Launches of kernels so far.
  [[nodiscard]] int launches() const { return launches_; }
  void count_launch() { ++launches_; }
  /// Calls of collectives so far, of all ranks.
  [[nodiscard]] int collectives() const { return collectives_; }
  void count_collective() { ++collectives_; }
  /// From now on a sum by the library for collectives takes so much longer.
  void delay_sums(std::chrono::milliseconds delay) { sum_delay_ms_ = delay.count(); }
  void await_sum_delay() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(sum_delay_ms_));
  }
  /// From now on each copy from or to pinned memory takes so much longer.
  void delay_host_copies(std::chrono::milliseconds delay) { copy_delay_ms_ = delay.count(); }
  /// From now on the next attempts to join this many ranks fail.
  void refuse_to_join(int ranks) { refused_join_ = ranks; }
  [[nodiscard]] int refused_join() const { return refused_join_; }
  /// The number of communicators that ranks have joined so far, over all ranks.
  [[nodiscard]] int joins() const { return joins_; }
  void count_join() { ++joins_; }
  /// Bytes that were copied from memory of a device to memory of the host so far.
  [[nodiscard]] std::size_t bytes_to_host() const { return bytes_to_host_; }
  /// The names of ranges so far, in order, each behind a space for every range that it is in.
  [[nodiscard]] const std::vector<std::string>& ranges() const { return ranges_; }
  [[nodiscard]] int open_ranges() const { return open_ranges_; }

 private:
  struct FakeStream {
    std::deque<Work> work;
    std::size_t put = 0;  ///< pieces of work that were put into the stream so far
    std::size_t run = 0;
  };
  struct FakeEvent {
    std::shared_ptr<FakeStream> stream;
    std::size_t after = 0;
  };
  struct FakeDevice {
    std::size_t used = 0;
    bool hangs = false;
    bool is_broken = false;
    std::map<std::byte*, std::size_t> blocks;
    std::shared_ptr<FakeStream> default_stream = std::make_shared<FakeStream>();
    std::set<std::shared_ptr<FakeStream>> streams;
    std::unique_ptr<gpus::Kernels> kernels;
  };

  std::shared_ptr<FakeStream> find(int device, gpus::Stream stream);
  bool is_known(const std::byte* memory) const;
  bool is_of_device(const std::byte* memory) const;
  bool run_one();
  [[nodiscard]] static bool is_done(const FakeEvent& event) {
    return event.stream == nullptr || event.stream->run >= event.after;
  }

  mutable std::recursive_mutex mutex_;
  std::mt19937 random_;
  std::size_t memory_bytes_;
  std::vector<FakeDevice> devices_;
  std::map<std::byte*, std::size_t> pinned_;
  std::map<std::byte*, std::size_t> pinned_for_others_;
  std::map<int, int> merged_;
  std::unique_ptr<gpus::NodeLibrary> node_library_;
  std::unique_ptr<gpus::PeerAccess> peer_access_;
  std::set<std::unique_ptr<FakeEvent>> events_;  ///< not destroyed after a failure
  bool can_pin_ = true;
  bool is_sliced_ = false;
  std::shared_ptr<std::atomic<bool>> aborts_wait_ = std::make_shared<std::atomic<bool>>(false);
  bool lacks_event_ = false;
  gpus::Stream captured_ = nullptr;
  std::atomic<int> cut_off_ = -1;
  std::atomic<int> launches_ = 0;
  std::atomic<int> collectives_ = 0;
  std::atomic<int> joins_ = 0;
  std::atomic<int> refused_join_ = 0;
  std::atomic<std::int64_t> sum_delay_ms_ = 0;
  std::atomic<std::int64_t> copy_delay_ms_ = 0;
  std::atomic<std::size_t> bytes_to_host_ = 0;
  std::vector<std::string> ranges_;
  int open_ranges_ = 0;
  std::optional<std::string> failure_of_collectives_;
};

/// Access to memory of other ranks, which are threads: a name is an address.
std::unique_ptr<gpus::PeerAccess> make_fake_peer_access(FakeAccelerator& accelerator);

/// Replaces the process's GPUs by fake ones while it lives.
class FakeGpus {
 public:
  explicit FakeGpus(int devices, unsigned seed = 1, std::size_t memory = std::size_t{1} << 30);
  ~FakeGpus();
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;
  FakeAccelerator* operator->() const { return accelerator.get(); }

  const std::shared_ptr<FakeAccelerator> accelerator;
};

/// Settings that log nothing, and sum over ranks by this path (TUTTI_GPU_PATH).
inline tutti::Settings by(const std::string& path) {
  tutti::Settings settings;
  settings.gpu_path = path;
  settings.log = tutti::LogLevel::quiet;
  return settings;
}

/// The elements of a tensor on any device.
inline std::vector<float> on_host(const tutti::ConstTensorView& tensor) {
  tutti::Tensor copy = tutti::Tensor::empty(tensor.shape(), tensor.dtype());
  copy.view().copy_from(tensor);
  return {copy.values<float>().begin(), copy.values<float>().end()};
}

/// Collectives among the devices of one accelerator, each used by a thread of its own. A rank whose
/// device hangs keeps the others waiting. `unusable`: the reason why the library cannot be used, if
/// any.
std::unique_ptr<gpus::NodeLibrary> make_fake_node_library(FakeAccelerator& accelerator,
                                                          std::string unusable);

/// Kernels with the same arithmetic on the host.
std::unique_ptr<gpus::Kernels> make_fake_kernels(FakeAccelerator& accelerator, int device);

}  // namespace test
