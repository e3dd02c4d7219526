// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process, as the store uses them: tensors, copies, waits, and one order of work
// per device.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tensor.hpp"

#include "runtime/base/unique_handle.hpp"
#include "runtime/gpu/accelerator.hpp"
#include "runtime/gpu/kept_for_ranks.hpp"
#include "runtime/gpu/pool.hpp"

namespace tutti::gpus {

using Timeout = std::chrono::duration<double>;

/// Waits for work of a GPU: returns once `ready` is true, and throws if it learns that the work
/// will not end. `what` describes the work.
using Wait = std::function<void(const std::function<bool()>& ready, const std::string& what)>;

/// The deadline of waits for GPUs that have no other. Tensors belong to no group, so the process
/// has one: the deadline of the group that was made last, 300 s before the first. 0 is none.
[[nodiscard]] Timeout timeout() noexcept;
void set_timeout(Timeout timeout) noexcept;

struct EventTraits {
  struct Handle {
    Accelerator* accelerator = nullptr;
    Event event = nullptr;
    friend bool operator==(const Handle&, const Handle&) = default;
  };
  static Handle null() { return {}; }
  static void close(Handle handle) noexcept { handle.accelerator->destroy_event(handle.event); }
};

class Gpus : public std::enable_shared_from_this<Gpus> {
 public:
  explicit Gpus(std::shared_ptr<Accelerator> accelerator);
  ~Gpus();
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  [[nodiscard]] Accelerator& accelerator() const { return *accelerator_; }
  [[nodiscard]] int count() const { return static_cast<int>(devices_.size()); }
  [[nodiscard]] Kernels& kernels(int device) const { return accelerator_->kernels(device); }

  /// Errors: invalid_argument if this process has no such GPU.
  void require(const std::string& what, Device device) const;

  /// The stream that orders all work of a device: work in another stream begins after an event of
  /// this one, and ends before this one goes on.
  [[nodiscard]] Stream stream(int device) const;
  /// Replaces the device's stream. Errors: invalid_argument for a stream in whose order the library
  /// cannot work.
  void set_stream(int device, Stream stream);
  /// Checks a device's stream before work is put into it, since the program may have begun to
  /// capture it after setting it. Errors: invalid_argument.
  void require_stream(int device) const;

  /// Turns: see SumTurn. False if another thread has begun a turn and not ended it. A thread that
  /// may begin a turn may begin more within it.
  [[nodiscard]] bool begin_turn(int device);
  void end_turn(int device) noexcept;

  /// For streams of the program's other than stream(device). Work that the library puts into its
  /// stream from now on runs after the work in `other`. Errors: invalid_argument for a stream in
  /// whose order the library cannot work.
  void wait_for_stream(int device, Stream other);
  /// The other direction: work that is put into `other` from now on runs after the work in the
  /// library's stream. Errors: those of wait_for_stream().
  void let_stream_wait(int device, Stream other);

  /// A tensor whose elements are not initialised. Its memory is no other tensor's until it is
  /// destroyed. Errors: invalid_argument, out_of_memory.
  [[nodiscard]] Tensor allocate(const Shape& shape, DType dtype, Device device);

  /// Copies from any device to any other, after the work in the streams of both. Memory of a CPU
  /// has been read or written when this returns; `wait` is how that is waited for, by default with
  /// timeout() as its deadline. Errors: timeout, if that has passed, and what `wait` throws.
  void copy(std::byte* to, Device to_device, const std::byte* from, Device from_device,
            std::size_t bytes, const Wait& wait = {});

  /// Work that is put into the stream of device `later` from now on runs after the work in that of
  /// `earlier`.
  void order(int earlier, int later);

  /// Returns when all work in the device's stream has run. Errors: timeout, after timeout(), and
  /// what the checks throw.
  void synchronize(int device);
  /// Throws when work in the device's stream has failed. True if work is under way that has a
  /// deadline of its own. Waits for nothing; any thread.
  using Check = std::function<bool()>;
  /// Sets `owner`'s check; null removes it.
  void set_check(int device, const void* owner, Check check);

  /// Objects that ranks have made together on the device, kept for their next group.
  [[nodiscard]] KeptForRanks& kept(int device) const { return at(device).kept; }

