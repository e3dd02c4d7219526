# SPDX-License-Identifier: Apache-2.0
"""The names of MXNet that programs with a KVStore use: `from tutti import mxnet as mx`.

mx.kv.create, mx.nd, mx.np, mx.npx, mx.cpu(i), ctx=, asnumpy() and kv._set_updater. Arrays are
NumPy's, of float32 by default; there is no autograd, and no network. A page whose cells use names
that it never imports, such as mx beside `from mxnet import np`, runs after
`from tutti.mxnet import *`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Callable, Iterator

import numpy

import tutti


class Context:
    """A device. Several cpu(i) are one memory: the index only tells values apart."""

    def __init__(self, device_type: str, device_id: int = 0) -> None:
        self.device_type = device_type
        self.device_id = device_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"


def cpu(device_id: int = 0) -> Context:
    """The host's memory."""
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """Raises InvalidArgumentError, because these arrays are NumPy's."""
    raise tutti.InvalidArgumentError(
        f"gpu({device_id}): expected cpu(i); tutti.mxnet has arrays of NumPy alone; give arrays "
        "on GPUs, such as PyTorch's, to tutti.create()")


class NDArray(numpy.ndarray[Any, Any]):
    """An array of NumPy that also has MXNet's methods."""

    context: Context

    def __array_finalize__(self, source: Any) -> None:
        self.context = getattr(source, "context", Context("cpu"))

    @property
    def ctx(self) -> Context:
        """The device of the array."""
        return self.context

    def asnumpy(self) -> "numpy.ndarray[Any, Any]":
        """A copy as an array of NumPy."""
        return numpy.array(self)

    def asscalar(self) -> Any:
        """The only element."""
        return self.item()

    def as_in_context(self, context: Context) -> "NDArray":
        """A copy whose context is another one."""
        return _on(self.copy(), context)

    def wait_to_read(self) -> None:
        """Returns at once, because every computation is complete."""

    def __repr__(self) -> str:
        return repr(numpy.asarray(self)).replace(", dtype=float32", "")


def _on(values: Any, context: Context | None) -> NDArray:
    array: NDArray = numpy.asarray(values).view(NDArray)
    array.context = context if context is not None else Context("cpu")
    return array


def _maker(function: Callable[..., Any]) -> Callable[..., NDArray]:
    def make(shape: Any, ctx: Context | None = None, dtype: Any = "float32",
             **options: Any) -> NDArray:
        return _on(function(shape, dtype=dtype, **options), ctx)

    make.__doc__ = f"As numpy.{function.__name__}; float32 unless said."
    return make


def array(values: Any, ctx: Context | None = None, dtype: Any = "float32") -> NDArray:
    """A copy of the values."""
    return _on(numpy.array(values, dtype=dtype), ctx)


def full(shape: Any, value: float, ctx: Context | None = None, dtype: Any = "float32") -> NDArray:
    """An array whose elements are all `value`."""
    return _on(numpy.full(shape, value, dtype=dtype), ctx)


def arange(*bounds: Any, ctx: Context | None = None, dtype: Any = "float32") -> NDArray:
    """Numbers like numpy.arange; float32 by default."""
    return _on(numpy.arange(*bounds, dtype=dtype), ctx)


