# SPDX-License-Identifier: Apache-2.0
"""The end of a program of an mpirun job: an exception that it has not caught ends the job, and is
printed once."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
import weakref
from types import TracebackType
from typing import Any, TypeVar

from . import _core
from ._errors import Error, InvalidArgumentError

_Closable = TypeVar("_Closable")
_open: "weakref.WeakSet[Any]" = weakref.WeakSet()
_process = os.getpid()
_GRACE_S = 2.0  # as the library leaves to a reporter


def track(closable: _Closable) -> _Closable:
    """Has the object closed at the latest when Python ends, before MPI does. Marks this process as
    a rank in Python's copy of the environment, which programs are started with."""
    _open.add(closable)
    mark = _core.rank_mark()
    if mark:
        os.environ["_TUTTI_RANK"] = mark
    return closable


@atexit.register
def _close_all() -> None:
    if os.getpid() != _process:
        return  # a forked child: its stores are its parent's
    for closable in list(_open):
        with contextlib.suppress(InvalidArgumentError):  # a thread is in a call of it
            closable.close()


def _on_exception(kind: type[BaseException], error: BaseException,
                  trace: TracebackType | None) -> None:
    is_ours = isinstance(error, Error)
    if not is_ours or error.reporter:  # type: ignore[attr-defined]
        _before(kind, error, trace)
    if os.getpid() != _process or not _core.is_launched():
        return
    is_agreed = is_ours and error.agreed  # type: ignore[attr-defined]
    if is_agreed and hasattr(sys, "ps1"):
        return  # an interactive Python goes on
    _flush_captured()  # neither of the two ends below comes back to a hook that called this one
    if is_agreed:
        if not error.reporter and _core.launched_for() == "none":  # type: ignore[attr-defined]
            time.sleep(_GRACE_S)  # torchrun ends the reporter as soon as another rank has ended
        sys.exit(error.exit_code)  # type: ignore[attr-defined]  # every rank raises it, and ends
    with contextlib.suppress(Exception):  # a pipe that nobody reads, or a file that is closed
        sys.stdout.flush()
    program = os.path.basename(sys.argv[0]) or "python"
    code = error.code if is_ours else ""  # type: ignore[attr-defined]
    reporter = error.reporter if is_ours else True  # type: ignore[attr-defined]
    text = f"{kind.__name__}: {error}" if not is_ours else str(error)
    _core.end_job(program, code, text, False, reporter)


def _flush_captured() -> None:
    """Prints the text that another hook, such as torch.distributed's, has captured to print it
    after this one."""
    captured = getattr(sys.stderr, "getvalue", None)
    if captured is not None and sys.__stderr__ is not None:
        sys.__stderr__.write(captured())
        sys.__stderr__.flush()


_before = sys.excepthook
sys.excepthook = _on_exception


class PreemptionSignals(_core._PreemptionSignals):
    """While an object of it lives, SIGTERM and SIGUSR1 ask the job to stop: kv.stop_requested() is
    true on all ranks from the next collective call on. Save, and end with EXIT_REQUEUE.

        with tutti.PreemptionSignals():
            train()

    Make it on every rank, as the program's first act. A second signal ends the process at once. A
    process that is forked is no rank: signals do there what they did before.

    Raises InvalidArgumentError if there is one already.
    """

    def __enter__(self) -> "PreemptionSignals":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

