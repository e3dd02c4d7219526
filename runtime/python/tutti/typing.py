# SPDX-License-Identifier: Apache-2.0
"""Types for annotations of programs: `from tutti.typing import Key, Value`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypedDict, Union

if TYPE_CHECKING:
    if sys.version_info >= (3, 12):
        from collections.abc import Buffer
    else:
        from typing_extensions import Buffer

    from ._core import Array


class SupportsDLPack(Protocol):
    """An array of NumPy, PyTorch, CuPy, JAX or another library that speaks DLPack."""

    def __dlpack__(self) -> Any: ...


#: the key of one value: an int or a str
Key = Union[SupportsIndex, str]
#: one key or several
Keys = Union[Key, Iterable[Key]]
#: an array without gaps, in the host's memory or on a GPU
Value = Union["Buffer", SupportsDLPack]
#: one array; one for each key; or several for each key
Values = Union[Value, Sequence[Union[Value, Sequence[Value]]]]
#: keys, each with its values
ValuesOfKeys = Mapping[Any, Union[Value, Sequence[Value]]]
#: a shape: 7, (2, 3) or [2, 3]
Shape = Union[SupportsIndex, Sequence[SupportsIndex]]
#: updater(key, merged, stored) changes `stored` in place
Updater = Callable[[Any, "Array", "Array"], object]
#: rows(key, ids, rows, stored) changes rows of `stored` in place
RowUpdater = Callable[[Any, "Array", "Array", "Array"], object]


class LoadResult(TypedDict):
    """The result of kv.load()."""

    #: counts the saves into a directory; 0: there was no checkpoint
    generation: int
    metadata: dict[str, str]
    #: newer generations that were passed over: one sentence each, newest first
    damaged: list[str]
    #: the reason why saved residuals of compression begin at zero; else empty
    reset_residuals: str
    #: taken from a snapshot in the nodes' memory; `generation` then counts snapshots
    from_memory: bool
    #: pushes that the store had made when this was saved
    pushes: int
    #: pushes after these, which have to be made again
    lost_pushes: int


class VerifyResult(TypedDict):
    """The result of kv.verify()."""

    #: replicas and states that each rank compared
    bytes: int
    #: chunks of 64 KiB that differed, now equal
    healed: int
    #: chunks healed since the store was made, by pushes too
    healed_since_creation: int


class GradientScaling(TypedDict):
    """The result of kv.gradient_scaling(), with clip_global_norm or loss_scale."""

    #: factor for the loss of the next push
    loss_scale: float
    #: finite pushes in a row since a dynamic scale changed last
    good_pushes: int
    #: pushes whose gradients were not finite, and which updated nothing
    skipped: int
    #: norm of the last push, as clip_global_norm compares it
    norm: float
    was_skipped: bool


class LastRank(TypedDict):
    """A rank that arrived last in calls, with their number and this rank's wait."""

    rank: int
    calls: int
    seconds: float


class CallStatistics(TypedDict):
    """The cost to this rank of the calls of one kind and of the same keys."""

    call: str
    keys: list[int | str]
    calls: int
    bytes: int
    seconds: float
    waiting_seconds: float
    last: list[LastRank]


class Statistics(TypedDict):
    """The result of statistics()."""

    rank: int
    seconds: float
    calls: list[CallStatistics]
