# SPDX-License-Identifier: Apache-2.0
"""Collectives for objects of Python, which travel pickled."""

from __future__ import annotations

import pickle
from array import array
from typing import Any

from ._core import Communicator
from ._errors import Error, make

_NONE = -1  # the number of bytes of an object that cannot be pickled


def _pickled(value: Any) -> tuple[bytearray, Exception | None]:
    try:
        return bytearray(pickle.dumps(value)), None
    except Exception as error:  # an object may raise anything
        return bytearray(), error


def _refusal(call: str, rank: int, reason: Exception | None) -> Error:
    """The error that all ranks raise; the rank that has the reason prints it."""
    text = f"{call}: rank {rank} cannot pickle its object"
    if reason is not None:
        text += f": {type(reason).__name__}: {reason}"
    return make("user_code", text, True, reason is not None, True, 2, reason)


def _broadcast_object(self: Communicator, value: Any = None, root: int = 0) -> Any:
    """The object of rank `root`, on every rank; the others need to give none. Collective.

    It travels pickled: unpickling runs code that the root names. Raises UserCodeError on all ranks
    if it cannot be pickled.
    """
    memory, reason = _pickled(value if self.rank == root else None)
    count = array("q", [len(memory) if reason is None else _NONE])
    self.broadcast(count, root)
    if count[0] == _NONE:
        raise _refusal("broadcast_object", root, reason)
    if self.rank != root:
        memory = bytearray(count[0])
    self.broadcast(memory, root)
    return value if self.rank == root else pickle.loads(memory)


def _allgather_object(self: Communicator, value: Any) -> list[Any]:
    """The objects of all ranks, in the order of ranks. Collective.

    They travel pickled: unpickling runs code that other ranks name. Raises UserCodeError on all
    ranks if one cannot be pickled.
    """
    memory, reason = _pickled(value)
    counts = array("q", bytes(8 * self.size))
    self.allgather(array("q", [len(memory) if reason is None else _NONE]), counts)
    if _NONE in counts:
        failed = counts.index(_NONE) if reason is None else self.rank
        raise _refusal("allgather_object", failed, reason)
    everything = bytearray(sum(counts))
    self.allgatherv(memory, everything, list(counts))
    objects, end = [], 0
    for count in counts:
        end += count
        objects.append(pickle.loads(everything[end - count:end]))
    return objects


for _name, _method in (("broadcast_object", _broadcast_object),
                       ("allgather_object", _allgather_object)):
    _method.__name__ = _name
    _method.__qualname__ = f"Communicator.{_name}"
    setattr(Communicator, _name, _method)
