// SPDX-License-Identifier: Apache-2.0
// For C: the GPUs of this process, whose memory a tutti_tensor of kind TUTTI_GPU points to.
#ifndef TUTTI_C_GPU_H
#define TUTTI_C_GPU_H

#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The number of GPUs, which are numbered from 0; 0 where there are none, for whatever reason.
/// Local.
TUTTI_API int tutti_gpu_count(int* count);

/// Work on tensors on this GPU goes into this stream, a cudaStream_t, from now on: after what is in
/// it already and before what is put there later. NULL is the default stream. Work in the stream
/// used before runs first. Local.
/// Errors  invalid_argument: no such GPU.
TUTTI_API int tutti_gpu_set_stream(int device_index, void* stream);

/// For tensors whose work is in another stream than the library's. wait_for_stream, before a call:
/// what the library does with this GPU from now on runs after what is in `stream`. let_stream_wait,
/// after it: what is put into `stream` from now on runs after what the library has done. Neither
/// waits on the host. Local. Errors  invalid_argument: no such GPU; a stream that is being
/// captured.
TUTTI_API int tutti_gpu_wait_for_stream(int device_index, void* stream);
TUTTI_API int tutti_gpu_let_stream_wait(int device_index, void* stream);

/// Returns when all work in the GPU's stream has run. Local.
/// Errors  invalid_argument: no such GPU; timeout; communication: that work failed.
TUTTI_API int tutti_gpu_synchronize(int device_index);

#ifdef __cplusplus
}
#endif

#endif
