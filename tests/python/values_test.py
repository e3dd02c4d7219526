# SPDX-License-Identifier: Apache-2.0
"""Values: what speaks the buffer protocol or DLPack, without copies."""

import array as arrays
import ctypes
import gc
import os
from collections import UserList, deque
from pathlib import Path

import numpy as np
import pytest

import tutti


@pytest.fixture
def kv():
    store = tutti.create()
    store.init("w", np.zeros((2, 3), np.float32))
    yield store
    store.close()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32",
                                   "int64"])
def test_all_element_types_go_in_and_out(kv, dtype):
    value = np.arange(6).reshape(2, 3).astype(dtype)
    kv.init(dtype, value)
    view = kv.view(dtype)
    assert view.dtype == dtype and view.shape == (2, 3) and view.nbytes == value.nbytes
    assert (np.asarray(view) == value).all()
    assert (np.from_dlpack(view) == value).all()


def test_bfloat16_has_an_array_of_its_own(kv):
    own = kv.allocate((2, 3), "bfloat16")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    own[...] = 1.5
    kv.init("b", own)
    kv.push("b", np.full((2, 3), 2.5, ml_dtypes.bfloat16))
    assert kv.view("b").dtype == "bfloat16"
    assert (kv.view("b").numpy() == 2.5).all()
    with pytest.raises(BufferError, match="ml_dtypes"):
        memoryview(own)


def test_a_view_shares_the_memory_and_keeps_it(kv):
    view = kv.view("w")
    shown = np.asarray(view)
    kv.push("w", np.full((2, 3), 4, np.float32))
    assert (shown == 4).all() and not shown.flags.writeable
    kv.close()
    del view
    gc.collect()
    assert (shown == 4).all()


def test_a_view_keeps_its_memory_from_stores_that_come_later():
    ranks = tutti.Communicator.self()
    shown = []
    for value in range(4):
        kv = tutti.create(ranks)
        kv.init("w", np.full(5000, value, np.float32))
        kv.init_row_sparse("rows", np.full((5000, 2), value, np.float32))
        shown += [np.asarray(kv.view("w")), np.asarray(kv.view("rows"))]
        kv.close()
    assert [int(one.min()) for one in shown] == [int(one.max()) for one in shown]
    assert [int(one.max()) for one in shown] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_copy_is_one_and_other_devices_are_refused(kv):
    view = kv.view("w")
    for versions in ({}, {"max_version": (1, 0)}):
        class Copied:
            def __dlpack__(self, **_):
                return view.__dlpack__(copy=True, dl_device=(1, 0), **versions)

            def __dlpack_device__(self):
                return view.__dlpack_device__()

        copied = np.from_dlpack(Copied())
        assert not np.shares_memory(copied, np.asarray(view)) and (copied == 0).all()
    assert copied.flags.writeable
    for device in ((2, 0), (1, 1), "cpu"):
        with pytest.raises(BufferError, match="goes to no other device.*got"):
            view.__dlpack__(dl_device=device)


def test_an_allocated_array_is_written_in_place(kv):
    own = kv.allocate((2, 3))
    assert (own.numpy() == 0).all() and not own.readonly
    own += 2
    own[0] = 5
    np.multiply(own, 2, out=own)
    assert own.numpy().tolist() == [[10] * 3, [4] * 3]
    assert np.shares_memory(np.asarray(own), np.from_dlpack(own))
    kv.push("w", own)
    assert (kv.view("w") == own).all()
    assert repr(own) == "<tutti.Array (2, 3) float32 on cpu(0)>"


def test_torch_shares_both(kv):
    torch = pytest.importorskip("torch")
    own = torch.from_dlpack(kv.allocate((2, 3)))
    own.fill_(3)
    kv.push("w", own)
    assert (torch.from_dlpack(kv.view("w")) == 3).all()


def test_other_buffers_are_values_too(kv):
    kv.init("array", arrays.array("f", [1, 2]))
    kv.init("bytes", b"\x01\x02")
    assert kv.view("array").numpy().tolist() == [1, 2]
    assert kv.view("bytes").dtype == "uint8"


@pytest.mark.parametrize("value, text", [
    (np.ones((3, 2), np.float32).T, "ascontiguousarray"),
    (np.ones((2, 3), np.uint16), "uint16"),
    (np.ones((2, 3), np.complex64), "complex64"),
    (np.ones((2, 3), bool), "bool"),
    (1.0, "got a float"),
    (None, "got a NoneType"),
    (np.ones((2, 2), np.float32), r"\(2, 2\)"),
    (np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3), "at a multiple of 4 bytes"),
])
def test_a_value_that_does_not_fit_is_one_sentence(kv, value, text):
    with pytest.raises(tutti.InvalidArgumentError, match=text) as raised:
        kv.push("w", value)
    assert raised.value.key == "w" and raised.value.recoverable
    kv.push("w", np.ones((2, 3), np.float32))


