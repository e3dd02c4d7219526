# SPDX-License-Identifier: Apache-2.0
"""Pushes of gradients that go on during the backward pass: errors of the step that ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

import torch

from .. import Error, InvalidArgumentError, KVStore, Pending
from .._errors import make

if TYPE_CHECKING:
    from ._optimizer import Optimizer


def error_of(pending: Pending) -> Optional[Error]:
    """The error of a push, once it is complete; None if it succeeded."""
    try:
        pending.wait()
    except Error as error:
        return error
    return None


def refuse_missing(store: KVStore, keys: Sequence[int | str],
                   versions: Sequence[Optional[int]]) -> list[Pending]:
    """Makes pushes that fail on all ranks, for the parameters that this rank has not pushed: ranks
    that have pushed them would wait for it."""
    nothing = torch.empty(0)
    return [store.push_async(key, nothing, priority=-index)
            for index, (key, version) in enumerate(zip(keys, versions)) if version is None]


def error_of_step(error: Error, pushed: int, of_all: int) -> Error:
    """The error of all ranks where one of them lacks a gradient; any other error as it is."""
    if not isinstance(error, InvalidArgumentError) or not error.agreed:
        return error
    text = ("Optimizer.step: expected one backward pass, in which every parameter gets a gradient, "
            f"{of_all} in all; this rank got {pushed}, and a rank none of parameter {error.key}; "
            "put all passes but the last under no_push(), or create it with overlap=False or "
            "find_unused_parameters=True")
    return make(error.code, text, error.recoverable, error.reporter, True, error.exit_code, error)


def end_pushes(optimizer: Optimizer) -> None:
    """Awaits the pushes of a step. Raises on all ranks if one has not pushed each gradient once, or
    has changed one since."""
    keys = optimizer._keys
    if optimizer._finds_unused:
        for index, version in enumerate(optimizer._versions):
            if version is None:
                optimizer._push(index)
    pushed = list(optimizer._pending)
    optimizer._pending.clear()
    versions, optimizer._versions = optimizer._versions, [None] * len(keys)
    pushed += refuse_missing(optimizer.store, keys, versions)
    errors = [error for error in map(error_of, pushed) if error is not None]
    if errors:
        raise error_of_step(errors[0], len(keys) - versions.count(None), len(keys))
    if len(pushed) != len(keys):
        raise InvalidArgumentError(
            f"Optimizer.step: expected one backward pass, so {len(keys)} gradients; got "
            f"{len(pushed)}; put all passes but the last under no_push(), or create it with "
            "overlap=False")
    for key, param, gradient, version in zip(keys, optimizer._params, optimizer._gradients,
                                             versions):
        if param.grad is not gradient or gradient._version != version:
            raise InvalidArgumentError(
                f"Optimizer.step: the gradient of parameter {key} was changed after its push, "
                "which went on meanwhile; take the option clip_global_norm or loss_scale, or "
                "create it with overlap=False; for the norm alone take "
                "torch.nn.utils.get_total_norm")
