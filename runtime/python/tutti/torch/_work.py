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

    def __init__(self, calls: Calls, carry_out: Callable[[], None], tensors: Any,
                 copies: list[tuple[torch.Tensor, torch.Tensor]]):
        super().__init__()
        self._calls = calls
        self._call = carry_out
        self._tensors = tensors
        self._copies = copies
        self._error: BaseException | None = None
        self._is_done = False
        self._told: threading.Event | None = None  # of a wait that has a timeout
        calls.add(self)

    def _carry_out(self) -> None:
        """Carries the call out; wait() raises its error."""
        if self._is_done:
            return
        try:
            self._call()
            _copy_back(self._copies)
        except Error as error:
            self._error = error
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._is_done = True
            if self._told is not None:
                self._told.set()

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Waits for the call. With a timeout, which torch counts from 1 ms on, another thread makes
        the call."""
        if timeout is not None and timeout >= _LEAST_TIMEOUT and not self._is_done:
            told = self._told = self._told or threading.Event()
            carry_out_beside()
            if not self._is_done and not told.wait(timeout.total_seconds()):
                raise _too_late(timeout)
        if not self._is_done:
            carry_out_deferred(self._calls)
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        if not self._is_done and not self._calls.is_beside:
            carry_out_deferred(self._calls)
        return self._is_done

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


_lock = threading.Lock()  # of `deferred`, and of what each Calls has
deferred: "set[Calls]" = set()  # of the groups that have put off some


class Calls:
    """The calls of one group that are put off. They take place in the order in which they were
    made, one at a time."""

    def __init__(self) -> None:
        self.is_beside = False  # a thread carries them out
        self._calls: "collections.deque[Deferred]" = collections.deque()
        self._turn = threading.RLock()

    def add(self, call: Deferred) -> None:
        with _lock:
            self._calls.append(call)
            deferred.add(self)

    def carry_out(self) -> None:
        with self._turn:
            call = self._first()
            while call is not None:
                call._carry_out()
                call = self._first()

    def _first(self) -> Deferred | None:
        with _lock:
            while self._calls and self._calls[0]._is_done:
                self._calls.popleft()
            if self._calls:
                return self._calls[0]
            deferred.discard(self)
            return None

    def carry_out_beside(self) -> None:
        with _lock:
            if self.is_beside or not self._calls:
                return
            self.is_beside = True
        threading.Thread(target=self._run, name="tutti-deferred", daemon=True).start()

    def _run(self) -> None:
        while True:
            with contextlib.suppress(BaseException):  # wait() raises it
                self.carry_out()
            with _lock:
                self.is_beside = bool(self._calls)
                if not self.is_beside:
                    return


def carry_out_beside(but: Calls | None = None) -> None:
    """Has all calls that were put off, but those of one group, carried out by other threads."""
    for calls in list(deferred):
        if calls is not but:
            calls.carry_out_beside()


def carry_out_deferred(of: Calls) -> None:
    """Carries out the calls that a group has put off, before its next one. Those of other groups
    begin as well: other ranks may wait in one of these, if they have made them in another order."""
    carry_out_beside(but=of)
    if of in deferred:
        of.carry_out()


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
