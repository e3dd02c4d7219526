# SPDX-License-Identifier: Apache-2.0
"""The requests that the ranks of a process set have begun, and how ranks find those that all have.

A rank that waits takes part in rounds. In a round every rank of the set tells the names of its open
requests; those that all ranks have are carried out, in the order of the first of them. Where all
lists are equal, which a number of 7 bytes tells, nothing else is sent. A rank that has joined takes
part in all rounds, with zeros, until all have joined.
"""

from __future__ import annotations

import hashlib
import marshal
import threading
from typing import Any, Callable, Optional

import numpy as np

from ... import Communicator, Error

# The state of a rank in a round; or else the number of rounds since it joined.
_WAITS, _POLLS = -1, -2


class HorovodInternalError(Error, RuntimeError):
    """A call failed on every rank of its process set, with the same text."""


def internal_error(text: str, cause: Optional[Error] = None, reporter: bool = True,
                   agreed: bool = True) -> HorovodInternalError:
    """A HorovodInternalError, with the properties of the library's error if that is the cause."""
    error = HorovodInternalError(text)
    error.reporter, error.agreed = reporter, agreed
    if cause is not None:
        error.code, error.recoverable = cause.code, cause.recoverable
        error.reporter, error.agreed = cause.reporter, cause.agreed
        error.exit_code, error.__cause__ = cause.exit_code, cause
    return error


class Request:
    """One call of this rank.

    alike: the arguments that are equal on all ranks, beginning with the kind of call.
    own: the arguments that each rank chooses, such as its number of rows.
    start: carries the call out, given all ranks' own arguments; or begins it, and returns a
        function that ends it.
    """

    def __init__(self, name: str, alike: tuple[Any, ...], own: tuple[Any, ...],
                 start: Callable[[Communicator, list[Any]], Optional[Callable[[], None]]]):
        self.described = (name, alike, own)
        self.start = start
        self.result: Any = None
        self.is_done = False
        self.was_asked = False  # by poll()
        self.error: Optional[Error] = None
        self.requests: Optional[Requests] = None

    @property
    def name(self) -> str:
        return self.described[0]

    def end(self, error: Optional[Error] = None) -> None:
        self.error = error
        self.is_done = True