def test_other_sequences_and_mappings_are_lists_and_dicts(kv):
    import collections
    import types

    values = collections.UserDict({"a": np.ones(3, np.float32), "b": np.ones(2, np.float32)})
    kv.init(values)
    kv.push(types.MappingProxyType({"a": collections.UserList([np.full(3, 2, np.float32)] * 2)}))
    assert kv.view("a").numpy().tolist() == [4, 4, 4]
    out = collections.UserList([np.zeros(3, np.float32), np.zeros(2, np.float32)])
    kv.pull(collections.deque(["a", "b"]), out)
    assert out[0].tolist() == [4, 4, 4] and out[1].tolist() == [1, 1]
    assert kv.allocate(range(2, 4)).shape == (2, 3)
    for shape in (b"ab", "ab", {2}, 2.0):
        with pytest.raises(tutti.InvalidArgumentError, match="shape: expected whole numbers"):
            kv.allocate(shape)


def test_an_output_is_writable(kv):
    frozen = np.zeros((2, 3), np.float32)
    frozen.flags.writeable = False
    for output in (frozen, kv.view("w")):
        with pytest.raises(tutti.InvalidArgumentError, match="read-only"):
            kv.pull("w", output)
    with pytest.raises(ValueError, match="read-only"):
        kv.view("w")[...] = 1
    with pytest.raises(tutti.InvalidArgumentError, match="float64"):
        kv.pull("w", np.zeros((2, 3)))
    converted = np.zeros((2, 3))
    kv.pull("w", converted, cast=True)


@pytest.mark.parametrize("key, text", [
    (True, "got a bool"), (1.5, "got a float"), (None, "got a NoneType"), (2**64, "64 bits"),
    ("\ud800", "UTF-8"), (object(), "got a object"), ([b"bytes"], "got a bytes"),
])
def test_a_key_is_an_int_or_a_str(kv, key, text):
    with pytest.raises(tutti.InvalidArgumentError, match=text):
        kv.push(key, np.ones((2, 3), np.float32))


@pytest.mark.parametrize("path, text", [
    (None, "os.PathLike.*NoneType"), (3, "int"), ("run\0", "null"), ("", "path of a directory")])
def test_a_path_is_a_str_or_a_path(kv, path, text):
    with pytest.raises(tutti.InvalidArgumentError, match=text):
        kv.save(path)
    if path != "":
        for call in (kv.load, kv.save_optimizer_states, kv.load_optimizer_states):
            with pytest.raises(tutti.InvalidArgumentError, match=text):
                call(path)


@pytest.mark.parametrize("keys", [[], ["a"], {}, ["a", "b"]])
def test_a_table_of_zeros_has_one_key(kv, keys):
    with pytest.raises(tutti.InvalidArgumentError, match="expected one key"):
        kv.init_row_sparse(keys, (10, 3))


def test_an_updater_is_a_function(kv):
    with pytest.raises(tutti.InvalidArgumentError, match=r"updater\(key, merged, stored\).*a int"):
        kv.set_updater(3)
    with pytest.raises(tutti.InvalidArgumentError, match=r"rows\(key, ids, rows, stored\).*a str"):
        kv.set_updater(None, "rows")


def test_what_an_updater_was_given_is_not_kept(kv):
    kept = []
    kv.set_updater(lambda key, merged, stored: kept.append(merged))
    kv.push("w", np.ones((2, 3), np.float32))
    with pytest.raises((tutti.InvalidArgumentError, BufferError), match="updater"):
        kept[0].numpy()
    kv.set_updater(lambda key, merged, stored: kept.append(np.asarray(merged)))
    with pytest.raises(tutti.UserCodeError, match="kept a view"):
        kv.push("w", np.ones((2, 3), np.float32))


def test_what_an_updater_raises_comes_out_with_its_traceback(kv):
    kept = []

    def update(key, merged, stored):
        kept.append(stored)
        raise KeyError("oops")

    kv.set_updater(update)
    with pytest.raises(tutti.UserCodeError, match="oops") as raised:
        kv.push("w", np.ones((2, 3), np.float32))
    assert isinstance(raised.value.__cause__, KeyError) and not raised.value.recoverable
    with pytest.raises((tutti.InvalidArgumentError, BufferError), match="updater"):
        kept[0].numpy()
    assert raised.value.__cause__.__traceback__.tb_frame.f_code.co_name == "update"


@pytest.mark.parametrize("given", [deque(), range(0), UserList([]),
                                   UserList([np.ones(2, np.float32)] * 2)])
def test_an_asynchronous_sum_takes_one_array(given):
    ranks = tutti.Communicator.world()
    pending = ranks.allreduce_async(given)
    with pytest.raises(tutti.InvalidArgumentError, match="expected one array for input and out"):
        pending.wait()


