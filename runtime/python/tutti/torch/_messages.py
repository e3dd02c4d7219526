# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks, which take place when the program waits for them.

A message of the library takes place when both ranks are in its call. So two ranks that wait first
tell each other which messages between them they have begun, and then carry out those that both
have: the lower rank's first, those of each tag in the order of their sender. Where both wait, and
have begun none alike, what they have begun to send is sent, and kept for later. Where there is
nothing to send, they raise.

On one node a rank that waits meets whichever of its partners comes first, and a rank that has begun
messages and comes to a collective meets them until they have come to it, too. On several nodes it
meets them in the order of ranks.
"""

from __future__ import annotations

import datetime
import threading
from collections import defaultdict, deque
from typing import Any, Callable, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from .. import Communicator, Error, MismatchError
from ._work import Calls, carry_out_deferred

_MOST = 32  # messages that a rank tells of at a time
_NOBODY = -1


class _Told(NamedTuple):
    """What a rank tells of a message that it has begun."""

    is_send: bool
    tag: int
    size: int  # in bytes


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _pairs(lower: list[_Told], higher: list[_Told]) -> list[tuple[int, int]]:
    """Which of two ranks' messages are one, in the order in which they are carried out."""
    found = []
    left = dict(enumerate(higher))
    for is_send in (True, False):
        for index, one in enumerate(lower):
            if one.is_send is is_send:
                other = next((place for place, two in left.items()
                              if two.is_send is not is_send and two.tag == one.tag), None)
                if other is not None:
                    del left[other]
                    found.append((index, other))
    return found


