# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed waits for."""

from __future__ import annotations

import contextlib
import datetime
import queue
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from .. import Error, TimeoutError

_LOOK_EVERY_S = 0.0005


class Done(dist._Work):
    """A call that has taken place."""

    def __init__(self, tensors: Any):
        super().__init__()
        self._tensors = tensors

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> Any:
        return self._tensors

    def synchronize(self) -> None:
        pass

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class Reduction(dist._Work):
    """Allreduces that go on while the program computes."""

    def __init__(self, pending: list[Any], tensors: Any, is_spread: bool):
        super().__init__()
        self._pending = pending
        self._tensors = tensors
        self._is_spread = is_spread

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """With a timeout, which torch counts from 1 ms on, it leaves the work to other threads."""
        if timeout is not None and timeout >= datetime.timedelta(milliseconds=1):
            self._look_until(time.monotonic() + timeout.total_seconds(), timeout)
        for one in self._pending:
            one.wait()
        return True

    def _look_until(self, deadline: float, timeout: datetime.timedelta) -> None:
        while not self.is_completed():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"wait: expected the sum within {timeout.total_seconds():g} s, and it is not "
                    "complete; it goes on, and may be waited for again")
            time.sleep(_LOOK_EVERY_S)

    def is_completed(self) -> bool:
        return all(one.ready() for one in self._pending)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Error | None:
        """What a complete call failed with."""
        for one in self._pending:
            if one.ready():
                try:
                    one.wait()
                except Error as error:
                    return error
        return None

    def result(self) -> Any:
        return self._tensors

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Any:
        """For DistributedDataParallel, which waits for it after the backward pass.

        On one node it is complete at once: there is no network to wait for while the program
        computes, and whoever waits does the work itself.
        """
        future: Any = torch.futures.Future()
        if self._is_spread:
            _watcher.watch(self._pending, self._tensors, future)
            # An error that was set from Python is a value to torch's C++, which takes it for
            # tensors; what a callback raises is an error there, too.
            return future.then(lambda done: done.value())
        self.wait()
        future.set_result(self._tensors)
        return future


class _Watcher:
    """A thread that completes futures. It sleeps beside the program, and does none of the work."""

    def __init__(self) -> None:
        self._queue: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def watch(self, pending: list[Any], tensors: Any, future: Any) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tutti-futures", daemon=True)
            self._thread.start()
        self._queue.put((pending, tensors, future))

    def _run(self) -> None:
        watched: list[Any] = []
        while True:
            if not watched:
                watched.append(self._queue.get())
            with contextlib.suppress(queue.Empty):
                while True:
                    watched.append(self._queue.get_nowait())
            left = [one for one in watched if not self._completes(*one)]
            if len(left) == len(watched):
                time.sleep(_LOOK_EVERY_S)
            watched = left

    @staticmethod
    def _completes(pending: list[Any], tensors: Any, future: Any) -> bool:
        if not all(one.ready() for one in pending):
            return False
        try:
            for one in pending:
                one.wait()
        except Exception as error:  # whoever waits for the future gets it
            future.set_exception(error)
        else:
            future.set_result(tensors)
        return True


_watcher = _Watcher()
