// SPDX-License-Identifier: Apache-2.0
// The whole API of Tutti for C (C99), and for the languages that can call C. For C++:
// tutti/tutti.hpp.
//
// Status   A function returns TUTTI_OK, or the kind of error; then tutti_last_error() is the text,
//          and the targets of pointers are as they were. After invalid_argument and mismatch
//          nothing has changed.
// Order    Calls marked "collective" are made by every rank of the job, in the same order, with the
//          same keys, shapes, dtypes and operations. A call that is invalid on one rank, or that
//          differs between ranks, is an error on all of them, and all can go on. Exceptions are
//          errors of this rank alone, for which the others wait until their deadline
//          (TUTTI_TIMEOUT): a handle that is NULL or of another kind, a store's unknown type,
//          settings that are given as a list, no place for a communicator, the arguments of
//          create_group, the tensor and the rank of send and receive, and the errors that an
//          asynchronous call returns at once (pending.h).
// Handles  Made by _create, _world, _self and _allocate, and ended by _destroy, after which using
//          them is undefined. No call is under way on a handle while it is destroyed, and one
//          thread at a time uses it, and the handles that were made from it. There is no other
//          state than the handles', but for each thread's last error.
// Memory   The library keeps no pointer beyond a call, but for an updater, its user data, and the
//          arguments of an asynchronous call until that is complete (pending.h).
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include "tutti/c/blocks.h"
#include "tutti/c/checkpoint.h"
#include "tutti/c/communicator.h"
#include "tutti/c/gpu.h"
#include "tutti/c/key.h"
#include "tutti/c/kvstore.h"
#include "tutti/c/observe.h"
#include "tutti/c/optimizer.h"
#include "tutti/c/pending.h"
#include "tutti/c/preemption.h"
#include "tutti/c/row_sparse.h"
#include "tutti/c/status.h"
#include "tutti/c/tensor.h"

#endif