class Messages:
    """The messages that one rank of a group has begun."""

    def __init__(self, ranks: Communicator, calls: Calls,
                 memory_of: Callable[[torch.Tensor], Any]):
        self._ranks = ranks
        self._calls = calls
        self._memory_of = memory_of
        self._begun: dict[int, list[Message]] = defaultdict(list)  # by the other rank
        self._kept: dict[tuple[int, int], deque[torch.Tensor]] = defaultdict(deque)  # and by tag
        self._is_one_node = ranks.num_nodes == 1
        self._added: dict[int, int] = defaultdict(int)  # how many were begun, by the other rank
        self._told: dict[int, tuple[int, bool]] = {}  # what it knows of that, and of this rank
        self.has_begun = False  # and not carried out
        self._lock = threading.RLock()

    def add(self, message: Message) -> None:
        with self._lock:
            self._begun[message.rank].append(message)
            self._added[message.rank] += 1
            self.has_begun = True

    def carry_out(self, awaited: Message) -> None:
        carry_out_deferred(self._calls)
        with self._lock:
            while not awaited.is_done:
                for other in self._partners():
                    self._take_kept(other)
                if awaited.is_done:
                    return
                if self._is_one_node:
                    self._meet_any(awaited.rank)
                    continue
                for other in self._partners():
                    if not awaited.is_done:
                        self._meet(other, other == awaited.rank)

    def before_collective(self) -> None:
        """Carries out what other ranks wait for, until they have come to the collective, too."""
        with self._lock:
            while self._is_one_node and self._partners() and self._meet_any(_NOBODY):
                pass

    def _partners(self) -> list[int]:
        found = sorted(rank for rank, begun in self._begun.items() if begun)
        self.has_begun = bool(found)
        return found

    def _meet_any(self, awaited: int) -> bool:
        """Meets those with which this rank has begun messages that come first. False if all have
        come to the next collective instead, and there is no rank that this one waits for."""
        met = self._ranks._meet(
            [(other, self._told.get(other) != (self._added[other], other == awaited))
             for other in self._partners()], awaited)
        error: Error | None = None
        for other in met:  # each of them waits for this rank
            try:
                self._meet(other, other == awaited)
            except MismatchError as mismatch:
                error = mismatch
        if error is not None:
            raise error
        return bool(met)

    def _meet(self, other: int, waits: bool) -> None:
        """Carries out messages with a rank, which meets this one at the same time."""
        begun = self._begun[other][:_MOST]
        own = [_Told(one.is_send, one.tag, one.size) for one in begun]
        self._told.pop(other, None)
        they_wait, theirs = self._exchange(other, waits, own)
        if self._ranks.rank < other:
            pairs = _pairs(own, theirs)
        else:
            pairs = [(index, place) for place, index in _pairs(theirs, own)]
        for index, place in pairs:
            self._carry_out_one(begun[index], theirs[place])
        if not pairs and waits and they_wait:
            self._keep_all(other, begun, theirs)
        elif not pairs:
            self._told[other] = (self._added[other], waits)  # no reason to meet again

    def _exchange(self, other: int, waits: bool, own: list[_Told]) -> tuple[bool, list[_Told]]:
        told = np.zeros(2 + 3 * _MOST, np.int64)
        told[0], told[1] = waits, len(own)
        told[2:2 + 3 * len(own)] = np.array(own, np.int64).reshape(-1)
        theirs = np.empty_like(told)
        if self._ranks.rank < other:
            self._ranks.send(told, other)
        self._ranks.receive(theirs, other)
        if self._ranks.rank > other:
            self._ranks.send(told, other)
        they_wait, count, *numbers = theirs.tolist()
        return bool(they_wait), [_Told(bool(is_send), tag, size) for is_send, tag, size
                                 in zip(*[iter(numbers[:3 * count])] * 3)]

    def _carry_out_one(self, message: Message, theirs: _Told) -> None:
        self._begun[message.rank].remove(message)
        message.is_done = True
        try:
            self._require_size(message, theirs.size)
            memory = (self._memory_of(message.tensor) if message.tag == 0
                      else _bytes_of(message.tensor))
            if message.size > 0:
                move = self._ranks.send if message.is_send else self._ranks.receive
                move(memory, message.rank)
        except Error as error:
            message.error = error  # its own wait() raises it
        except BaseException as error:
            message.error = error
            raise

    def _require_size(self, message: Message, size: int) -> None:
        if message.size != size:
            call, word = ("send", "to") if message.is_send else ("recv", "from")
            raise MismatchError(
                f"{call}: expected {message.size} bytes {word} rank {message.rank} with tag "
                f"{message.tag}; got {size}; give both sides tensors of one size")

    def _keep_all(self, other: int, begun: list[Message], theirs: list[_Told]) -> None:
        """Sends what has been begun, and keeps what comes, so that whoever waits for its own
        message to be received goes on."""
        to_send = [one for one in begun if one.is_send]
        to_keep = [one for one in theirs if one.is_send]
        if not to_send and not to_keep:
            raise MismatchError(
                f"recv: ranks {self._ranks.rank} and {other} wait for messages of each other, with "
                f"the tags {[one.tag for one in theirs]} and {[one.tag for one in begun]}, and "
                "have begun to send none of them")
        is_first = self._ranks.rank < other
        for is_turn_to_send in (is_first, not is_first):
            if is_turn_to_send:
                for message in to_send:
                    self._begun[other].remove(message)
                    message.is_done = True
                    if message.size > 0:
                        self._ranks.send(_bytes_of(message.tensor), other)
            else:
                for one in to_keep:
                    taken = torch.empty(one.size, dtype=torch.uint8)
                    if one.size > 0:
                        self._ranks.receive(taken, other)
                    self._kept[other, one.tag].append(taken)

    def _take_kept(self, other: int) -> None:
        for message in list(self._begun[other]):
            kept = self._kept[other, message.tag]
            if message.is_send or not kept:
                continue
            taken = kept.popleft()
            self._begun[other].remove(message)
            message.is_done = True
            try:
                self._require_size(message, len(taken))
                _bytes_of(message.tensor).copy_(taken)
            except Error as error:
                message.error = error


class Message(dist._Work):
    """A message that was begun, for torch's Work."""

    def __init__(self, messages: Messages, tensor: torch.Tensor, rank: int, tag: int,
                 is_send: bool):
        super().__init__()
        self.tag = tag
        self.tensor = tensor
        self.size = tensor.numel() * tensor.element_size()
        self.rank = rank
        self.is_send = is_send
        self.is_done = False
        self.error: BaseException | None = None
        self._messages = messages
        messages.add(self)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        self._messages.carry_out(self)
        if self.error is not None:
            raise self.error
        return True

    def is_completed(self) -> bool:
        """Waits for the message: a program that asks until it is there does nothing else for it."""
        self._messages.carry_out(self)
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.error is None

    def exception(self) -> BaseException | None:
        self.is_completed()
        return self.error

    def source_rank(self) -> int:
        return self.rank

    def result(self) -> Any:
        return [self.tensor]