class Requests:
    """The open requests of one process set. stand_in: makes a rank's request in answer to others'
    once it has joined."""

    def __init__(self, ranks: Communicator, stand_in: Callable[[Any], Request]):
        self.ranks = ranks
        self._stand_in = stand_in
        self._open: dict[str, Request] = {}
        self._unnamed: dict[str, int] = {}
        self._joins = 0
        self._lock = threading.RLock()
        self._listed: list[Any] = []
        self._packed = marshal.dumps(self._listed, 2)
        self._digest = self._digest_of(self._packed)

    def name_of(self, kind: str, name: Optional[str]) -> str:
        if name is not None:
            return f"{kind}.{name}"
        self._unnamed[kind] = self._unnamed.get(kind, 0) + 1
        return f"{kind}.noname.{self._joins}.{self._unnamed[kind]}"

    def add(self, request: Request) -> Request:
        with self._lock:
            if request.name in self._open:
                raise ValueError(
                    f"{request.name}: expected a name that no call under way has; two of this "
                    "rank would have it; wait for the first, or give the second another name")
            self._open[request.name] = request
            request.requests = self
        return request

    def wait(self, request: Request) -> Any:
        """Waits for a request. Raises HorovodInternalError, on all ranks of the set where their
        arguments are not alike."""
        with self._lock:
            while not request.is_done:
                self._round(_WAITS)
        if request.error is not None:
            raise request.error
        return request.result

    def poll(self, request: Request) -> bool:
        """True if the request is done. The first poll of a request returns at once; later ones take
        part in a round, so that a program that polls again and again gets on."""
        with self._lock:
            if not request.is_done and request.was_asked:
                self._round(_POLLS)
            request.was_asked = True
        return request.is_done

    def join(self) -> int:
        """Takes part in rounds, with zeros, until all ranks have joined; returns the last one."""
        with self._lock:
            rounds, last = 0, None
            while last is None:
                last = self._round(rounds)
                rounds += 1
            self._joins += 1
            self._unnamed.clear()
            return last

    # --- a round ---------------------------------------------------------------------------------

    @staticmethod
    def _digest_of(packed: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(packed, digest_size=7).digest(), "little")

    def _round(self, state: int) -> Optional[int]:
        """Carries out a round. Returns the last rank that joined, if all have."""
        listed = [request.described for request in self._open.values()]
        if listed != self._listed:
            self._listed = listed
            self._packed = marshal.dumps(listed, 2)  # of this version, equal lists are equal bytes
            self._digest = self._digest_of(self._packed)
        told = np.array([self._digest, len(self._packed), state], np.int64)
        of_all = np.empty((self.ranks.size, 3), np.int64)
        try:
            self.ranks.allgather(told, of_all)
            joined = [int(one) for one in of_all[:, 2]]
            if max(joined) < 0 and np.all(of_all[:, 0] == self._digest):
                lists = [listed] * self.ranks.size
            else:
                lists = self._exchange([int(count) for count in of_all[:, 1]])
        except Error as error:
            failed = internal_error(str(error), error)
            self._end_all(failed)
            raise failed from error
        if min(joined) >= 0:
            soonest = min(joined)
            return max(rank for rank, rounds in enumerate(joined) if rounds == soonest)
        self._carry_out([None if rounds >= 0 else {one[0]: one for one in of_rank}
                         for rounds, of_rank in zip(joined, lists)], _POLLS in joined, state >= 0)
        return None

    def _exchange(self, counts: list[int]) -> list[Any]:
        everything = np.empty(sum(counts), np.uint8)
        self.ranks.allgatherv(np.frombuffer(self._packed, np.uint8), everything, counts)
        ends = np.cumsum(counts).tolist()
        return [marshal.loads(everything[end - count:end].tobytes())
                for end, count in zip(ends, counts)]

    def _carry_out(self, lists: list[Any], somebody_polls: bool, has_joined: bool) -> None:
        """Carries out the requests that all ranks have.

        lists: the open requests of each rank by name; None for a rank that has joined.
        """
        present = [of_rank for of_rank in lists if of_rank is not None]
        chosen = [name for name in present[0] if all(name in of_rank for of_rank in present)]
        if not chosen and not somebody_polls:
            error = internal_error(self._none_in_common(lists), reporter=self.ranks.rank == 0)
            self._end_all(error)
            if has_joined:
                raise error
        under_way: list[tuple[Request, Callable[[], None]]] = []
        for name in chosen:
            request = self._open.pop(name, None) or self._stand_in(present[0][name])
            described = [None if of_rank is None else of_rank[name] for of_rank in lists]
            text = _difference(described)
            if text is not None:
                request.end(internal_error(text, reporter=self.ranks.rank == 0))
                continue
            if request.described[1][0] != "allreduce":
                _finish(under_way)
            try:
                end = request.start(self.ranks, [None if one is None else one[2]
                                                 for one in described])
                if end is None:
                    request.end()
                else:
                    under_way.append((request, end))
            except Error as error:
                request.end(internal_error(str(error), error))
        _finish(under_way)

    def _none_in_common(self, lists: list[Any]) -> str:
        told = [f"rank {rank} has joined" if of_rank is None else
                f"rank {rank} for {', '.join(list(of_rank)[:3]) or 'nothing'}"
                + (f" and {len(of_rank) - 3} others" if len(of_rank) > 3 else "")
                for rank, of_rank in enumerate(lists)]
        return (f"synchronize: every rank waits, and no call is made by all of them: "
                f"{'; '.join(told)}; let all ranks make the same calls, with the same names")

    def _end_all(self, error: Error) -> None:
        for request in self._open.values():
            request.end(error)
        self._open.clear()


def _finish(under_way: list[tuple[Request, Callable[[], None]]]) -> None:
    for request, end in under_way:
        try:
            end()
            request.end()
        except Error as error:
            request.end(internal_error(str(error), error))
    under_way.clear()


def _difference(described: list[Any]) -> Optional[str]:
    """The reason why the ranks cannot make this call together; None if they can."""
    found = [(rank, one) for rank, one in enumerate(described) if one is not None]
    first, name = found[0]
    for rank, one in found:
        if one[1] != name[1]:
            return (f"{name[0]}: expected the same call of all ranks; rank {first} gives "
                    f"{_words(name[1])}, and rank {rank} {_words(one[1])}; nothing was changed")
    if len(found) < len(described) and name[1][:2] not in (("allreduce", "sum"),
                                                          ("allreduce", "avg")):
        joined = [rank for rank, one in enumerate(described) if one is None]
        return (f"{name[0]}: rank {joined[0]} has joined, and only allreduce with Sum or Average "
                "goes on then")
    return None


def _words(alike: tuple[Any, ...]) -> str:
    return " ".join(str(one) for one in alike)