  /// The number of calls of the devices' own allocators so far.
  [[nodiscard]] std::size_t allocations() const;

 private:
  static constexpr std::size_t kBounceBuffers = 4;
  static constexpr std::size_t kBounceBytes = std::size_t{4} << 20;

  /// Pinned memory through which other memory of the host is copied.
  struct BounceBuffer {
    std::byte* memory = nullptr;
    Event event = nullptr;
    bool is_followed = true;  ///< `event` is recorded behind the last copy
  };
  struct PerDevice {
    std::unique_ptr<Pool> pool;
    Stream stream = nullptr;
    Event order = nullptr;  ///< lets one stream wait for another
    int turns = 0;          ///< turns that have begun and not ended
    std::thread::id turn_of;
    std::array<BounceBuffer, kBounceBuffers> buffers{};
    std::size_t next_buffer = 0;
    std::mutex buffers_in_use;
    std::map<const void*, Check> checks;  ///< each owner's check
    std::mutex checks_in_use;
    KeptForRanks kept;
  };

  [[nodiscard]] PerDevice& at(int device) const { return *devices_[device]; }
  void require_usable(const char* call, int device, Stream stream) const;
  void let_wait(int device, Stream earlier, int other_device, Stream later);
  void await(Event event, const Wait& wait, const std::string& what);
  bool run_checks(int device) const;
  BounceBuffer& next_buffer(int device, const Wait& wait);
  void copy_followed(int device, BounceBuffer& buffer, std::byte* to, const std::byte* from,
                     std::size_t bytes);
  void upload(int device, std::byte* to, const std::byte* from, std::size_t bytes,
              const Wait& wait);
  void download(int device, std::byte* to, const std::byte* from, std::size_t bytes,
                const Wait& wait);

  std::shared_ptr<Accelerator> accelerator_;
  std::vector<std::unique_ptr<PerDevice>> devices_;
  mutable std::mutex mutex_;  ///< guards the streams
};

/// A thread's turn to put collectives into a device's stream: from before the ranks agree on a call
/// until its sums are in the stream. Collectives of two groups go there in the order of their
/// turns, which is the same on all ranks, since a turn is part of a call that all ranks make.
class SumTurn {
 public:
  SumTurn() = default;
  SumTurn(const SumTurn&) = delete;
  SumTurn& operator=(const SumTurn&) = delete;
  ~SumTurn() {
    if (gpus_ != nullptr) gpus_->end_turn(device_);
  }
  /// Begins the turn, unless it has begun. Errors: invalid_argument if another thread is in a turn:
  /// which of the two comes first may differ between ranks, and their streams would wait for each
  /// other.
  void begin(Gpus& gpus, int device);

 private:
  Gpus* gpus_ = nullptr;
  int device_ = 0;
};

/// Names a scope for a profiler.
class NamedRange {
 public:
  NamedRange(Accelerator& accelerator, const char* name) : accelerator_(accelerator) {
    accelerator_.begin_range(name);
  }
  ~NamedRange() { accelerator_.end_range(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  Accelerator& accelerator_;
};

/// Waits for an event, with a deadline. Errors: timeout, naming `what`; 0 is no deadline.
void wait(Accelerator& accelerator, Event event, Timeout timeout, const std::string& what);

/// The GPUs of this process; null if there are none. CUDA's state is global, as MPI's is, so they
/// are a variable of the process.
std::shared_ptr<Gpus> find_gpus();
/// True if require_gpus() would return. Quick.
bool is_here(Device device) noexcept;
/// The GPUs of this process, if `device` is one of them. Errors: invalid_argument with the reason,
/// after `what`.
std::shared_ptr<Gpus> require_gpus(const std::string& what, Device device);
/// Describes the GPUs that there are, or says why there are none.
std::string describe();

/// For tests: replaces the machine's GPUs. Null for none.
void replace_gpus(std::shared_ptr<Gpus> gpus);

/// The GPUs that the build's accelerator finds on this machine.
struct Found {
  std::shared_ptr<Accelerator> accelerator;  ///< null if there are no GPUs
  std::string reason;                        ///< the reason why there are none
};
/// Looks for GPUs. Defined by runtime/cuda, or, in a build without CUDA, by
/// runtime/gpu/without_cuda.cpp.
Found find_accelerator();

}  // namespace tutti::gpus