def _pulls(key: Any, out: Any, row_ids: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The key, the output and the rows of each array that row_sparse_pull() fills."""
    if not isinstance(out, (list, tuple)):
        if isinstance(key, (list, tuple)):
            raise tutti.InvalidArgumentError(
                f"row_sparse_pull: expected an out for each of {len(key)} keys; got one array")
        yield key, out, *_rows_of_each(row_ids, 1)
        return
    if not isinstance(key, (list, tuple)):
        yield from ((key, *pair) for pair in zip(out, _rows_of_each(row_ids, len(out))))
        return
    if len(out) != len(key):
        raise tutti.InvalidArgumentError(
            f"row_sparse_pull: expected an out for each of {len(key)} keys; got {len(out)}")
    for one, target, ids in zip(key, out, _rows_of_each(row_ids, len(out))):
        yield from _pulls(one, target, ids)


def _rows_of_each(row_ids: Any, count: int) -> list[Any]:
    """Row numbers for each of `count` outputs, from a list of them, or from those of all."""
    is_list = isinstance(row_ids, (list, tuple)) and any(
        isinstance(ids, (list, tuple)) or numpy.ndim(ids) > 0 for ids in row_ids)
    given = list(row_ids) if is_list else [row_ids]
    if len(given) not in (1, count):
        raise tutti.InvalidArgumentError(
            f"row_sparse_pull: expected row_ids for each of {count} outputs, or for all of them; "
            f"got {len(given)}")
    return given * count if len(given) == 1 else given


class KVStore:
    """A store with the names of MXNet's. `store` is the tutti.KVStore that it calls."""

    def __init__(self, store: tutti.KVStore) -> None:
        self.store = store

    def _set_updater(self, updater: Callable[[Any, Any, Any], None]) -> None:
        def update(key: Any, merged: Any, stored: Any) -> None:
            updater(key, _on(merged, None), _on(stored, None))

        self.store.set_updater(update)

    set_updater = _set_updater

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Compresses later pushes, as {"type": "2bit", "threshold": 0.5} does."""
        self.store.set_gradient_compression(compression_params)

    def init(self, key: Any, value: Any) -> None:
        """Stores the first value of each key."""
        self.store.init(key, value)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sums over the list and the ranks, then runs the updater."""
        self.store.push(key, value, priority)

    def pull(self, key: Any, out: Any = None, priority: int = 0,
             ignore_sparse: bool = True) -> None:
        """Copies this rank's replica into `out`."""
        self.store.pull(key, out, priority=priority, ignore_sparse=ignore_sparse)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """A push and a pull; without `out` the pull writes over `value`."""
        self.store.pushpull(key, value, out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """An init and a pull."""
        self.store.broadcast(key, value, out)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0,
                        row_ids: Any = None) -> None:
        """Copies the rows `row_ids` of a row-sparse key to the rows of the same numbers of `out`,
        which has the table's shape; other rows of `out` become zero.

        Lists are MXNet's: an out for each key, or several for one key, and for each of them the
        row_ids, or one for all.
        """
        if out is None or row_ids is None:
            raise tutti.InvalidArgumentError(
                "row_sparse_pull: expected out and row_ids; got None")
        pulled = [(target, self.store.pull_rows(one, numpy.asarray(ids).astype(numpy.int64)))
                  for one, target, ids in _pulls(key, out, row_ids)]
        for target, (found, rows) in pulled:
            target[...] = 0
            target[numpy.asarray(found)] = numpy.asarray(rows)

    def _barrier(self) -> None:
        self.store.barrier()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def __repr__(self) -> str:
        return repr(self.store)


def _create(name: str = "local", **settings: Any) -> KVStore:
    """A store, as mxnet.kv.create makes it: "local", "device" or "dist" and its aliases."""
    return KVStore(tutti.create(name, **settings))


def _module(name: str, doc: str, **names: Any) -> ModuleType:
    module = ModuleType(f"{__name__}.{name}", doc)
    module.__dict__.update(names)
    sys.modules[module.__name__] = module
    return module


_names: dict[str, Any] = {
    "NDArray": NDArray, "array": array, "ones": _maker(numpy.ones), "zeros": _maker(numpy.zeros),
    "empty": _maker(numpy.empty), "full": full, "arange": arange,
}
nd = _module("nd", "Arrays, as mxnet.nd.", **_names)
np = _module("np", "Arrays, as mxnet.np.", ndarray=NDArray, **_names)
npx = _module("npx", "Devices, as mxnet.npx.", cpu=cpu, gpu=gpu, set_np=lambda *_, **__: None,
              reset_np=lambda *_: None, waitall=lambda: None, num_gpus=lambda: 0)
kv = _module("kv", "Stores, as mxnet.kv.", create=_create, KVStore=KVStore)
kvstore = kv
mx = sys.modules[__name__]

__all__ = ["Context", "KVStore", "NDArray", "arange", "array", "cpu", "full", "gpu", "kv",
           "kvstore", "mx", "nd", "np", "npx"]
