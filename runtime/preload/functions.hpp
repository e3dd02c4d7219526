// SPDX-License-Identifier: Apache-2.0
// The functions of MPI that a program's calls are taken from: the one list of them, for the
// preloaded library, which has their names, and for the part behind it, which carries them out.
#pragma once

#include <cstdint>
#include <mpi.h>

// The functions of C, as X(name, parameters, arguments). Those of MPI 4 with large counts have the
// same parameters, with other types of counts and displacements.

/// The functions that MPI carries out, once the ranks have met where their waits are watched.
#define TUTTI_WATCHED_OF(X, suffix, Count, Place)                                                \
  X(Gatherv##suffix,                                                                             \
    (const void* input, Count given, MPI_Datatype given_type, void* output, const Count* counts, \
     const Place* places, MPI_Datatype type, int root, MPI_Comm comm),                           \
    (input, given, given_type, output, counts, places, type, root, comm))                        \
  X(Scatterv##suffix,                                                                            \
    (const void* input, const Count* counts, const Place* places, MPI_Datatype given_type,       \
     void* output, Count count, MPI_Datatype type, int root, MPI_Comm comm),                     \
    (input, counts, places, given_type, output, count, type, root, comm))                        \
  X(Alltoallv##suffix,                                                                           \
    (const void* input, const Count* given, const Place* given_places, MPI_Datatype given_type,  \
     void* output, const Count* counts, const Place* places, MPI_Datatype type, MPI_Comm comm),  \
    (input, given, given_places, given_type, output, counts, places, type, comm))                \
  X(Alltoallw##suffix,                                                                           \
    (const void* input, const Count* given, const Place* given_places,                           \
     const MPI_Datatype* given_types, void* output, const Count* counts, const Place* places,    \
     const MPI_Datatype* types, MPI_Comm comm),                                                  \
    (input, given, given_places, given_types, output, counts, places, types, comm))              \
  X(Scan##suffix,                                                                                \
    (const void* input, void* output, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
    (input, output, count, type, op, comm))                                                      \
  X(Exscan##suffix,                                                                              \
    (const void* input, void* output, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
    (input, output, count, type, op, comm))

/// The functions that make communicators of all ranks of one, which MPI carries out like those.
#define TUTTI_MAKERS(X)                                                                        \
  X(Comm_dup, (MPI_Comm comm, MPI_Comm * made), (comm, made))                                  \
  X(Comm_create, (MPI_Comm comm, MPI_Group ranks, MPI_Comm * made), (comm, ranks, made))       \
  X(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm* made), (comm, color, key, made)) \
  X(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made),        \
    (comm, type, key, info, made))                                                             \
  X(Cart_create,                                                                               \
    (MPI_Comm comm, int dimensions, const int* sizes, const int* periods, int reorder,         \
     MPI_Comm* made),                                                                          \
    (comm, dimensions, sizes, periods, reorder, made))                                         \
  X(Cart_sub, (MPI_Comm comm, const int* remain, MPI_Comm* made), (comm, remain, made))        \
  X(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm * made), (comm, info, made))

/// The functions that wait for one other rank or for messages, as X(name, parameters, arguments,
/// what the wait is for). MPI carries them out.
#define TUTTI_MESSAGES_OF(X, suffix, Count)                                                      \
  X(Send##suffix,                                                                                \
    (const void* buffer, Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm),      \
    (buffer, count, type, dest, tag, comm), .dest = &dest, .given_tag = &tag, .comm = comm)      \
  X(Ssend##suffix,                                                                               \
    (const void* buffer, Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm),      \
    (buffer, count, type, dest, tag, comm), .dest = &dest, .given_tag = &tag, .comm = comm)      \
  X(Recv##suffix,                                                                                \
    (void* buffer, Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,           \
     MPI_Status* status),                                                                        \
    (buffer, count, type, source, tag, comm, status), .source = &source, .tag = &tag,            \
    .comm = comm)                                                                                \
  X(Sendrecv##suffix,                                                                            \
    (const void* given, Count given_count, MPI_Datatype given_type, int dest, int given_tag,     \
     void* buffer, Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,           \
     MPI_Status* status),                                                                        \
    (given, given_count, given_type, dest, given_tag, buffer, count, type, source, tag, comm,    \
     status),                                                                                    \
    .dest = &dest, .given_tag = &given_tag, .source = &source, .tag = &tag, .comm = comm)        \
  X(Sendrecv_replace##suffix,                                                                    \
    (void* buffer, Count count, MPI_Datatype type, int dest, int given_tag, int source, int tag, \
     MPI_Comm comm, MPI_Status* status),                                                         \
    (buffer, count, type, dest, given_tag, source, tag, comm, status), .dest = &dest,            \
    .given_tag = &given_tag, .source = &source, .tag = &tag, .comm = comm)
