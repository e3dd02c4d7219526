# SPDX-License-Identifier: Apache-2.0
"""monitored_barrier of torch.distributed. Its ranks meet in torch's store, so that one that does
not come in time is named, and the group goes on."""

from __future__ import annotations

import contextlib
import datetime
import time
from typing import Any, NoReturn

from .. import TimeoutError

_DEFAULT_S = 300.0


class MonitoredBarrier:
    """The barriers of one rank of a group, in whose store no other group writes."""

    def __init__(self, store: Any, rank: int, size: int):
        self._store = store
        self._rank = rank
        self._size = size
        self._count = 0

    def meet(self, timeout: datetime.timedelta | float | None, wait_all_ranks: bool) -> None:
        """Raises on rank 0 who is missing: the first one, or all of them. The words are gloo's."""
        self._count += 1
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        end = time.monotonic() + (_DEFAULT_S if timeout is None else timeout)
        if self._rank != 0:
            self._follow(end)
            return
        missing = []
        for rank in range(1, self._size):
            if not wait_all_ranks and time.monotonic() >= end:
                self._fail(f"Rank 0 timed out in monitoredBarrier after {self._ms(timeout)} ms")
            if not self._is_there(str(rank), end):
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            ranks = ("Rank " if len(missing) == 1 else "Ranks ") + ", ".join(map(str, missing))
            self._fail(f"{ranks} failed to pass monitoredBarrier in {self._ms(timeout)} ms")
        self._store.set(self._key("go"), "all")
        for name in ("go", *map(str, range(1, self._size))):
            with contextlib.suppress(RuntimeError):  # a store that deletes nothing
                self._store.delete_key(self._key(name, before=1))

    def _follow(self, end: float) -> None:
        self._store.set(self._key(str(self._rank)), "here")
        if not self._is_there("go", end) or self._store.get(self._key("go")) != b"all":
            raise TimeoutError(
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors "
                "while waiting for send/recv from rank 0; rank 0 says which rank is missing")

    def _fail(self, text: str) -> NoReturn:
        self._store.set(self._key("go"), "failed")
        raise TimeoutError(f"[Rank 0]: {text}")

    def _is_there(self, name: str, end: float) -> bool:
        left = max(0.001, end - time.monotonic())  # to a store 0 is no limit
        try:
            self._store.wait([self._key(name)], datetime.timedelta(seconds=left))
        except RuntimeError:  # the time is up
            return False
        return True

    def _key(self, name: str, before: int = 0) -> str:
        return f"barrier/{self._count - before}/{name}"

    @staticmethod
    def _ms(timeout: float | None) -> int:
        return int(1000 * (_DEFAULT_S if timeout is None else timeout))
