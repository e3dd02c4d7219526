// SPDX-License-Identifier: Apache-2.0
// The parts of the fake CUDA runtime, for its own files.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/fake_cuda/fake_cuda.hpp"

namespace fake_cuda {

/// Ends the process: the library has done what a GPU would answer with wrong results.
[[noreturn]] void give_up(const std::string& why);

/// The memory of all devices: one range of addresses, which nobody can read or write while no work
/// of a device runs. AddressSanitizer sees what is outside of the blocks as well.
class DeviceMemory {
 public:
  DeviceMemory();

  /// Aligned to 256 bytes and filled with a pattern; null if there is no more.
  std::byte* allocate(std::size_t bytes);
  /// False if there is no such block.
  bool release(std::byte* block);
  [[nodiscard]] bool is_inside(const void* address) const;
  /// Whether these bytes are all of one block.
  [[nodiscard]] bool holds(const void* address, std::size_t bytes) const;
  [[nodiscard]] std::size_t num_blocks() const;
  /// Where other processes find a block: an open file of this one, and the bytes of it.
  struct Extent {
    int file;
    std::size_t offset;
    std::size_t bytes;
  };
  /// None if there is no such block.
  [[nodiscard]] std::optional<Extent> extent_of(const void* block) const;

  /// While one of these lives the memory can be read and written.
  class Open {
   public:
    explicit Open(DeviceMemory& memory);
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    DeviceMemory& memory_;
  };

 private:
  void protect(int protection) const;
  void shrink();

  mutable std::mutex mutex_;
  int file_ = -1;
  std::byte* begin_ = nullptr;
  std::size_t top_ = 0;  ///< bytes that have been in use
  int open_ = 0;
  std::map<std::size_t, std::size_t> blocks_;  ///< offset -> bytes
};

struct Device {
  std::atomic<bool> is_used{false};
  std::atomic<bool> hangs{false};
};

/// Runs what is put into it one after the other, in a thread of its own and sometimes late.
class Stream {
 public:
  using Work = std::function<void()>;

  Stream(std::shared_ptr<Device> device, int index, unsigned seed, DeviceMemory& memory);
  /// Starts the thread, which keeps the stream until it is closed and empty.
  static void start(const std::shared_ptr<Stream>& stream);

  [[nodiscard]] int device() const { return index_; }
  /// Returns how many have been put into it so far.
  std::size_t put(Work work);
  [[nodiscard]] std::size_t num_put() const { return num_put_; }
  [[nodiscard]] bool has_run(std::size_t count) const { return num_run_ >= count; }
  void await(std::size_t count) const;
  void close();

  std::atomic<bool> is_capturing{false};
  std::atomic<bool> is_capture_lost{false};

 private:
  void run();

  std::shared_ptr<Device> owner_;
  int index_;
  DeviceMemory& memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  bool is_closed_ = false;
  std::mt19937 random_;
  std::atomic<std::size_t> num_put_{0};
  std::atomic<std::size_t> num_run_{0};
};

/// How far an event of several processes is, in memory that they share (ipc.cpp).
struct SharedPoint {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> run;
};

struct Event {
  int device = 0;
  SharedPoint* shared = nullptr;   ///< of an event of several processes
  int file = -1;                   ///< that the point is in; of an own event
  std::shared_ptr<Stream> stream;  ///< null: not recorded yet
  std::size_t after = 0;
};

/// What the process has, behind the functions of CUDA. Lives until the process ends.
class Machine {
 public:
  Machine();
  static Machine& self();

  /// Which calls make the current device's context.
  enum class Context { made, none };
  /// Does what all calls of the runtime have in common around `body`, which gives the error.
  template <class Body>
  cudaError_t call(const char* name, Context context, Body body) {
    cudaError_t error = enter(name, context);
    if (error == cudaSuccess) error = body();
    return leave(error);
  }
  template <class Body>
  cudaError_t call(const char* name, Body body) {
    return call(name, Context::made, body);
  }

  [[nodiscard]] int count() const;
  [[nodiscard]] bool has(int device) const { return device >= 0 && device < count(); }
  [[nodiscard]] bool is_used(int device) const;
  /// This thread's current device: that of the context pushed last, or the one that it has set.
  static int& current();
  static std::vector<int>& pushed_contexts();
  /// Makes the device's context.
  void use(int index);
  static cudaError_t& last_error();

  /// Null if there is none.
  std::shared_ptr<Stream> find(cudaStream_t stream);
  cudaStream_t add_stream();
  bool remove(cudaStream_t stream);
  std::shared_ptr<Event> find(cudaEvent_t event) const;
  cudaEvent_t add_event();
  bool remove(cudaEvent_t event);
  /// Before calls that CUDA calls unsafe: false if a stream is being captured, whose capture is
  /// lost then, unless this thread has the relaxed mode.
  [[nodiscard]] bool may_call_beside_captures();
  static cudaStreamCaptureMode& capture_mode();
  /// Waits for all work of all devices, as the calls do that give memory back.
  void await_all();

  DeviceMemory memory;
  std::atomic<std::size_t> copied_bytes{0};
  std::mutex mutex;  ///< guards what follows
  std::map<std::byte*, std::size_t> pinned;
  std::map<std::byte*, std::size_t> registered;
  std::map<std::byte*, std::size_t> imported;  ///< memory of other processes' devices

 private:
  friend void fake_cuda::set_devices(int count);
  friend void fake_cuda::fail(const std::string& call, int nth, cudaError_t error);
  friend void fake_cuda::break_down(cudaError_t error);
  friend void fake_cuda::repair();
  friend void fake_cuda::hang(int device);
  friend void fake_cuda::go_on(int device);
  friend int fake_cuda::calls(const std::string& call);
  friend Counts fake_cuda::counts();

  struct Fault {
    int calls_left;  ///< 0: in all calls
    cudaError_t error;
  };

  cudaError_t enter(const char* name, Context context);
  static cudaError_t leave(cudaError_t error);
  std::shared_ptr<Stream> make_stream(int device);
  std::shared_ptr<Device> device(int index);

  mutable std::mutex own_mutex_;  ///< guards all below
  std::vector<std::shared_ptr<Device>> devices_;
  std::map<int, std::shared_ptr<Stream>> default_streams_;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<Stream>> closed_;  ///< whose work may not have run yet
  std::map<cudaEvent_t, std::shared_ptr<Event>> events_;
  std::map<std::string, int> calls_;
  std::map<std::string, Fault> faults_;
  cudaError_t broken_ = cudaSuccess;
  unsigned next_seed_ = 1;
};

/// Makes the event one of several processes. False if there is no memory.
bool share(Event& event);
/// Puts the record of such an event into the stream.
void record_shared(Event& event, const std::shared_ptr<Stream>& stream);
/// Lets the stream wait for such an event of another process, as it is now.
void await_shared(const Event& event, const std::shared_ptr<Stream>& stream);

/// Runs one thread of a kernel after the other, in blocks (block.cpp).
void run_blocks(const cudaLaunchConfig_t& config, const std::function<void()>& thread);

}  // namespace fake_cuda
