# SPDX-License-Identifier: Apache-2.0
"""The exceptions that the library raises."""

from __future__ import annotations

import builtins
import re


class Error(RuntimeError):
    """The exception that every function of the library raises; each code has a subclass.

    The text says what happened, where, what was expected and found, and what to do.
    """

    #: the name of the code in C++, such as "mismatch"
    code: str = "user_code"
    #: False once the store or communicator has failed for good
    recoverable: bool = True
    #: True on the one rank that should print the text
    reporter: bool = True
    #: True if every rank raises this error from the same call
    agreed: bool = False
    #: the program's exit code: 1 usage, 2 failure at run time, 3 wrong data, 4 deadline
    exit_code: int = 2

    def _found(self, pattern: str) -> str | None:
        found = re.search(pattern, str(self))
        return found.group(1) if found else None

    @property
    def rank(self) -> int | None:
        """The first rank that the text names."""
        found = self._found(r"\brank (\d+)")
        return None if found is None else int(found)

    @property
    def host(self) -> str | None:
        """The first host that the text names."""
        return self._found(r"\(host ([^,)]+)")

    @property
    def key(self) -> int | str | None:
        """The first key that the text names."""
        found = self._found(r"\bkey ([^\s,;:()]+)")
        if found is None:
            return None
        return int(found) if re.fullmatch(r"-?\d+", found) else found


class InvalidArgumentError(Error, ValueError):
    """A call's arguments are wrong; nothing was changed."""

    code = "invalid_argument"
    exit_code = 1


class MismatchError(Error):
    """Ranks made different calls; nothing was changed."""

    code = "mismatch"


class CommunicationError(Error, ConnectionError):
    """A rank failed or left, or MPI reported an error."""

    code = "communication"


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001
    """A wait passed its deadline (TUTTI_TIMEOUT)."""

    code = "timeout"
    exit_code = 4


class OutOfMemoryError(Error, MemoryError):
    """An allocation was refused, before any page was touched."""

    code = "out_of_memory"


class IoError(Error, OSError):
    """A file could not be read or written."""

    code = "io"


class CorruptFileError(Error):
    """A file was read and its content is not what it should be."""

    code = "corrupt_file"


class UserCodeError(Error):
    """The program's own code raised, such as an updater; on its rank the error is the __cause__."""

    code = "user_code"


class DivergenceError(Error):
    """Replicas that should be equal differ between ranks."""

    code = "divergence"
    exit_code = 3


_CLASSES: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (InvalidArgumentError, MismatchError, CommunicationError, TimeoutError,
                 OutOfMemoryError, IoError, CorruptFileError, UserCodeError, DivergenceError)
}


for _kind in (Error, *_CLASSES.values()):
    _kind.__module__ = "tutti"  # where programs find them, and where a traceback says they are


def make(code: str, text: str, recoverable: bool, reporter: bool, agreed: bool, exit_code: int,
         cause: BaseException | None) -> Error:
    """Makes the exception for an error of the module in C++."""
    error = _CLASSES.get(code.replace(" ", "_"), Error)(text)
    error.recoverable = recoverable
    error.reporter = reporter
    error.agreed = agreed
    error.exit_code = exit_code
    error.__cause__ = cause
    return error
