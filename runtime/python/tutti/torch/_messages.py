# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks, which take place when the program waits for them.

A message of the library is received when both ranks are in its call. So that ranks which all begin
with an isend do not wait for each other, messages that were begun take place in an order that is
common to all ranks: by pair of ranks, from the lower rank to the higher one first.

    tag 0      the elements
    tag t > 0  a header of 37 bytes of text, "t bytes", and the bytes

A receiver that finds another tag than its own keeps that message for later.
"""

from __future__ import annotations

import datetime
import threading
from collections import defaultdict, deque
from typing import Any, Callable

import numpy as np
import torch
import torch.distributed as dist

from .. import Communicator, Error, MismatchError
from ._work import carry_out_deferred

_HEADER = 37  # bytes; few messages without a tag have so many, so that most mistakes are noticed


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


class Messages:
    """The messages that one rank of a group has begun."""

    def __init__(self, ranks: Communicator, memory_of: Callable[[torch.Tensor], Any]):
        self._ranks = ranks
        self._memory_of = memory_of
        self._begun: list[Message] = []
        self._kept: dict[tuple[int, int], deque[Any]] = defaultdict(deque)  # by rank and tag
        self._lock = threading.RLock()

    def add(self, message: Message) -> None:
        with self._lock:
            self._begun.append(message)

    def carry_out(self, awaited: Message) -> None:
        carry_out_deferred()
        with self._lock:
            while not awaited.is_done:
                first = min(self._begun, key=self._place)
                self._begun.remove(first)
                first.is_done = True
                try:
                    self._move(first)
                except Error as error:
                    first.error = error  # its own wait() raises it
                except BaseException as error:
                    first.error = error
                    raise
        if awaited.error is not None:
            raise awaited.error

    def _move(self, message: Message) -> None:
        memory = self._memory_of(message.tensor)
        if message.tag != 0:
            (self._send if message.is_send else self._receive)(message)
        elif message.is_send:
            self._ranks.send(memory, message.rank)
        else:
            self._ranks.receive(memory, message.rank)

    def _send(self, message: Message) -> None:
        memory = _bytes_of(message.tensor)
        header = f"{message.tag} {len(memory)}".encode().ljust(_HEADER)
        self._ranks.send(np.frombuffer(header, np.uint8), message.rank)
        if len(memory) > 0:
            self._ranks.send(memory, message.rank)

    def _receive(self, message: Message) -> None:
        memory = _bytes_of(message.tensor)
        kept = self._kept[message.rank, message.tag]
        while not kept:
            tag, count = self._next_header(message.rank)
            is_awaited = tag == message.tag and count == len(memory)
            taken = memory if is_awaited else torch.empty(count, dtype=torch.uint8)
            if count > 0:
                self._ranks.receive(taken, message.rank)
            if is_awaited:
                return
            self._kept[message.rank, tag].append(taken)
        taken = kept.popleft()
        if len(taken) != len(memory):
            raise MismatchError(
                f"recv: expected {len(memory)} bytes from rank {message.rank} with tag "
                f"{message.tag}; got {len(taken)}; give both sides tensors of one size")
        memory.copy_(taken)

    def _next_header(self, rank: int) -> tuple[int, int]:
        header = np.empty(_HEADER, np.uint8)
        self._ranks.receive(header, rank)
        tag, count = header.tobytes().split()
        return int(tag), int(count)

    def _place(self, message: Message) -> tuple[int, int, bool]:
        own = self._ranks.rank
        is_upward = (message.rank > own) == message.is_send
        return min(own, message.rank), max(own, message.rank), not is_upward


class Message(dist._Work):
    """A message that was begun, for torch's Work."""

    def __init__(self, messages: Messages, tensor: torch.Tensor, rank: int, tag: int,
                 is_send: bool):
        super().__init__()
        self.tag = tag
        self.tensor = tensor
        self.rank = rank
        self.is_send = is_send
        self.is_done = False
        self.error: BaseException | None = None
        self._messages = messages
        messages.add(self)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        self._messages.carry_out(self)
        return True

    def is_completed(self) -> bool:
        return self.is_done

    def is_success(self) -> bool:
        return self.is_done and self.error is None

    def source_rank(self) -> int:
        return self.rank

    def result(self) -> Any:
        return [self.tensor]
