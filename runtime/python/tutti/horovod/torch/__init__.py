# SPDX-License-Identifier: Apache-2.0
"""Horovod's names for PyTorch, over the ranks of a job that mpirun has started.

    import tutti.horovod.torch as hvd

    hvd.init()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

Calls are matched by their names, or by their order where they have none, as Horovod does. There is
no thread beside the program: calls that were begun take place when all ranks of their process set
wait, in synchronize(), in poll(), in step() or in a call that blocks. Tensors lie in the host's
memory.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ._calls import (
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_object,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    poll,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
    synchronize,
)
from ._optimizer import DistributedOptimizer
from ._reduction import Adasum, Average, Compression, Max, Min, Product, Sum
from ._requests import HorovodInternalError
from ._sets import (
    ProcessSet,
    add_process_set,
    cross_rank,
    cross_size,
    global_process_set,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    shutdown,
    size,
)
from ._spread import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "Max",
    "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather", "allgather_async",
    "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async",
    "broadcast_async_", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters",
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allgather_async",
    "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "init",
    "is_initialized", "join", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "poll", "rank", "reducescatter", "reducescatter_async",
    "remove_process_set", "rocm_built", "shutdown", "size", "sparse_allreduce_async",
    "synchronize",
]

_INSTEAD = {
    "SyncBatchNorm": "take torch.nn.SyncBatchNorm, with torch.distributed over NCCL",
    "elastic": "launch.sh --max-restarts N goes on from the last checkpoint; see scripts/mpirun",
    "start_timeline": "set TUTTI_TRACE=trace.json; it gets what all ranks did, for ui.perfetto.dev",
    "stop_timeline": "set TUTTI_TRACE=trace.json; it gets what all ranks did, for ui.perfetto.dev",
}


def __getattr__(name: str) -> NoReturn:
    if name in _INSTEAD:
        raise AttributeError(f"tutti.horovod.torch has no {name}: {_INSTEAD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _says(answer: bool, name: str) -> Any:
    def built(verbose: bool = False) -> bool:
        return answer
    built.__name__ = built.__qualname__ = name
    built.__doc__ = f"{answer}: what Horovod asks of its build."
    return built


mpi_built, mpi_enabled = _says(True, "mpi_built"), _says(True, "mpi_enabled")
mpi_threads_supported = _says(False, "mpi_threads_supported")
gloo_built, gloo_enabled = _says(False, "gloo_built"), _says(False, "gloo_enabled")
nccl_built, ccl_built = _says(False, "nccl_built"), _says(False, "ccl_built")
cuda_built, rocm_built = _says(False, "cuda_built"), _says(False, "rocm_built")
ddl_built = _says(False, "ddl_built")
