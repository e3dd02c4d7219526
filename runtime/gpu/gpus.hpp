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

/// How to wait for work of a GPU: returns once `ready` does, and throws where it hears that the
/// work will not end. `what` describes the work.
using Wait = std::function<void(const std::function<bool()>& ready, const std::string& what)>;

/// How long is waited for GPUs where nobody says how. Tensors belong to no group, so this is one
/// for the process: the deadline of the group that was made last, 300 s before the first. 0 is
/// none.
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

  /// The stream that all work of a device is in the order of: what runs in another stream begins
  /// after an event of this one, and ends before this one goes on.
  [[nodiscard]] Stream stream(int device) const;
  /// Errors: invalid_argument for one whose work has no order that is known here.
  void set_stream(int device, Stream stream);
  /// Before work is put into a device's stream, which the program may have begun to capture since
  /// it set it. Errors: invalid_argument.
  void require_stream(int device) const;

  /// See SumTurn. False if another thread has begun a turn and not ended it. One that may begin a
  /// turn may begin more within it.
  [[nodiscard]] bool begin_turn(int device);
  void end_turn(int device) noexcept;

  /// For streams of the program's other than stream(device). What the library puts into its stream
  /// from now on runs after what is in `other`. Errors: invalid_argument for one whose work has no
  /// order that is known here.
  void wait_for_stream(int device, Stream other);
  /// And the other way: what is put into `other` from now on runs after what is in the library's.
  /// Errors: the same.
  void let_stream_wait(int device, Stream other);

  /// Not initialised; keeps its memory from other tensors' until it is destroyed.
  /// Errors: invalid_argument, out_of_memory.
  [[nodiscard]] Tensor allocate(const Shape& shape, DType dtype, Device device);

  /// From anywhere to anywhere, after what is in the streams of both devices. Memory of a CPU has
  /// been read or written when this returns; `wait` says how to wait for that, and else timeout().
  /// Errors: timeout, if it is not, and what `wait` throws.
  void copy(std::byte* to, Device to_device, const std::byte* from, Device from_device,
            std::size_t bytes, const Wait& wait = {});

  /// What is put into `later`'s stream from now on runs after what is in `earlier`'s.
  void order(int earlier, int later);

  /// Returns when all that is in the device's stream has run. Errors: timeout, after timeout(), and
  /// what the checks throw.
  void synchronize(int device);
  /// Throws when work in the device's stream has gone wrong. True if some is under way that has a
  /// deadline of its own. Waits for nothing; any thread.
  using Check = std::function<bool()>;
  /// Null for no more of `owner`'s.
  void set_check(int device, const void* owner, Check check);

  /// Objects that ranks have made together on the device, for their next group.
  [[nodiscard]] KeptForRanks& kept(int device) const { return at(device).kept; }

  /// Calls of the devices' own allocators so far.
  [[nodiscard]] std::size_t allocations() const;

 private:
  static constexpr std::size_t kBounceBuffers = 4;
  static constexpr std::size_t kBounceBytes = std::size_t{4} << 20;

  /// Pinned memory that copies of other memory of the host go through.
  struct BounceBuffer {
    std::byte* memory = nullptr;
    Event event = nullptr;
    bool is_followed = true;  ///< the event tells when the last copy has run
  };
  struct PerDevice {
    std::unique_ptr<Pool> pool;
    Stream stream = nullptr;
    Event order = nullptr;  ///< for what lets one stream wait for another
    int turns = 0;          ///< that have begun and not ended
    std::thread::id turn_of;
    std::array<BounceBuffer, kBounceBuffers> buffers{};
    std::size_t next_buffer = 0;
    std::mutex buffers_in_use;
    std::map<const void*, Check> checks;  ///< by owner
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
  /// Nothing, if it has begun. Errors: invalid_argument if another thread is in a turn: which of
  /// the two comes first may differ between ranks, and their streams would wait for each other.
  void begin(Gpus& gpus, int device);

 private:
  Gpus* gpus_ = nullptr;
  int device_ = 0;
};

/// Names the scope for a profiler.
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

/// The GPUs of this process; null if there are none. CUDA's state is global, as MPI's is, so this
/// is the one variable of its kind here.
std::shared_ptr<Gpus> find_gpus();
/// Whether require_gpus() would return. Quick.
bool is_here(Device device) noexcept;
/// Errors: invalid_argument with the reason why there are none, after `what`.
std::shared_ptr<Gpus> require_gpus(const std::string& what, Device device);
/// Why there are none, or what there is.
std::string describe();

/// For tests: these instead of the machine's own. Null for none.
void replace_gpus(std::shared_ptr<Gpus> gpus);

/// What the build found on this machine.
struct Found {
  std::shared_ptr<Accelerator> accelerator;  ///< null for none
  std::string reason;                        ///< why none
};
/// Defined by runtime/cuda, or, in a build without CUDA, by runtime/gpu/without_cuda.cpp.
Found find_accelerator();

}  // namespace tutti::gpus