class Nested:
    """An array whose reading makes a call of the communicator that is to take it."""

    def __init__(self, ranks):
        self.ranks = ranks

    def __dlpack__(self, **options):
        self.ranks.barrier()


def test_a_call_inside_a_call_is_refused():
    ranks = tutti.Communicator.world()
    with pytest.raises(tutti.InvalidArgumentError, match="has interrupted; make this one when"):
        ranks.allreduce(Nested(ranks))
    ranks.barrier()


class WithTable:
    """Its type has the attribute that DLPack's table of functions has, and another thing there."""

    def __init__(self, values):
        self.values = values

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.values.__dlpack__()


@pytest.mark.parametrize("table", [None, 5, "text", object()])
def test_a_type_without_a_table_of_dlpack_gives_arrays_by_its_method(table):
    given = type("Given", (WithTable,), {"__dlpack_c_exchange_api__": table})
    kv = tutti.create("local")
    kv.init("a", np.zeros(3, np.float32))
    kv.push("a", given(np.arange(3, dtype=np.float32)))
    out = np.zeros(3, np.float32)
    kv.pull("a", out)
    assert out.tolist() == [0.0, 1.0, 2.0]


def test_numpy_converts_what_it_converts_of_its_own(kv):
    kv.init("one", np.full((1,), 3.5, np.float32))
    kv.init("count", np.full((), 4, np.int64))
    own, count, many = kv.view("one"), kv.view("count"), kv.view("w")
    assert bool(own) and int(count) == 4 and complex(count) == 4 and count.item() == 4
    assert [1, 2, 3, 4, 5][count] == 5 and float(count) == 4.0
    assert many.tolist() == [[0.0] * 3] * 2 and 0.0 in many and 1.0 not in many
    assert divmod(own, 2)[0].tolist() == [1.0] and (+own).tolist() == [3.5]
    kv.init("zero", np.zeros(1, np.float32))
    assert not kv.view("zero")  # it has an element, and that is zero
    for convert in (bool, int, float, complex):
        with pytest.raises((ValueError, TypeError)) as ours:
            convert(many)
        with pytest.raises(ours.type):
            convert(np.asarray(many))
    with pytest.raises(ValueError, match="copy"):
        many.__array__(np.float64, copy=False)
    assert many.__array__(np.float64).dtype == np.float64


class Later:
    """An array whose capsule is of a later major version of DLPack, as ctypes can make one."""

    def __init__(self, version):
        self.values = np.zeros(3, np.float32)
        self.version = version

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __dlpack__(self, **options):
        capsule = self.values.__dlpack__(max_version=(1, 0))
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_uint32.from_address(pointer(capsule, b"dltensor_versioned")).value = self.version
        return capsule


def test_a_capsule_of_another_major_version_is_not_read(kv):
    kv.init("three", np.zeros(3, np.float32))
    kv.push("three", Later(1))
    with pytest.raises(tutti.InvalidArgumentError, match="expected a capsule of DLPack 1; .* 2"):
        kv.push("three", Later(2))


def test_numbers_of_numpy_are_numbers_of_every_option(kv):
    settings = {"timeout": np.float32(3), "threads": np.int64(1), "asynchronous": np.bool_(False)}
    with tutti.create("local", **settings) as other:
        other.init("w", np.zeros(2, np.float32))
        other.set_optimizer("sgd", learning_rate=np.float32(0.5), momentum=np.float64(0.5),
                            multi_precision=np.bool_(True))
        rule = other.optimizer
        assert rule.learning_rate == 0.5
        rule.learning_rate = np.float32(0.25)
        rule.set_momentum(np.float32(0.5))
        rule.set_lr_mult("w", np.int64(2))
        other.push("w", np.ones(2, np.float32), priority=np.int32(1))
        other.push_async("w", np.ones(2, np.float32), borrow=np.bool_(True)).wait()
        other.pull("w", np.zeros(2), cast=np.bool_(True))
        assert other.allocate(np.int64(3)).shape == (3,)
        assert other.allocate(np.array([3, 2])).shape == (3, 2)
    assert tutti.optimizer("sgd", learning_rate=np.float32(0.1)).learning_rate == float(
        np.float32(0.1))


@pytest.mark.parametrize("give", [lambda path: path, os.fsencode, Path])
def test_paths_need_not_be_text(give, tmp_path):
    folder = os.path.join(tmp_path, "gr\udcffn")
    os.mkdir(folder)
    with tutti.create("local", trace=give(folder)) as store:
        store.init("w", np.zeros(2, np.float32))
        store.save(give(os.path.join(folder, "checkpoint")))
    assert "checkpoint" in os.listdir(folder)
