# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks, which take place when somebody waits for them.

A message of the library is taken when both ranks are in it. So that ranks which all begin with an
isend do not wait for each other, those that were begun take place in an order that is common to all
ranks: by pair of ranks, from the lower rank to the higher one first.
"""

from __future__ import annotations

import datetime
import threading
from typing import Any, Callable

import torch
import torch.distributed as dist

from .. import Communicator


class Messages:
    """What one rank of a group has begun."""

    def __init__(self, ranks: Communicator, memory_of: Callable[[torch.Tensor], Any]):
        self._ranks = ranks
        self._memory_of = memory_of
        self._begun: list[Message] = []
        self._lock = threading.RLock()

    def add(self, message: Message) -> None:
        with self._lock:
            self._begun.append(message)

    def carry_out(self, awaited: Message) -> None:
        with self._lock:
            while not awaited.is_done:
                first = min(self._begun, key=self._place)
                self._begun.remove(first)
                first.is_done = True
                memory = self._memory_of(first.tensor)
                if first.is_send:
                    self._ranks.send(memory, first.rank)
                else:
                    self._ranks.receive(memory, first.rank)

    def _place(self, message: Message) -> tuple[int, int, bool]:
        own = self._ranks.rank
        is_upward = (message.rank > own) == message.is_send
        return min(own, message.rank), max(own, message.rank), not is_upward


class Message(dist._Work):
    """One of them."""

    def __init__(self, messages: Messages, tensor: torch.Tensor, rank: int, is_send: bool):
        super().__init__()
        self.tensor = tensor.contiguous() if is_send else tensor
        self.rank = rank
        self.is_send = is_send
        self.is_done = False
        self._messages = messages
        messages.add(self)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        self._messages.carry_out(self)
        return True

    def is_completed(self) -> bool:
        return self.is_done

    def is_success(self) -> bool:
        return self.is_done

    def source_rank(self) -> int:
        return self.rank

    def result(self) -> Any:
        return [self.tensor]