#define TUTTI_FENCES(X) X(Win_fence, (int assertion, MPI_Win window), (assertion, window))
/// Those whose whole work a function does that does not wait, with its name, its arguments, and
/// what is not 0 where the other one would return.
#define TUTTI_TESTED(X)                                                                            \
  X(Probe, (int source, int tag, MPI_Comm comm, MPI_Status* status), (source, tag, comm, status),  \
    Iprobe, (source, tag, comm, &is_done, status), is_done, .source = &source, .tag = &tag,        \
    .comm = comm)                                                                                  \
  X(Mprobe, (int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status),        \
    (source, tag, comm, message, status), Improbe, (source, tag, comm, &is_done, message, status), \
    is_done, .source = &source, .tag = &tag, .comm = comm)                                         \
  X(Wait, (MPI_Request * request, MPI_Status * status), (request, status), Test,                   \
    (request, &is_done, status), is_done)                                                          \
  X(Waitall, (int count, MPI_Request* requests, MPI_Status* statuses),                             \
    (count, requests, statuses), Testall, (count, requests, &is_done, statuses), is_done,          \
    .requests = &count)                                                                            \
  X(Waitany, (int count, MPI_Request* requests, int* index, MPI_Status* status),                   \
    (count, requests, index, status), Testany, (count, requests, index, &is_done, status),         \
    is_done, .requests = &count)                                                                   \
  X(Waitsome,                                                                                      \
    (int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses),        \
    (count, requests, completed, indices, statuses), Testsome,                                     \
    (count, requests, completed, indices, statuses), *completed, .requests = &count)

