// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process, and the streams that their work goes into.
#pragma once

#include <string>

#include "tutti/communicator.hpp"
#include "tutti/export.h"
#include "tutti/shape.hpp"

namespace tutti {

/// How many GPUs this process can use: gpu(0) to gpu(n - 1). 0 where the library was built without
/// CUDA, where there is no driver or no GPU, and with CUDA_VISIBLE_DEVICES="". Never throws.
TUTTI_API int num_gpus() noexcept;

/// "CUDA 13.0 (driver 13.0): gpu(0) NVIDIA H200, 139.8 GiB", or why there are none. For --version.
TUTTI_API std::string describe_gpus();
inline std::string gpus_in_words() { return describe_gpus(); }  // the former name

/// The GPU for this rank: number (local rank in the job modulo num_gpus()), the same for all groups
/// of the job's ranks; and so gpu(0) where each rank sees one GPU, as Slurm can arrange it. Errors:
/// invalid_argument if there is none, with the reason.
TUTTI_API Device gpu_of(const Communicator& communicator);

/// Work on tensors on a GPU (push, pull, arithmetic, copies) is put into this stream of the device:
/// it runs after what is in the stream already and before what is put there later. So a tensor that
/// was pushed may be overwritten, and one that was pulled be read, by later work in the same
/// stream; work in another stream is ordered by wait_for_stream() and let_stream_wait(). `stream`
/// is a cudaStream_t, and the default stream until one is set. Work in the stream used before runs
/// first. Where a call also has a tensor on a CPU, the call returns when that tensor has been read
/// or written. A push or a sum over ranks of one node may return before it has been made. If it
/// then goes wrong, the next call of the store or communicator throws, and so does synchronize(); a
/// value that was pulled on the GPU meanwhile is undefined. Any thread; a stream is destroyed only
/// after another one was set. Errors: invalid_argument if there is no such GPU.
TUTTI_API void set_stream(Device device, void* stream);
[[nodiscard]] TUTTI_API void* stream_of(Device device);

/// For tensors whose work is in another stream than the library's. wait_for_stream(), before a
/// call: the library's work on this GPU from now on runs after what is in `stream`.
/// let_stream_wait(), after it: work that is put into `stream` from now on runs after the
/// library's, so that a tensor that was pushed may be freed or written there, and one that was
/// pulled be read. Neither waits on the host. Any thread. Errors: invalid_argument if there is no
/// such GPU, and for a stream that is being captured.
TUTTI_API void wait_for_stream(Device device, void* stream);
TUTTI_API void let_stream_wait(Device device, void* stream);

/// Returns when everything that was put into the device's stream has run. Local.
/// Errors: timeout, after the deadline of the store or communicator that was created last (300 s
/// before the first), which does not run while a push has its own; communication if that work
/// failed. Errors of a push that is in the stream, as its store throws them.
TUTTI_API void synchronize(Device device);

}  // namespace tutti
