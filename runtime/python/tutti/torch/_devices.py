# SPDX-License-Identifier: Apache-2.0
"""Groups that leave tensors on some devices to another backend:
init_process_group("cpu:tutti,cuda:nccl"). The other backend has a group of its own, which the
first call with such a tensor makes."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

_COLLECTIVES = (
    "reduce", "broadcast", "gather", "scatter", "alltoall", "alltoall_base", "allgather",
    "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced", "reduce_scatter",
    "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "allreduce_coalesced", "send",
    "recv", "recv_anysource", "all_gather_single", "all_gather_single_coalesced",
    "reduce_scatter_single", "reduce_scatter_single_coalesced", "all_to_all_single")


def backends_of(group: dist.ProcessGroup) -> dict[str, str]:
    """The group's backends by device, such as "cuda": "nccl". Empty until torch has registered the
    group."""
    told = str(dist.distributed_c10d._world.pg_backend_config.get(group, ""))
    return dict(pair.split(":") for pair in told.split(",") if pair.count(":") == 1)


def group_elsewhere(group: Any, tensor: Any) -> Optional[dist.ProcessGroup]:
    """The group of the other backend, if that takes this tensor. Collective at the first call for
    a device."""
    if tensor is None or tensor.device.type == "cpu":
        return None
    kind = tensor.device.type
    if kind not in group.elsewhere:
        backend = backends_of(group).get(kind, "tutti")
        group.elsewhere[kind] = None if backend == "tutti" else dist.new_group(
            dist.get_process_group_ranks(group), backend=backend, use_local_synchronization=True)
    found: Optional[dist.ProcessGroup] = group.elsewhere[kind]
    return found


def _first_tensor(given: Any) -> Optional[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        return given
    if isinstance(given, (list, tuple)):
        for one in given:
            found = _first_tensor(one)
            if found is not None:
                return found
    return None


def _by_device(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *given: Any, **options: Any) -> Any:
        other = group_elsewhere(self, _first_tensor(given))
        if other is not None:
            return getattr(other, method.__name__)(*given, **options)
        return method(self, *given, **options)
    return call


def divide_by_device(group_class: Any) -> None:
    """Makes the class's collectives choose the group whose backend takes their tensors."""
    for name in _COLLECTIVES:
        setattr(group_class, name, _by_device(getattr(group_class, name)))
