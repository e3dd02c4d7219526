# SPDX-License-Identifier: Apache-2.0
"""A communication hook for DistributedDataParallel over any backend."""

# No deferred annotations here: torch checks those of a hook.
from typing import Optional

import torch
import torch.distributed as dist

from .. import Communicator, KVStore, create
from ._job import world
from ._work import Reduction


class AllreduceState:
    """The state of the hook: model.register_comm_hook(AllreduceState(), allreduce_hook).

    ranks: the ranks that average; all ranks of the job by default.
    compression: as KVStore.set_gradient_compression takes it, e.g. "2bit,threshold=0.01" or "fp16".
        What it leaves of a gradient is added to the next one. Each bucket is a key of a store.

    Collective.
    """

    def __init__(self, ranks: Optional[Communicator] = None,
                 compression: Optional[str] = None):
        self.ranks = world() if ranks is None else ranks
        self.store: Optional[KVStore] = None
        if compression is not None:
            self.store = create(self.ranks)
            self.store.set_gradient_compression(compression)
        self.buckets: set[str] = set()


def allreduce_hook(state: AllreduceState,
                   bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket over the ranks, while the backward pass goes on."""
    buffer = bucket.buffer()
    is_spread = state.ranks.num_nodes > 1
    if state.store is None:
        pending = state.ranks.allreduce_async(buffer, op="avg")
        return Reduction([pending], buffer, is_spread).get_future()
    key = f"bucket {bucket.index()} of {buffer.numel()} elements"  # torch forms them anew once
    if key not in state.buckets:
        state.store.init(key, torch.zeros_like(buffer))
        state.buckets.add(key)
    pending = state.store.pushpull_async(key, buffer, buffer)
    average = Reduction([pending], buffer, is_spread).get_future()
    return average.then(lambda done: done.value().div_(state.ranks.size))
