# SPDX-License-Identifier: Apache-2.0
"""Horovod's process sets: the ranks of the job, and sets of them."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Sequence

from ... import Communicator
from ...torch import world
from ._reduction import stand_in
from ._requests import Requests


class ProcessSet:
    """Ranks that make calls together. It can be used after init() or add_process_set() with it."""

    def __init__(self, ranks_or_comm: Any):
        self.process_set_id: Optional[int] = None
        self.ranks: Optional[list[int]] = None
        self.mpi_comm: Any = None
        self._requests: Optional[Requests] = None
        if isinstance(ranks_or_comm, Iterable):
            self.ranks = sorted(ranks_or_comm)
            if any(not isinstance(one, int) for one in self.ranks):
                raise ValueError(f"ProcessSet: expected ranks, which are ints; got {self.ranks}")
        else:
            self.mpi_comm = ranks_or_comm

    def size(self) -> Optional[int]:
        return None if self.process_set_id is None else len(self.ranks or [])

    def rank(self) -> Optional[int]:
        """This rank's number in the set. None if the set is not in use, or does not have it."""
        if self.process_set_id is None or self.ranks is None or rank() not in self.ranks:
            return None
        return self.ranks.index(rank())

    def included(self) -> Optional[bool]:
        return None if self.ranks is None else rank() in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    def _open(self, number: int, ranks: list[int], communicator: Optional[Communicator]) -> None:
        self.process_set_id, self.ranks = number, ranks
        self._requests = None if communicator is None else Requests(communicator, stand_in)

    def _close(self) -> None:
        self.process_set_id = None
        if self._requests is not None:
            self._requests.ranks.close()
        self._requests = None


global_process_set = ProcessSet([])
_sets: dict[int, ProcessSet] = {}
_count = 0


def requests_of(process_set: ProcessSet) -> Requests:
    """The requests of a set. Raises ValueError if the set cannot be used on this rank."""
    if not _sets:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    if process_set.process_set_id is None:
        raise ValueError(f"{process_set}: expected one of hvd.init() or hvd.add_process_set(); it "
                         "is not in use, or was removed")
    if process_set._requests is None:
        raise ValueError(f"{process_set}: rank {rank()} is not in it, and cannot call with it")
    return process_set._requests


def _everyone() -> Communicator:
    return requests_of(global_process_set).ranks


def is_initialized() -> bool:
    return bool(_sets)


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Finds the ranks of the job. A second call changes nothing. Collective.

    comm: ranks of the job, or a communicator of mpi4py; all ranks without it.
    process_sets: sets to add; "dynamic" means none, because sets may be added at any time.
    """
    global _count
    if _sets:
        return
    if comm is None:
        comm = list(range(world().size))
    ranks = (world().create_group(sorted(comm)) if isinstance(comm, Iterable)
             else Communicator.from_mpi(comm))
    global_process_set._open(0, list(range(ranks.size)), ranks)
    _sets[0], _count = global_process_set, 1
    for one in [] if process_sets in (None, "dynamic") else process_sets:
        add_process_set(one)


def shutdown() -> None:
    """Leaves the job; calls under way are given up. init() may follow, on all ranks."""
    for one in _sets.values():
        one._close()
    _sets.clear()


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a set, which may be used from now on. Collective over all ranks, in the set or not.

    Raises ValueError if a set has these ranks, or the ranks give different sets.
    """
    global _count
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    everyone = _everyone()
    if process_set.ranks is None:
        raise NotImplementedError("add_process_set: expected ranks; got a communicator of MPI")
    from ._calls import allgather_object
    given = allgather_object(process_set.ranks, name="add_process_set")
    ranks = process_set.ranks
    for other, theirs in enumerate(given):
        if theirs != given[0]:
            raise ValueError(f"add_process_set: expected the same set of all ranks; rank 0 gives "
                             f"{given[0]}, and rank {other} {theirs}")
    if any(one.ranks == ranks for one in _sets.values()):
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}")
    if len(set(ranks)) != len(ranks) or any(not 0 <= one < everyone.size for one in ranks):
        raise ValueError(f"add_process_set: expected different ranks from 0 to "
                         f"{everyone.size - 1}; got {ranks}")
    process_set._open(_count, ranks,
                      everyone.create_group(ranks) if everyone.rank in ranks else None)
    _sets[_count] = process_set
    _count += 1
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set. Returns False for the set of all ranks, and for one that is not in use."""
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    process_set._close()
    del _sets[number]
    return True


def rank() -> int:
    return _everyone().rank


def size() -> int:
    return _everyone().size


def local_rank() -> int:
    return _everyone().local_rank


def local_size() -> int:
    return _everyone().local_size


def cross_rank() -> int:
    """The number of this rank's node."""
    return _everyone().node


def cross_size() -> int:
    return _everyone().num_nodes
