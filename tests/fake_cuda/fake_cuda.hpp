// SPDX-License-Identifier: Apache-2.0
// What a test can do to the fake CUDA runtime of its process, and ask of it. README.md says what it
// plays and what it does not.
#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>
#include <string>

#pragma GCC visibility push(default)
namespace fake_cuda {

/// From now on there are this many GPUs, none of them used. FAKE_CUDA_DEVICES says how many there
/// are at first; else 1.
void set_devices(int count);

/// The nth call from now on (1: the next one) fails, and no other. 0: all of them do.
void fail(const std::string& call, int nth, cudaError_t error);
/// From now on every call gives this error, as after a kernel that wrote where it must not.
void break_down(cudaError_t error);
/// Ends what fail() and break_down() began.
void repair();

/// Work of this device waits from now on, until go_on().
void hang(int device);
void go_on(int device);

/// Whether a stream is being captured into a graph, in the mode that cudaStreamBeginCapture is
/// mostly called with: global.
void set_capturing(cudaStream_t stream, bool is_capturing);
/// Whether a call of some thread, which has not asked for the relaxed mode, has ended its capture.
[[nodiscard]] bool is_capture_lost(cudaStream_t stream);

/// Whether memory of other processes that this one opens from now on reads as zeros, as where a
/// PCIe switch redirects what one GPU asks of another.
void set_blind_to_peers(bool is_blind);

/// Whether the process has used this device since set_devices().
[[nodiscard]] bool is_used(int device);
/// Calls of a function so far.
[[nodiscard]] int calls(const std::string& call);
/// What cudaMemcpyAsync has been asked to copy so far.
[[nodiscard]] std::size_t copied_bytes();
/// What this thread's cudaGetLastError would give; it stays.
[[nodiscard]] cudaError_t left_behind();

/// What was made and not given back.
struct Counts {
  std::size_t device_blocks = 0;
  std::size_t pinned_blocks = 0;
  std::size_t registered_blocks = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
};
[[nodiscard]] Counts counts();

}  // namespace fake_cuda
#pragma GCC visibility pop
