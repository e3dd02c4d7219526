# SPDX-License-Identifier: Apache-2.0
"""Pushes of gradients that go on during the backward pass: errors of the step that ends them."""

from __future__ import annotations

from typing import Optional, Sequence

import torch

from .. import Error, InvalidArgumentError, KVStore, Pending
from .._errors import make


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
            "put all passes but the last under no_push(), or create it with overlap=False")
    return make(error.code, text, error.recoverable, error.reporter, True, error.exit_code, error)
