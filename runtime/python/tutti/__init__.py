# SPDX-License-Identifier: Apache-2.0
"""A replicated key-value store and collectives for training jobs that mpirun starts.

    import numpy as np
    import tutti

    kv = tutti.create("dist")             # all ranks of the job; "local" is this process alone
    kv.init(3, np.full((2, 3), 2.0, np.float32))
    kv.push(3, np.ones((2, 3), np.float32))
    print(np.asarray(kv.view(3)))         # the sum over the ranks
"""

from __future__ import annotations

import glob as _glob
import os as _os
from typing import Any

_folder = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
_others = _glob.glob(_os.path.join(_glob.escape(_folder), "tutti-[0-9]*.dist-info"))
if _others:
    raise ImportError(f"{_folder} has files of two projects: this package, which is tutti-kvstore, "
                      f"and {_os.path.basename(_others[0])}; pip uninstall tutti tutti-kvstore, "
                      "and install tutti-kvstore again")

from . import _array, _core, _end, _objects
from ._config import show_config
from ._core import (
    EXIT_REQUEUE,
    Array,
    Communicator,
    KVStore,
    Optimizer,
    Pending,
    build_info,
    describe_gpus,
    num_gpus,
    optimizer,
    optimizer_help,
    optimizer_names,
    set_stream,
    synchronize,
)
from ._end import PreemptionSignals
from ._errors import (
    CommunicationError,
    CorruptFileError,
    DivergenceError,
    Error,
    InvalidArgumentError,
    IoError,
    MismatchError,
    OutOfMemoryError,
    TimeoutError,
    UserCodeError,
)

__version__: str = _core.version()

__all__ = [
    "EXIT_REQUEUE", "Array", "Communicator", "CommunicationError", "CorruptFileError",
    "DivergenceError", "Error", "InvalidArgumentError", "IoError", "KVStore", "MismatchError",
    "Optimizer", "OutOfMemoryError", "Pending", "PreemptionSignals", "TimeoutError",
    "UserCodeError", "build_info", "create", "describe_gpus", "num_gpus", "optimizer",
    "optimizer_help", "optimizer_names", "set_stream", "show_config",
    "synchronize",
]


def create(type: str | Communicator = "local", **settings: Any) -> KVStore:
    """A store. Collective for "dist".

    type: "local" and "device" are this process alone, "dist" is all ranks of the job; a
        Communicator gives a store of its ranks, with its settings.
    settings: TUTTI_* variables in lower case without the prefix, instead of the environment's:
        create("dist", timeout=60, threads=2). TUTTI_ASYNC is `asynchronous`.

    Raises InvalidArgumentError: for a setting on all ranks, for an unknown type on this one.
    """
    if isinstance(type, Communicator):
        if settings:
            raise InvalidArgumentError(
                "create: a store over a communicator has its settings; give them to "
                "Communicator.world(" + ", ".join(f"{name}=..." for name in settings) + ")")
        return _end.track(_core.create_over(type))
    if not isinstance(type, str):
        raise InvalidArgumentError(
            f"create: expected \"local\", \"device\", \"dist\" or a Communicator; got {type!r}")
    return _end.track(_core.create(type, **settings))