/// The functions that the library may carry out.
#define TUTTI_TAKEN_OF(X, suffix, Count)                                                         \
  X(Bcast##suffix, (void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm),      \
    (buffer, count, type, root, comm))                                                           \
  X(Reduce##suffix,                                                                              \
    (const void* input, void* output, Count count, MPI_Datatype type, MPI_Op op, int root,       \
     MPI_Comm comm),                                                                             \
    (input, output, count, type, op, root, comm))                                                \
  X(Allreduce##suffix,                                                                           \
    (const void* input, void* output, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
    (input, output, count, type, op, comm))                                                      \
  X(Reduce_scatter##suffix,                                                                      \
    (const void* input, void* output, const Count* counts, MPI_Datatype type, MPI_Op op,         \
     MPI_Comm comm),                                                                             \
    (input, output, counts, type, op, comm))                                                     \
  X(Reduce_scatter_block##suffix,                                                                \
    (const void* input, void* output, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
    (input, output, count, type, op, comm))                                                      \
  X(Allgather##suffix,                                                                           \
    (const void* input, Count given, MPI_Datatype given_type, void* output, Count count,         \
     MPI_Datatype type, MPI_Comm comm),                                                          \
    (input, given, given_type, output, count, type, comm))                                       \
  X(Gather##suffix,                                                                              \
    (const void* input, Count given, MPI_Datatype given_type, void* output, Count count,         \
     MPI_Datatype type, int root, MPI_Comm comm),                                                \
    (input, given, given_type, output, count, type, root, comm))                                 \
  X(Scatter##suffix,                                                                             \
    (const void* input, Count given, MPI_Datatype given_type, void* output, Count count,         \
     MPI_Datatype type, int root, MPI_Comm comm),                                                \
    (input, given, given_type, output, count, type, root, comm))                                 \
  X(Alltoall##suffix,                                                                            \
    (const void* input, Count given, MPI_Datatype given_type, void* output, Count count,         \
     MPI_Datatype type, MPI_Comm comm),                                                          \
    (input, given, given_type, output, count, type, comm))

/// Displacements are those of this rank, so calls with large ones are left to MPI.
#define TUTTI_ALLGATHERV_OF(X, suffix, Count, Place)                                             \
  X(Allgatherv##suffix,                                                                          \
    (const void* input, Count given, MPI_Datatype given_type, void* output, const Count* counts, \
     const Place* places, MPI_Datatype type, MPI_Comm comm),                                     \
    (input, given, given_type, output, counts, places, type, comm))

#if MPI_VERSION < 4
#define TUTTI_WATCHED_LARGE(X)
#define TUTTI_PRELOADED_LARGE(X)
#define TUTTI_MESSAGES_LARGE(X)
#else
#define TUTTI_WATCHED_LARGE(X)                    \
  TUTTI_ALLGATHERV_OF(X, _c, MPI_Count, MPI_Aint) \
  TUTTI_WATCHED_OF(X, _c, MPI_Count, MPI_Aint)
#define TUTTI_PRELOADED_LARGE(X) TUTTI_TAKEN_OF(X, _c, MPI_Count)
#define TUTTI_MESSAGES_LARGE(X) TUTTI_MESSAGES_OF(X, _c, MPI_Count)
#endif
#define TUTTI_WATCHED_C(X)        \
  TUTTI_WATCHED_OF(X, , int, int) \
  TUTTI_MAKERS(X)
#define TUTTI_MESSAGES_C(X)   \
  TUTTI_MESSAGES_OF(X, , int) \
  TUTTI_FENCES(X)

/// All functions of C.
#define TUTTI_PRELOADED_C(X)                                             \
  TUTTI_WATCHED_LARGE(X)                                                 \
  TUTTI_PRELOADED_LARGE(X)                                               \
  TUTTI_MESSAGES_LARGE(X)                                                \
  TUTTI_WATCHED_C(X)                                                     \
  TUTTI_MESSAGES_C(X)                                                    \
  TUTTI_TESTED(X)                                                        \
  X(Init, (int* argc, char*** argv), (argc, argv))                       \
  X(Init_thread, (int* argc, char*** argv, int required, int* provided), \
    (argc, argv, required, provided))                                    \
  X(Finalize, (void), ())                                                \
  X(Barrier, (MPI_Comm comm), (comm))                                    \
  TUTTI_TAKEN_OF(X, , int)                                               \
  TUTTI_ALLGATHERV_OF(X, , int, int)

/// X(name, NAME, parameters, arguments) for each of Fortran, whose arguments are addresses. Open
/// MPI's call PMPI_*. Those of MPICH call MPI_*, which is taken already, but for functions without
/// a buffer in the module mpi_f08: of these the following are taken. The standard ABI's header has
/// nothing of Fortran.
#define TUTTI_BEGIN_FORTRAN(X)                                                              \
  X(init, INIT, (MPI_Fint * error), (error))                                                \
  X(init_thread, INIT_THREAD, (MPI_Fint * required, MPI_Fint * provided, MPI_Fint * error), \
    (required, provided, error))                                                            \
  X(finalize, FINALIZE, (MPI_Fint * error), (error))                                        \
  X(barrier, BARRIER, (MPI_Fint * comm, MPI_Fint * error), (comm, error))
#ifndef OMPI_MAJOR_VERSION
#define TUTTI_WATCHED_FORTRAN(X)
#define TUTTI_MESSAGES_FORTRAN(X)
#ifdef MPICH_NUMVERSION
#define TUTTI_PRELOADED_FORTRAN(X) TUTTI_BEGIN_FORTRAN(X)
#else
#define TUTTI_PRELOADED_FORTRAN(X)
#endif
#else
#define TUTTI_WATCHED_FORTRAN(X)                                                                   \
  X(gatherv, GATHERV,                                                                              \
    (void* input, MPI_Fint* given, MPI_Fint* given_type, void* output, MPI_Fint* counts,           \
     MPI_Fint* places, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* error),           \
    (input, given, given_type, output, counts, places, type, root, comm, error))                   \
  X(scatterv, SCATTERV,                                                                            \
    (void* input, MPI_Fint* counts, MPI_Fint* places, MPI_Fint* given_type, void* output,          \
     MPI_Fint* count, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* error),            \
    (input, counts, places, given_type, output, count, type, root, comm, error))                   \
  X(alltoallv, ALLTOALLV,                                                                          \
    (void* input, MPI_Fint* given, MPI_Fint* given_places, MPI_Fint* given_type, void* output,     \
     MPI_Fint* counts, MPI_Fint* places, MPI_Fint* type, MPI_Fint* comm, MPI_Fint* error),         \
    (input, given, given_places, given_type, output, counts, places, type, comm, error))           \
  X(alltoallw, ALLTOALLW,                                                                          \
    (void* input, MPI_Fint* given, MPI_Fint* given_places, MPI_Fint* given_types, void* output,    \
     MPI_Fint* counts, MPI_Fint* places, MPI_Fint* types, MPI_Fint* comm, MPI_Fint* error),        \
    (input, given, given_places, given_types, output, counts, places, types, comm, error))         \
  X(scan, SCAN,                                                                                    \
    (void* input, void* output, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,     \
     MPI_Fint* error),                                                                             \
    (input, output, count, type, op, comm, error))                                                 \
  X(exscan, EXSCAN,                                                                                \
    (void* input, void* output, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,     \
     MPI_Fint* error),                                                                             \
    (input, output, count, type, op, comm, error))                                                 \
  X(comm_dup, COMM_DUP, (MPI_Fint * comm, MPI_Fint * made, MPI_Fint * error), (comm, made, error)) \
  X(comm_create, COMM_CREATE,                                                                      \
    (MPI_Fint * comm, MPI_Fint * ranks, MPI_Fint * made, MPI_Fint * error),                        \
    (comm, ranks, made, error))                                                                    \
  X(comm_split, COMM_SPLIT,                                                                        \
    (MPI_Fint * comm, MPI_Fint * color, MPI_Fint * key, MPI_Fint * made, MPI_Fint * error),        \
    (comm, color, key, made, error))                                                               \
  X(comm_split_type, COMM_SPLIT_TYPE,                                                              \
    (MPI_Fint * comm, MPI_Fint * type, MPI_Fint * key, MPI_Fint * info, MPI_Fint * made,           \
     MPI_Fint * error),                                                                            \
    (comm, type, key, info, made, error))                                                          \
  X(cart_create, CART_CREATE,                                                                      \
    (MPI_Fint * comm, MPI_Fint * dimensions, MPI_Fint * sizes, void* periods, void* reorder,       \
     MPI_Fint* made, MPI_Fint* error),                                                             \
    (comm, dimensions, sizes, periods, reorder, made, error))                                      \
  X(cart_sub, CART_SUB, (MPI_Fint * comm, void* remain, MPI_Fint* made, MPI_Fint* error),          \
    (comm, remain, made, error))                                                                   \
  X(comm_dup_with_info, COMM_DUP_WITH_INFO,                                                        \
    (MPI_Fint * comm, MPI_Fint * info, MPI_Fint * made, MPI_Fint * error),                         \
    (comm, info, made, error))
#define TUTTI_MESSAGES_FORTRAN(X)                                                                  \
  X(send, SEND,                                                                                    \
    (void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* dest, MPI_Fint* tag, MPI_Fint* comm, \
     MPI_Fint* error),                                                                             \
    (buffer, count, type, dest, tag, comm, error), .dest = dest, .given_tag = tag,                 \
    .comm = PMPI_Comm_f2c(*comm))                                                                  \
  X(ssend, SSEND,                                                                                  \
    (void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* dest, MPI_Fint* tag, MPI_Fint* comm, \
     MPI_Fint* error),                                                                             \
    (buffer, count, type, dest, tag, comm, error), .dest = dest, .given_tag = tag,                 \
    .comm = PMPI_Comm_f2c(*comm))                                                                  \
  X(recv, RECV,                                                                                    \
    (void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* source, MPI_Fint* tag,               \
     MPI_Fint* comm, MPI_Fint* status, MPI_Fint* error),                                           \
    (buffer, count, type, source, tag, comm, status, error), .source = source, .tag = tag,         \
    .comm = PMPI_Comm_f2c(*comm))                                                                  \
  X(sendrecv, SENDRECV,                                                                            \
    (void* given, MPI_Fint* given_count, MPI_Fint* given_type, MPI_Fint* dest,                     \
     MPI_Fint* given_tag, void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* source,         \
     MPI_Fint* tag, MPI_Fint* comm, MPI_Fint* status, MPI_Fint* error),                            \
    (given, given_count, given_type, dest, given_tag, buffer, count, type, source, tag, comm,      \
     status, error),                                                                               \
    .dest = dest, .given_tag = given_tag, .source = source, .tag = tag,                            \
    .comm = PMPI_Comm_f2c(*comm))                                                                  \
  X(sendrecv_replace, SENDRECV_REPLACE,                                                            \
    (void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* dest, MPI_Fint* given_tag,           \
     MPI_Fint* source, MPI_Fint* tag, MPI_Fint* comm, MPI_Fint* status, MPI_Fint* error),          \
    (buffer, count, type, dest, given_tag, source, tag, comm, status, error), .dest = dest,        \
    .given_tag = given_tag, .source = source, .tag = tag, .comm = PMPI_Comm_f2c(*comm))            \
  X(win_fence, WIN_FENCE, (MPI_Fint * assertion, MPI_Fint * window, MPI_Fint * error),             \
    (assertion, window, error))
#define TUTTI_TESTED_FORTRAN(X)                                                                   \
  X(probe, PROBE,                                                                                 \
    (MPI_Fint * source, MPI_Fint * tag, MPI_Fint * comm, MPI_Fint * status, MPI_Fint * error),    \
    (source, tag, comm, status, error), iprobe, (source, tag, comm, &is_done, status, &code),     \
    is_done, .source = source, .tag = tag, .comm = PMPI_Comm_f2c(*comm))                          \
  X(mprobe, MPROBE,                                                                               \
    (MPI_Fint * source, MPI_Fint * tag, MPI_Fint * comm, MPI_Fint * message, MPI_Fint * status,   \
     MPI_Fint * error),                                                                           \
    (source, tag, comm, message, status, error), improbe,                                         \
    (source, tag, comm, &is_done, message, status, &code), is_done, .source = source, .tag = tag, \
    .comm = PMPI_Comm_f2c(*comm))                                                                 \
  X(wait, WAIT, (MPI_Fint * request, MPI_Fint * status, MPI_Fint * error),                        \
    (request, status, error), test, (request, &is_done, status, &code), is_done)                  \
  X(waitall, WAITALL,                                                                             \
    (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * statuses, MPI_Fint * error),               \
    (count, requests, statuses, error), testall, (count, requests, &is_done, statuses, &code),    \
    is_done, .requests = count)                                                                   \
  X(waitany, WAITANY,                                                                             \
    (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * index, MPI_Fint * status,                  \
     MPI_Fint * error),                                                                           \
    (count, requests, index, status, error), testany,                                             \
    (count, requests, index, &is_done, status, &code), is_done, .requests = count)                \
  X(waitsome, WAITSOME,                                                                           \
    (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * completed, MPI_Fint * indices,             \
     MPI_Fint * statuses, MPI_Fint * error),                                                      \
    (count, requests, completed, indices, statuses, error), testsome,                             \
    (count, requests, completed, indices, statuses, &code), *completed, .requests = count)
#define TUTTI_PRELOADED_FORTRAN(X)                                                              \
  TUTTI_WATCHED_FORTRAN(X)                                                                      \
  TUTTI_MESSAGES_FORTRAN(X)                                                                     \
  TUTTI_TESTED_FORTRAN(X)                                                                       \
  TUTTI_BEGIN_FORTRAN(X)                                                                        \
  X(bcast, BCAST,                                                                               \
    (void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm,             \
     MPI_Fint* error),                                                                          \
    (buffer, count, type, root, comm, error))                                                   \
  X(reduce, REDUCE,                                                                             \
    (void* input, void* output, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* root,  \
     MPI_Fint* comm, MPI_Fint* error),                                                          \
    (input, output, count, type, op, root, comm, error))                                        \
  X(allreduce, ALLREDUCE,                                                                       \
    (void* input, void* output, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,  \
     MPI_Fint* error),                                                                          \
    (input, output, count, type, op, comm, error))                                              \
  X(reduce_scatter, REDUCE_SCATTER,                                                             \
    (void* input, void* output, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, \
     MPI_Fint* error),                                                                          \
    (input, output, counts, type, op, comm, error))                                             \
  X(reduce_scatter_block, REDUCE_SCATTER_BLOCK,                                                 \
    (void* input, void* output, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,  \
     MPI_Fint* error),                                                                          \
    (input, output, count, type, op, comm, error))                                              \
  X(allgather, ALLGATHER,                                                                       \
    (void* input, MPI_Fint* given, MPI_Fint* given_type, void* output, MPI_Fint* count,         \
     MPI_Fint* type, MPI_Fint* comm, MPI_Fint* error),                                          \
    (input, given, given_type, output, count, type, comm, error))                               \
  X(allgatherv, ALLGATHERV,                                                                     \
    (void* input, MPI_Fint* given, MPI_Fint* given_type, void* output, MPI_Fint* counts,        \
     MPI_Fint* places, MPI_Fint* type, MPI_Fint* comm, MPI_Fint* error),                        \
    (input, given, given_type, output, counts, places, type, comm, error))                      \
  X(gather, GATHER,                                                                             \
    (void* input, MPI_Fint* given, MPI_Fint* given_type, void* output, MPI_Fint* count,         \
     MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* error),                          \
    (input, given, given_type, output, count, type, root, comm, error))                         \
  X(scatter, SCATTER,                                                                           \
    (void* input, MPI_Fint* given, MPI_Fint* given_type, void* output, MPI_Fint* count,         \
     MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* error),                          \
    (input, given, given_type, output, count, type, root, comm, error))                         \
  X(alltoall, ALLTOALL,                                                                         \
    (void* input, MPI_Fint* given, MPI_Fint* given_type, void* output, MPI_Fint* count,         \
     MPI_Fint* type, MPI_Fint* comm, MPI_Fint* error),                                          \
    (input, given, given_type, output, count, type, comm, error))
#endif

namespace tutti::preload {

/// A function for each row of the lists: the library's, or where that cannot be loaded the MPI's.
struct Functions {
  // NOLINTBEGIN(readability-identifier-naming): MPI's names
#define TUTTI_ROW(name, parameters, arguments, ...) int(*name) parameters = nullptr;
  TUTTI_PRELOADED_C(TUTTI_ROW)
#undef TUTTI_ROW
#define TUTTI_ROW(name, NAME, parameters, arguments, ...) void(*name##_f) parameters = nullptr;
  TUTTI_PRELOADED_FORTRAN(TUTTI_ROW)
#undef TUTTI_ROW
  // NOLINTEND(readability-identifier-naming)
};

/// The functions of the part behind. The version is compared before anything else.
struct Behind {
  const char* version;  ///< TUTTI_VERSION of its build
  Functions functions;
};
constexpr const char* kBehindSymbol = "tutti_preload";
using BehindFunction = const Behind*() noexcept;

}  // namespace tutti::preload
