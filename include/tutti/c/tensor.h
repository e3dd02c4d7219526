// SPDX-License-Identifier: Apache-2.0
// Tensors of the C API: a plain struct that borrows memory, and a handle that owns some.
#ifndef TUTTI_C_TENSOR_H
#define TUTTI_C_TENSOR_H

#include <stdint.h>

#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Element types. 0 is none, so that a field that was forgotten is an error.
enum {
  TUTTI_FLOAT16 = 1,   ///< IEEE 754 binary16
  TUTTI_BFLOAT16 = 2,  ///< the upper half of a float32
  TUTTI_FLOAT32 = 3,
  TUTTI_FLOAT64 = 4,
  TUTTI_INT8 = 5,
  TUTTI_UINT8 = 6,
  TUTTI_INT32 = 7,
  TUTTI_INT64 = 8
};

/// The device that holds a tensor. Several indices of TUTTI_CPU are one memory: the index only
/// tells values apart.
enum {
  TUTTI_CPU = 0,
  TUTTI_GPU = 1  ///< a GPU of this process; an error where there is none
};

enum { TUTTI_MAX_DIMENSIONS = 8 };

/// A view of memory that it does not own: dense, row-major.
///
/// As arguments, the view, its shape and its data are read or written during the call and not kept.
/// A struct that is zero but for the fields that a tensor needs is well formed: on TUTTI_CPU 0.
typedef struct tutti_tensor {
  void* data;            ///< the elements; may be NULL if there are none
  const int64_t* shape;  ///< `ndim` dimensions, none negative
  int ndim;              ///< 0 to TUTTI_MAX_DIMENSIONS; 0 is a scalar: one element, no shape
  int dtype;             ///< TUTTI_FLOAT32, ...
  int device_kind;       ///< TUTTI_CPU or TUTTI_GPU
  int device_index;      ///< at least 0
} tutti_tensor;

/// A handle of a tensor that owns its memory, which the node's other ranks can read: collective
/// calls read and write it without copies. From tutti_kvstore_allocate and
/// tutti_communicator_allocate, which it may outlive; that of tutti_kvstore_row_sparse_pull is
/// ordinary memory, or a GPU's.
typedef struct tutti_buffer tutti_buffer;

/// The buffer as a tensor. Its data and shape are valid until the buffer is destroyed.
TUTTI_API int tutti_buffer_tensor(const tutti_buffer* buffer, tutti_tensor* tensor);

/// Frees the buffer; NULL does nothing. No call that uses it may be under way. Local.
TUTTI_API int tutti_buffer_destroy(tutti_buffer* buffer);

#ifdef __cplusplus
}
#endif

#endif
