# SPDX-License-Identifier: Apache-2.0
"""Broadcasts of one rank's parameters and optimizer states to all ranks."""

from __future__ import annotations

from typing import Any

import torch

from ...torch import Optimizer
from ._calls import broadcast_async_, broadcast_object, synchronize
from ._sets import rank


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Gives the root's values to all ranks. Collective over all ranks.

    params: model.state_dict(), or a list of parameters or of named parameters.
    """
    if isinstance(params, dict):
        named = sorted(params.items())
    elif isinstance(params, list) or hasattr(params, "__next__"):
        named = [one if isinstance(one, tuple) else (None, one) for one in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    copies = []
    handles = []
    for name, value in named:
        if not isinstance(value, torch.Tensor):
            continue  # such as the extra state of a module
        plain = value.detach().contiguous()
        if plain.data_ptr() != value.data_ptr():
            copies.append((value.detach(), plain))
        handles.append(broadcast_async_(plain, root_rank, name))
    for handle in handles:
        synchronize(handle)
    for value, plain in copies:
        value.copy_(plain)


def _described(state: Any, tensors: list[torch.Tensor]) -> Any:
    """The state with a _Place in place of each tensor, which is added to `tensors`."""
    if isinstance(state, torch.Tensor):
        tensors.append(state)
        return _Place(len(tensors) - 1, state)
    if isinstance(state, dict):
        return {key: _described(value, tensors) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_described(value, tensors) for value in state)
    return state


def _filled(state: Any, tensors: dict[int, torch.Tensor]) -> Any:
    if isinstance(state, _Place):
        return tensors.setdefault(state.index, torch.empty(state.shape, dtype=state.dtype))
    if isinstance(state, dict):
        return {key: _filled(value, tensors) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_filled(value, tensors) for value in state)
    return state


class _Place:
    def __init__(self, index: int, tensor: torch.Tensor):
        self.index, self.shape, self.dtype = index, tuple(tensor.shape), tensor.dtype


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int,
                              model: Any = None) -> None:
    """Gives the root's states and options to all ranks. Collective over all ranks.

    States that the root's optimizer does not have yet, no rank has afterwards: no step makes them.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if isinstance(optimizer, Optimizer):
        return  # its states are equal on all ranks from the start
    tensors: list[torch.Tensor] = []
    own = _described(optimizer.state_dict(), tensors) if rank() == root_rank else None
    told = broadcast_object(own, root_rank, "optimizer.state")
    if rank() != root_rank:
        made: dict[int, torch.Tensor] = {}
        filled = _filled(told, made)
        tensors = [made[index] for index in sorted(made)]
    broadcast_parameters([(f"optimizer.state.{index}", tensor)
                          for index, tensor in enumerate(tensors)], root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(filled)
