# SPDX-License-Identifier: Apache-2.0
"""The calls of MXNet's pages about its KVStore, in their order and with their numbers. Under
mpirun the numbers are those of one rank, because each rank has a "local" store of its own."""

import numpy
import pytest

import tutti
from tutti import mxnet as mx

SHAPE = (2, 3)


def all_are(array, value):
    return array.asnumpy().tolist() == [[value] * 3] * 2


def walk(make, contexts, capsys):
    kv = mx.kv.create("local")
    kv.init(3, make.ones(SHAPE) * 2)
    a = make.zeros(SHAPE)
    kv.pull(3, out=a)
    assert all_are(a, 2) and str(a) == "[[2. 2. 2.]\n [2. 2. 2.]]"
    kv.push(3, make.ones(SHAPE) * 8)
    kv.pull(3, out=a)
    assert all_are(a, 8)
    kv.push(3, [make.ones(SHAPE, ctx=context) for context in contexts])
    kv.pull(3, out=a)
    assert all_are(a, 4)

    def update(key, merged, stored):
        print(f"update on key: {key}")
        stored += merged * 2

    kv._set_updater(update)
    kv.pull(3, out=a)
    assert all_are(a, 4)
    kv.push(3, make.ones(SHAPE))
    kv.pull(3, out=a)
    assert all_are(a, 6) and capsys.readouterr().out == "update on key: 3\n"
    b = [make.ones(SHAPE, ctx=context) for context in contexts]
    kv.pull(3, out=b)
    assert all_are(b[1], 6) and b[1].context == mx.cpu(1)
    keys = [5, 7, 9]
    kv.init(keys, [make.ones(SHAPE)] * len(keys))
    kv.push(keys, [make.ones(SHAPE)] * len(keys))
    b = [make.zeros(SHAPE)] * len(keys)
    kv.pull(keys, out=b)
    assert all_are(b[1], 3)
    b = [[make.ones(SHAPE, ctx=context) for context in contexts]] * len(keys)
    kv.push(keys, b)
    kv.pull(keys, out=b)
    assert all_are(b[1][1], 11)
    assert capsys.readouterr().out == "".join(f"update on key: {key}\n" for key in keys * 2)


def test_the_calls_with_np(capsys):
    mx.npx.set_np()
    walk(mx.np, [mx.npx.cpu(i) for i in range(4)], capsys)


def test_the_calls_with_nd(capsys):
    walk(mx.nd, [mx.cpu(i) for i in range(4)], capsys)


def test_the_calls_of_a_device_store():
    kv = mx.kv.create("device")
    kv.init(3, mx.np.ones(SHAPE) * (-2))
    a = mx.np.zeros(SHAPE)
    kv.pull(3, out=a)
    assert repr(a) == "array([[-2., -2., -2.],\n       [-2., -2., -2.]])"
    kv.push(3, mx.np.ones(SHAPE) * (-7))
    kv.pull(3, out=a)
    assert all_are(a, -7)
    contexts = [mx.cpu(i) for i in range(3)]
    kv.push(3, [mx.np.ones(SHAPE, ctx=context) for context in contexts])
    kv.pull(3, out=a)
    assert all_are(a, 3)
    keys = [7, 11, 13, 17]
    kv.init(keys, [mx.np.ones(SHAPE) * (-3)] * len(keys))
    c = [mx.np.zeros(SHAPE)] * len(keys)
    kv.pull(keys, out=c)
    assert all_are(c[0], -3)
    d = [[mx.np.ones(SHAPE, ctx=context) * (-0.1) for context in contexts]] * len(keys)
    kv.push(keys, d)
    kv.pull(keys, out=c)
    assert repr(c[0]) == "array([[-0.3, -0.3, -0.3],\n       [-0.3, -0.3, -0.3]])"

    def update(key, merged, stored):
        stored += merged * 0.01

    kv._set_updater(update)
    kv.push(3, mx.nd.ones(SHAPE) * 5)
    kv.pull(3, out=a)
    assert abs(a.asnumpy() - 3.05).max() < 1e-6


