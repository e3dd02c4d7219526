# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of the library's arrays, by NumPy, on their memory."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ._core import Array, Communicator, KVStore, Optimizer, Pending

if TYPE_CHECKING:
    import numpy


def _numpy(self: Array) -> "numpy.ndarray[Any, Any]":
    """An array of NumPy on the same memory; bfloat16 needs the package ml_dtypes."""
    import numpy

    if self.dtype != "bfloat16":
        return numpy.asarray(memoryview(self))
    try:
        # The package may be absent, or have no types.
        import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise ImportError("NumPy has no bfloat16 of its own: pip install ml_dtypes, or use "
                          "torch.from_dlpack(array)") from error
    return numpy.asarray(memoryview(self._bits())).view(ml_dtypes.bfloat16)


def _copied(self: Array) -> "numpy.ndarray[Any, Any]":
    """A copy of the elements, as an array of NumPy."""
    return self.numpy().copy()


def _plain(value: Any) -> Any:
    return value.numpy() if isinstance(value, Array) else value


def _array_ufunc(self: Array, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    out = options.get("out")
    if out is not None:
        options["out"] = tuple(_plain(value) for value in out)
    result = getattr(ufunc, method)(*(_plain(value) for value in inputs), **options)
    return out[0] if out is not None and len(out) == 1 else result


def _as_array(self: Array, dtype: Any = None, copy: bool | None = None) -> Any:
    import numpy

    array = self.numpy()
    if copy is None:
        return numpy.asarray(array, dtype=dtype)
    if not copy and dtype is not None and numpy.dtype(dtype) != array.dtype:
        raise ValueError(f"__array__: elements of {self.dtype} become others of "
                         f"{numpy.dtype(dtype)} by a copy only; leave out copy=False")
    return numpy.array(array, dtype=dtype, copy=copy)


def _binary(name: str) -> Any:
    function = getattr(operator, name)

    def forward(self: Array, other: Any) -> Any:
        return function(self.numpy(), _plain(other))

    return forward


def _reflected(name: str) -> Any:
    function = getattr(operator, name)

    def backward(self: Array, other: Any) -> Any:
        return function(_plain(other), self.numpy())

    return backward


def _in_place(name: str) -> Any:
    function = getattr(operator, "i" + name)

    def change(self: Array, other: Any) -> Array:
        function(self.numpy(), _plain(other))
        return self

    return change


def _item(self: Array, *at: Any) -> Any:
    """The only element, or the one at an index, as a number of Python."""
    return self.numpy().item(*at)


def _to_list(self: Array) -> Any:
    """The elements as lists of numbers of Python."""
    return self.numpy().tolist()


def _of_one(function: Any) -> Any:
    """A conversion that NumPy allows for arrays of one element alone."""
    return lambda self: function(self.numpy())


def _fill(self: Array, value: float) -> None:
    """Sets every element."""
    self.numpy()[...] = value


def _set_item(self: Array, index: Any, value: Any) -> None:
    self.numpy()[index] = _plain(value)


def _complete(array: Any) -> None:
    """Adds the methods that are written in Python to the module's class."""
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
        setattr(array, f"__{name}__", _binary(name))
        setattr(array, f"__r{name}__", _reflected(name))
        if name != "matmul":
            setattr(array, f"__i{name}__", _in_place(name))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(array, f"__{name}__", _binary(name))
    array.__hash__ = None
    array.__neg__ = lambda self: -self.numpy()
    array.__abs__ = lambda self: abs(self.numpy())
    array.__len__ = lambda self: len(self.numpy())
    array.__iter__ = lambda self: iter(self.numpy())
    for name, kind in (("bool", bool), ("int", int), ("float", float), ("complex", complex),
                       ("index", operator.index)):
        setattr(array, f"__{name}__", _of_one(kind))
    array.__pos__ = lambda self: +self.numpy()
    array.__contains__ = lambda self, value: _plain(value) in self.numpy()
    array.__divmod__ = lambda self, other: divmod(self.numpy(), _plain(other))
    array.__rdivmod__ = lambda self, other: divmod(_plain(other), self.numpy())
    array.item = _item
    array.tolist = _to_list
    array.__getitem__ = lambda self, index: self.numpy()[index]
    array.__setitem__ = _set_item
    array.__array__ = _as_array
    array.__array_ufunc__ = _array_ufunc
    array.numpy = _numpy
    array.asnumpy = _copied
    array.fill = _fill


_complete(Array)

for _kind in (Array, Communicator, KVStore, Optimizer, Pending):
    _kind.__module__ = "tutti"  # where programs find them


def _await(self: Pending) -> Any:
    """For `await kv.push_async(...)`: other tasks run until the call is complete."""
    import asyncio

    pause = 1e-4
    while not self.ready():
        yield from asyncio.sleep(pause).__await__()
        pause = min(2 * pause, 0.01)
    self.wait()


setattr(Pending, "__await__", _await)


def _enter(self: Any) -> Any:
    return self


def _leave(self: Any, *_: object) -> None:
    self.close()


for _kind in (Communicator, KVStore):
    setattr(_kind, "__enter__", _enter)
    setattr(_kind, "__exit__", _leave)
