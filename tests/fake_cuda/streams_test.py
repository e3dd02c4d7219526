# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU whose work is in other streams than the library's, on the fake CUDA runtime."""

import ctypes
import os
import time

import numpy as np
import pytest

import tutti

CUDA = ctypes.CDLL(os.environ["FAKE_CUDART"])
NON_BLOCKING, DEFAULT_KIND = 1, 4
COUNT = 1000
A_WHILE = 0.2  # s; a stream that waits for nobody is through long before

ON_STREAM = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
wait_a_while = ON_STREAM(lambda _: time.sleep(A_WHILE))


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("index", ctypes.c_int32),
                ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
                ("owner", ctypes.c_void_p), ("destroy", ctypes.c_void_p)]


def call(name, *arguments):
    assert getattr(CUDA, name)(*arguments) == 0, name


def new_stream():
    stream = ctypes.c_void_p()
    call("cudaStreamCreateWithFlags", ctypes.byref(stream), NON_BLOCKING)
    return stream


def keep_busy(stream):
    call("cudaLaunchHostFunc", stream, wait_a_while, None)


class Array:
    """COUNT elements of float32 on gpu(0), by DLPack, in a stream that it does not tell."""

    def __init__(self, stream):
        self.stream = stream
        self.memory = ctypes.c_void_p()
        self.asked = []  # streams that __dlpack__ was to let wait
        call("cudaMalloc", ctypes.byref(self.memory), ctypes.c_size_t(4 * COUNT))
        shape = (ctypes.c_int64 * 1)(COUNT)
        self._kept = shape, Tensor(self.memory, 2, 0, 1, 2, 32, 1, shape, None, 0, None, None)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None, **options):
        self.asked.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._kept[1]), b"dltensor", None)

    def _copy(self, to, source):
        call("cudaMemcpyAsync", to, source, ctypes.c_size_t(4 * COUNT), DEFAULT_KIND, self.stream)

    def fill(self, value):
        """In its own stream, behind what is there."""
        values = np.full(COUNT, value, np.float32)
        self._copy(self.memory, values.ctypes.data_as(ctypes.c_void_p))

    def values(self):
        values = np.empty(COUNT, np.float32)
        self._copy(values.ctypes.data_as(ctypes.c_void_p), self.memory)
        return values


class TellingArray(Array):
    """One whose stream is known, as CuPy's arrays tell it."""

    @property
    def __cuda_array_interface__(self):
        return {"shape": (COUNT,), "typestr": "<f4", "data": (self.memory.value, False),
                "version": 3, "stream": self.stream.value}


@pytest.fixture
def kv():
    store = tutti.create("device")
    first = Array(new_stream())
    first.fill(0)
    store.init("w", first)
    yield store
    tutti.set_stream("cuda:0", 0)


@pytest.fixture
def busy():
    """Keeps the library's stream busy for a while."""
    stream = new_stream()
    tutti.set_stream("cuda:0", stream.value)
    yield lambda: keep_busy(stream)
    tutti.set_stream("cuda:0", 0)


def stored(kv):
    values = np.empty(COUNT, np.float32)
    kv.pull("w", values)
    return values


def test_a_push_reads_what_was_written_before_it_in_the_arrays_stream(kv):
    value = TellingArray(new_stream())
    value.fill(1)
    keep_busy(value.stream)
    pinned = Array(new_stream())  # written beside the program, behind what keeps its stream busy
    pinned.fill(7)
    call("cudaMemcpyAsync", value.memory, pinned.memory, ctypes.c_size_t(4 * COUNT), DEFAULT_KIND,
         value.stream)
    kv.push("w", value)
    assert (stored(kv) == 7).all()
    assert value.asked == [-1]  # nobody else needs to wait


@pytest.mark.parametrize("kind", [TellingArray, Array])
def test_memory_that_was_pushed_may_be_written_again_in_the_arrays_stream(kv, busy, kind):
    value = kind(new_stream())
    value.fill(3)
    busy()
    kv.push("w", value)
    value.fill(9)
    assert (stored(kv) == 3).all()


@pytest.mark.parametrize("kind", [TellingArray, Array])
def test_what_was_pulled_may_be_read_in_the_arrays_stream(kv, busy, kind):
    value, out = kind(new_stream()), kind(new_stream())
    value.fill(5)
    out.fill(0)
    kv.push("w", value)
    busy()
    kv.pull("w", out)
    assert (out.values() == 5).all()


def test_sums_are_read_in_the_arrays_stream_as_well(busy):
    ranks = tutti.Communicator.self()
    value = TellingArray(new_stream())
    value.fill(5)
    busy()
    ranks.allreduce(value, op="sum")
    assert (value.values() == 5).all()


def test_an_array_whose_stream_is_captured_is_refused(kv):
    value = TellingArray(new_stream())
    value.fill(5)
    set_capturing = CUDA["_ZN9fake_cuda13set_capturingEP11CUstream_stb"]
    set_capturing(value.stream, True)
    with pytest.raises(tutti.InvalidArgumentError, match="the stream is captured into a graph"):
        kv.push("w", value)
    set_capturing(value.stream, False)
    kv.push("w", value)
    assert (stored(kv) == 5).all()
