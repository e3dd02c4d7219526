# SPDX-License-Identifier: Apache-2.0
"""PyTorch jobs of mpirun: the backend "tutti" of torch.distributed, hooks, and optimizers.

    import torch.distributed as dist
    import tutti.torch

    dist.init_process_group("tutti")     # rank, size and address come from mpirun
    model = torch.nn.parallel.DistributedDataParallel(model)

In a job of mpirun, the import finds the job's ranks, so every rank imports it. It sets RANK,
WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT where they are not set.
"""

from __future__ import annotations

import torch.distributed as _dist

from ._buffers import broadcast_buffers
from ._group import ProcessGroup
from ._hooks import AllreduceState, allreduce_hook
from ._job import create_group as _create_group
from ._job import find_job as _find_job
from ._job import world
from ._optimizer import Optimizer
from ._optimizers import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RMSprop
from ._sampler import Sampler

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "AllreduceState", "NAdam",
           "Optimizer", "ProcessGroup", "RMSprop", "Sampler", "allreduce_hook",
           "broadcast_buffers", "world"]

if not hasattr(_dist.Backend, "TUTTI"):
    _dist.Backend.register_backend("tutti", _create_group, extended_api=True, devices=["cpu"])
    # Where torch has a flight recorder, it asks groups for what those in Python do not have.
    _unrecorded: set[str] = getattr(_dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    _unrecorded.add("tutti")
    _find_job()