def test_one_line_imports_all_names_that_pages_use():
    names = {}
    exec("from tutti.mxnet import *", names)
    assert {"cpu", "gpu", "kv", "kvstore", "mx", "nd", "np", "npx"} <= set(names)
    assert names["mx"] is mx and names["mx"].nd is names["nd"]


def test_other_names_of_stores_and_calls_are_mxnets():
    for name in ("local_update_cpu", "local_allreduce_cpu", "local_allreduce_device", "dist_sync",
                 "dist_sync_device", "dist_device_sync"):
        store = mx.kv.create(name)
        assert store.type == ("device" if name.endswith("_allreduce_device") else
                              name.split("_")[0])
        store.init(3, mx.nd.ones((2,)))
        store.push(3, mx.nd.ones((2,)), -1)  # a priority by its place
        out = mx.nd.zeros((2,))
        store.pull(3, out, -1)
        assert (out == store.num_workers).all()
        store._barrier()


def test_rows_are_pulled_to_their_places():
    store = mx.kv.create("local")
    store.init_row_sparse("table", numpy.arange(8, dtype=numpy.float32).reshape(4, 2))
    out = mx.nd.ones((4, 2))
    store.row_sparse_pull("table", out=out, row_ids=mx.nd.array([3, 1, 3]))
    assert out.tolist() == [[0, 0], [2, 3], [0, 0], [6, 7]]


def test_rows_are_pulled_by_mxnets_lists():
    store = mx.kv.create("local")
    for key, first in (("a", 0), ("b", 100)):
        table = numpy.arange(first, first + 8, dtype=numpy.float32).reshape(4, 2)
        store.init_row_sparse(key, table)

    def expected(first, ids):
        rows = numpy.zeros((4, 2), numpy.float32)
        for row in ids:
            rows[row] = first + 2 * row, first + 2 * row + 1
        return rows.tolist()

    def outs(count):
        return [mx.nd.ones((4, 2)) for _ in range(count)]

    one, other = mx.nd.array([3, 1]), mx.nd.array([0])
    for given in (one, [one], (one,), [3, 1]):
        (out,) = outs(1)
        store.row_sparse_pull("a", out=out, row_ids=given)
        assert out.tolist() == expected(0, [3, 1])
    for key, given, found in (
            ("a", one, [(0, [3, 1])] * 2), ("a", [one, other], [(0, [3, 1]), (0, [0])]),
            (["a", "b"], [one, other], [(0, [3, 1]), (100, [0])]),
            (["a", "b"], [other], [(0, [0]), (100, [0])])):
        out = outs(2)
        store.row_sparse_pull(key, out=out, row_ids=given)
        assert [array.tolist() for array in out] == [expected(*each) for each in found]
    out = [outs(2), outs(1)]
    store.row_sparse_pull(["a", "b"], out=out, row_ids=[[one, other], other])
    assert [array.tolist() for array in out[0]] == [expected(0, [3, 1]), expected(0, [0])]
    assert out[1][0].tolist() == expected(100, [0])


@pytest.mark.parametrize("keys, outs, ids, words", [
    (["a", "b"], 1, 2, "an out for each of 2 keys; got 1"),
    (["a", "b"], None, 1, "an out for each of 2 keys; got one array"),
    ("a", 3, 2, "row_ids for each of 3 outputs, or for all of them; got 2"),
    ("a", None, 2, "row_ids for each of 1 outputs, or for all of them; got 2")])
def test_lists_of_rows_that_do_not_fit_are_refused(keys, outs, ids, words):
    store = mx.kv.create("local")
    store.init_row_sparse("a", numpy.zeros((4, 2), numpy.float32))
    out = mx.nd.ones((4, 2)) if outs is None else [mx.nd.ones((4, 2)) for _ in range(outs)]
    with pytest.raises(tutti.InvalidArgumentError, match=words):
        store.row_sparse_pull(keys, out=out, row_ids=[mx.nd.array([0])] * ids)
    assert all((array == 1).all() for array in (out if isinstance(out, list) else [out]))
