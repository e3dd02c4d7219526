# SPDX-License-Identifier: Apache-2.0
"""The Work objects of calls, for which torch.distributed waits."""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import queue
import threading
import time
from typing import Any, Callable

import torch
import torch.distributed as dist

from .. import Error, TimeoutError

_LOOK_EVERY_S = 0.0005
_LEAST_TIMEOUT = datetime.timedelta(milliseconds=1)


def _too_late(timeout: datetime.timedelta) -> TimeoutError:
    return TimeoutError(f"wait: expected the sum within {timeout.total_seconds():g} s, and it is "
                        "not complete; it goes on, and may be waited for again")


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


def _copy_back(copies: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        while copies:
            tensor, plain = copies.pop()
            tensor.copy_(plain)


class Deferred(dist._Work):
    """A call that takes place when the program waits for it, asks about it or makes another."""

    def __init__(self, carry_out: Callable[[], None], tensors: Any,
                 copies: list[tuple[torch.Tensor, torch.Tensor]]):
        super().__init__()
        self._call: Callable[[], None] | None = carry_out
        self._tensors = tensors
        self._copies = copies
        self._error: BaseException | None = None
        self._once = threading.RLock()
        self._beside = threading.Thread()  # carries the call out, if a wait had a timeout
        deferred.append(self)

    def _carry_out(self) -> None:
        """Carries the call out; wait() raises its error."""
        with self._once:
            call, self._call = self._call, None
            if call is None:
                return
            try:
                call()
                _copy_back(self._copies)
            except Error as error:
                self._error = error
            except BaseException as error:
                self._error = error
                raise

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Waits for the call. With a timeout, which torch counts from 1 ms on, another thread makes
        the call."""
        is_open = self._call is not None or self._is_beside()
        if is_open and timeout is not None and timeout >= _LEAST_TIMEOUT:
            if not self._is_beside():
                self._beside = threading.Thread(target=self._carry_out_beside, daemon=True)
                self._beside.start()
            self._beside.join(timeout.total_seconds())
            if self._beside.is_alive():
                raise _too_late(timeout)
        carry_out_deferred()
        self._carry_out()
        if self._error is not None:
            raise self._error
        return True

    def _carry_out_beside(self) -> None:
        with contextlib.suppress(BaseException):  # wait() raises it
            carry_out_deferred()
            self._carry_out()

    def _is_beside(self) -> bool:
        return self._beside.is_alive()

    def is_completed(self) -> bool:
        if self._is_beside():
            return False
        carry_out_deferred()
        self._carry_out()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        self.is_completed()
        return self._error

    def result(self) -> Any:
        return self._tensors

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Any:
        """A complete future: callbacks wait for a future, and cannot make the call."""
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self._tensors)
        return future


deferred: "collections.deque[Deferred]" = collections.deque()


def carry_out_deferred() -> None:
    """Carries out all deferred calls, in the order in which they were made."""
    while deferred:
        try:
            first = deferred[0]
        except IndexError:
            return
        first._carry_out()
        with contextlib.suppress(ValueError):
            deferred.remove(first)


class Reduction(dist._Work):
    """Allreduces that go on while the program computes."""

    def __init__(self, pending: list[Any], tensors: Any, is_spread: bool,
                 copies: list[tuple[torch.Tensor, torch.Tensor]] | None = None):
        super().__init__()
        self._pending = pending
        self._tensors = tensors
        self._is_spread = is_spread
        self._copies = copies or []  # copies of tensors that the library cannot take as they lie

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Waits for the calls. With a timeout, which torch counts from 1 ms on, other threads do
        the work."""
        if timeout is not None and timeout >= _LEAST_TIMEOUT:
            self._look_until(time.monotonic() + timeout.total_seconds(), timeout)
        for one in self._pending:
            one.wait()
        _copy_back(self._copies)
        return True

    def _look_until(self, deadline: float, timeout: datetime.timedelta) -> None:
        while not self.is_completed():
            if time.monotonic() > deadline:
                raise _too_late(timeout)
            time.sleep(_LOOK_EVERY_S)

    def is_completed(self) -> bool:
        return all(one.ready() for one in self._pending)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Error | None:
        """The error of a complete call, if there is one."""
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
        """A future for DistributedDataParallel, which waits for it after the backward pass.

        On one node it is complete at once: there is no network to wait for while the program
        computes, and a waiting thread does the work itself.
        """
        future: Any = torch.futures.Future()
        if self._is_spread and not self._copies:
            _watcher.watch(self._pending, self._tensors, future)
            # An error that was set from Python is a value to torch's C++, which takes it for
            # tensors; an exception of a callback is an error there, too.
            return future.then(lambda done: done.value())
        self.wait()
        future.set_result(self._tensors)
        return future


class _Callers:
    """Threads that complete futures, and so run their callbacks. Another thread is made when the
    callbacks of all of them wait, for another future for example."""

    def __init__(self) -> None:
        self._queue: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def call(self, complete: Callable[[], None]) -> None:
        with self._lock:
            has_idle = self._idle > 0
            self._idle -= has_idle
        if not has_idle:
            threading.Thread(target=self._run, name="tutti-callbacks", daemon=True).start()
        self._queue.put(complete)

    def _run(self) -> None:
        while True:
            self._queue.get()()
            with self._lock:
                self._idle += 1


class _Watcher:
    """A thread that notices which calls are complete. It sleeps beside the program, does none of
    the work, and does not run the program's code."""

    def __init__(self) -> None:
        self._queue: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._callers = _Callers()

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

    def _completes(self, pending: list[Any], tensors: Any, future: Any) -> bool:
        if not all(one.ready() for one in pending):
            return False
        try:
            for one in pending:
                one.wait()
        except Exception as error:  # the future's waiter gets it
            self._callers.call(functools.partial(future.set_exception, error))
        else:
            self._callers.call(functools.partial(future.set_result, tensors))
        return True


_watcher = _Watcher()
