# SPDX-License-Identifier: Apache-2.0
"""The store: values in and out, updaters, optimizers, files, rows, asynchronous pushes."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest

import tutti

SHAPE = (2, 3)


def ones(factor=1.0):
    return np.full(SHAPE, factor, np.float32)


@pytest.fixture
def kv():
    store = tutti.create("dist")
    yield store
    store.close()


def test_a_push_replaces_the_value_by_the_sum_over_ranks(kv):
    kv.init(3, ones(2))
    out = ones(0)
    kv.pull(3, out)
    assert (out == 2).all()
    kv.push(3, ones(8))
    kv.pull(3, out=out)
    assert (out == 8 * kv.num_workers).all()


def test_lists_and_dicts_of_keys_have_a_value_each(kv):
    kv.init(["a", "b"], [ones(), ones()])
    kv.push({"a": ones(2), "b": [ones(3), ones(4)]})
    outs = {"a": ones(0), "b": ones(0)}
    kv.pull(outs)
    assert (outs["a"] == 2 * kv.num_workers).all()
    assert (outs["b"] == 7 * kv.num_workers).all()
    kv.push("a", [ones(), ones()])
    assert (kv.view("a").numpy() == 2 * kv.num_workers).all()


def test_pushpull_and_broadcast_write_their_outputs(kv):
    first = ones(0)
    kv.broadcast(1, ones(5), first)
    assert (first == 5).all()
    kv.pushpull(1, ones(3), first)
    assert (first == 3 * kv.num_workers).all()
    kv.pushpull(1, first)
    assert (first == 3 * kv.num_workers**2).all()


def test_an_updater_changes_what_is_stored_and_sees_the_sum(kv):
    seen = []

    def update(key, merged, stored):
        seen.append(key)
        stored += merged * 2

    kv.init([5, 7], [ones(), ones()])
    kv.set_updater(update)
    kv.push([7, 5], [ones(), ones()])
    assert seen == [5, 7]
    assert (kv.view(5).numpy() == 1 + 2 * kv.num_workers).all()


def test_an_optimizer_has_keyword_options(kv):
    kv.init(3, ones())
    kv.set_optimizer("sgd", learning_rate=0.5)
    kv.push(3, ones())
    assert (kv.view(3).numpy() == 1 - 0.5 * kv.num_workers).all()
    made = tutti.optimizer("adam", learning_rate=0.1, schedule="cosine", max_update=10)
    assert made.name == "adam" and made.learning_rate == 0.1 and "cosine" in repr(made)
    kv.set_optimizer(made)
    with pytest.raises(tutti.InvalidArgumentError, match="schedule"):
        made.learning_rate = 0.2
    with pytest.raises(tutti.InvalidArgumentError, match="momentum"):
        tutti.optimizer("sgd", momentun=0.9)


def test_gradients_are_scaled_and_skipped_if_they_are_not_finite(kv):
    kv.init(3, ones())
    assert kv.loss_scale == 1
    kv.set_optimizer("sgd", learning_rate=0.5, loss_scale="dynamic", init_scale=8)
    kv.push(3, ones(float("inf")))
    assert (kv.view(3).numpy() == 1).all()
    assert kv.loss_scale == 4
    kv.push(3, ones(4))
    assert (kv.view(3).numpy() == 1 - 0.5 * kv.num_workers).all()
    scaling = kv.gradient_scaling()
    assert scaling["skipped"] == 1 and not scaling["was_skipped"] and scaling["good_pushes"] == 1
    with pytest.raises(tutti.InvalidArgumentError, match="loss_scale=fast"):
        kv.set_optimizer("sgd", loss_scale="fast")


def test_compression_has_names_and_the_dict_of_mxnet(kv):
    kv.init(3, ones(0))
    kv.set_gradient_compression("2bit", threshold=0.5)
    kv.push(3, ones(0.7))
    assert (kv.view(3).numpy() == 0.5 * kv.num_workers).all()
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.25})
    with pytest.raises(tutti.InvalidArgumentError, match="type"):
        kv.set_gradient_compression({"threshold": 0.25})


def test_rows_are_pushed_and_pulled_alone(kv):
    kv.init_row_sparse("table", (1000, 4))
    kv.push_rows("table", np.array([7, 999]), np.ones((2, 4), np.float32))
    ids, rows = kv.pull_rows("table", np.array([999, 7, 999]))
    assert ids.numpy().tolist() == [7, 999]
    assert (rows.numpy() == kv.num_workers).all()


def test_rows_are_pulled_to_the_device_that_is_named(kv):
    kv.init_row_sparse("table", (10, 4))
    for device in ("cpu", "cpu(0)", "cpu:0"):
        ids, rows = kv.pull_rows("table", np.array([3]), device=device)
        assert ids.device == rows.device == "cpu(0)"
    for device in ("", "gpu(", "gpu(x)", "gpu(0", "gpu(-1)", "cuda:", "cuda:0)", "tpu"):
        with pytest.raises(tutti.InvalidArgumentError, match="device: expected \"cpu\""):
            kv.pull_rows("table", np.array([3]), device=device)
    with pytest.raises(tutti.InvalidArgumentError, match="gpu.1000"):
        kv.pull_rows("table", np.array([3]), device="cuda:1000")
    if tutti.num_gpus() > 0:
        ids, rows = kv.pull_rows("table", np.array([3]), device="gpu(0)")
        assert (ids.device, rows.device, rows.shape) == ("cpu(0)", "gpu(0)", (1, 4))


def test_keys_are_listed_in_order(kv):
    assert kv.keys() == []
    kv.init([7, 3], [ones(0), ones(0)])
    kv.init(5, ones(0))
    assert kv.keys() == [3, 5, 7]
    words = tutti.create("local")
    words.init(["weight", "bias"], [ones(0), ones(0)])
    assert words.keys() == ["bias", "weight"]


def test_an_optimizer_is_changed_while_an_updater_in_python_runs():
    world = tutti.Communicator.world()
    changed, slow = tutti.create(world), tutti.create(world)
    for store in (changed, slow):
        store.init(0, ones(0))
    changed.set_optimizer("sgd", learning_rate=0.5)
    slow.set_updater(lambda key, merged, stored: time.sleep(0.05))
    optimizer = changed.optimizer
    handles = [slow.push_async(0, ones()), changed.push_async(0, ones())]
    time.sleep(0.02)  # the updater runs on a thread of the library
    optimizer.learning_rate = 0.25
    assert all(handle.ready() for handle in handles)
    handles = [slow.push_async(0, ones()), changed.push_async(0, ones())]
    time.sleep(0.02)
    optimizer.set_lr_mult(0, 2.0)
    assert all(handle.ready() for handle in handles)
    assert (changed.view(0) == -(0.5 + 0.25) * world.size).all()
    slow.close()
    changed.close()


def test_a_schedule_is_set_between_pushes(kv):
    kv.init(0, ones(0))
    kv.set_optimizer("sgd", learning_rate=0.5)
    optimizer = kv.optimizer
    optimizer.set_schedule("factor", step=1, factor=0.5)
    assert optimizer.schedule == "factor"
    kv.push(0, ones())
    kv.push(0, ones())
    assert (kv.view(0) == -0.75 * kv.num_workers).all()
    optimizer.set_schedule(None)
    assert optimizer.schedule is None
    kv.push(0, ones())
    assert (kv.view(0) == -1.25 * kv.num_workers).all()
    with pytest.raises(tutti.InvalidArgumentError, match="unknown schedule 'cosin'.*cosine"):
        optimizer.set_schedule("cosin")
    with pytest.raises(tutti.InvalidArgumentError, match="max_update=0"):
        optimizer.set_schedule("cosine", max_update=0)
    assert optimizer.schedule is None


def test_asynchronous_pushes_are_handles(kv):
    kv.init([0, 1], [ones(0), ones(0)])
    handles = [kv.push_async(key, ones(), priority=-key) for key in (1, 0)]
    for handle in handles:
        handle.wait()
        assert handle.ready() and "complete" in repr(handle)
    out = ones(0)
    kv.pushpull_async(1, ones(2), out).wait()
    assert (out == 2 * kv.num_workers).all()


def test_a_handle_may_be_dropped_and_its_arrays_too(kv):
    kv.init(0, np.zeros(100000, np.float32))
    for _ in range(20):
        kv.push_async(0, np.ones(100000, np.float32), borrow=True)
    assert (kv.view(0).numpy() == kv.num_workers).all()


class Gate:
    """An updater that waits until it is opened."""

    def __init__(self):
        self.is_open, self.is_reached = threading.Event(), threading.Event()

    def __call__(self, key, merged, stored):
        self.is_reached.set()
        assert self.is_open.wait(60)


def test_arrays_of_a_call_that_is_complete_are_the_programs():
    with tutti.create("local") as kv:
        kv.init(0, ones())
        for call in (lambda value: kv.push_async(0, value, borrow=True),
                     lambda value: kv.push_async({0: value}, borrow=True)):
            value = ones()
            alive = weakref.ref(value)
            handle = call(value)
            del value
            handle.wait()
            assert alive() is None
        gate = Gate()
        kv.set_updater(gate)
        value = ones()
        alive = weakref.ref(value)
        handle = kv.push_async(0, value, borrow=True)
        del value
        assert gate.is_reached.wait(60) and not handle.ready()
        gc.collect()
        assert alive() is not None
        gate.is_open.set()


def test_arrays_outlive_a_communicator_whose_group_a_store_keeps():
    ranks = tutti.Communicator.self()
    kv = tutti.create(ranks)
    kv.init(0, ones())
    kv.set_updater(gate := Gate())
    pushed = kv.push_async(0, ones())
    assert gate.is_reached.wait(60)
    value = ones()
    alive = weakref.ref(value)
    ranks.allreduce_async(value)
    ranks.close()
    del ranks, value
    gc.collect()
    assert alive() is not None
    gate.is_open.set()
    pushed.wait()
    kv.barrier()
    kv.push_async(0, ones()).wait()
    assert alive() is None


def test_one_thread_at_a_time_is_in_a_store_also_beside_an_updater():
    busy, kv = tutti.create("local"), tutti.create("local")
    for store in (busy, kv):
        store.init(0, ones())
    busy.set_updater(gate := Gate())
    thread = threading.Thread(target=busy.push, args=(0, ones()))
    thread.start()
    try:
        assert gate.is_reached.wait(60)
        kv.set_updater(lambda key, merged, stored: busy.view(0))
        with pytest.raises(tutti.UserCodeError, match="view: another thread is in a call"):
            kv.push(0, ones())
    finally:
        gate.is_open.set()
        thread.join()
    with tutti.create("local") as other:
        other.init(0, ones())
        busy.set_updater(lambda key, merged, stored: other.push(0, busy.view(0).numpy().copy()))
        busy.push(0, ones())
        assert (other.view(0).numpy() == 1).all()


def test_what_a_communicator_tells_waits_without_the_interpreter():
    program = textwrap.dedent("""
        import threading, time
        import numpy as np
        import tutti
        ranks = tutti.Communicator.self()
        kv = tutti.create(ranks)
        kv.init(0, np.ones(3, np.float32))
        is_reached = threading.Event()
        kv.set_updater(lambda key, merged, stored: (is_reached.set(), time.sleep(0.3)))
        pushed = kv.push_async(0, np.ones(3, np.float32))
        assert is_reached.wait(60)  # by the library's thread
        assert ranks.algorithms() and ranks.statistics()["calls"]
        pushed.wait()
        print("told")
    """)
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("OMPI_", "PMI_", "PMIX_"))}
    done = subprocess.run([sys.executable, "-c", program], env=variables, text=True, timeout=600,
                          capture_output=True)
    assert done.stdout == "told\n", done.stderr


def test_objects_travel_pickled():
    ranks = tutti.Communicator.world()
    for root in (0, ranks.size - 1):
        given = {"rank": ranks.rank, "text": "x" * 100000 * ranks.rank}
        assert ranks.broadcast_object(given if ranks.rank == root else None, root)["rank"] == root
    found = ranks.allgather_object(("y" * ranks.rank, None))
    assert found == [("y" * rank, None) for rank in range(ranks.size)]
    unfit = (lambda: 0) if ranks.rank == ranks.size - 1 else 3
    with pytest.raises(tutti.UserCodeError, match=f"rank {ranks.size - 1} cannot pickle") as raised:
        ranks.allgather_object(unfit)
    assert raised.value.agreed and raised.value.reporter == (ranks.rank == ranks.size - 1)
    with pytest.raises(tutti.UserCodeError, match="rank 0 cannot pickle"):
        ranks.broadcast_object((lambda: 0) if ranks.rank == 0 else None)
    assert ranks.allgather_object(ranks.rank) == list(range(ranks.size))


def test_streams_are_of_gpus():
    for call in (lambda device: tutti.set_stream(device, 0), tutti.synchronize):
        with pytest.raises(tutti.InvalidArgumentError, match="gpu.1000"):
            call("cuda:1000")
        with pytest.raises(tutti.InvalidArgumentError, match="device: expected"):
            call("tpu")


def test_a_handle_can_be_awaited(kv):
    import asyncio

    async def train():
        await kv.push_async(0, ones(3))

    kv.init(0, ones(0))
    asyncio.run(train())
    assert (kv.view(0).numpy() == 3 * kv.num_workers).all()


def test_a_checkpoint_comes_back_with_its_metadata(kv, tmp_path):
    if kv.num_workers != 1:
        pytest.skip("ranks have directories of their own here")
    assert kv.load(tmp_path / "run", may_be_absent=True)["generation"] == 0
    kv.init(3, ones(4))
    kv.save(tmp_path / "run", {"epoch": "2"})
    kv.push(3, ones(9))
    found = kv.load(tmp_path / "run")
    assert found["metadata"] == {"epoch": "2"} and found["generation"] == 1
    assert (kv.view(3).numpy() == 4).all()
    kv.save_async(tmp_path / "run", {"epoch": "3"}).wait()
    kv.push(3, ones(9))
    kv.snapshot(tmp_path / "run")
    assert kv.load(tmp_path / "run")["from_memory"] and not kv.snapshot_when_due(tmp_path / "run")


def test_a_store_tells_what_it_is(kv):
    assert kv.type == "dist" and 0 <= kv.rank < kv.num_workers
    assert repr(kv) == f'<tutti.KVStore "dist" rank {kv.rank} of {kv.num_workers}>'
    assert kv.is_capable("optimizer") and not kv.stop_requested()
    kv.init(3, ones())
    kv.push(3, ones())
    assert any(call["call"] == "push" for call in kv.statistics()["calls"])
    assert kv.verify()["healed"] == 0
    kv.request_stop()
    kv.barrier()
    assert kv.stop_requested()


def test_a_closed_store_says_so(kv):
    kv.close()
    with pytest.raises(tutti.InvalidArgumentError, match="closed"):
        kv.barrier()


def test_a_store_is_not_closed_under_its_own_call():
    with tutti.create("local") as kv:
        kv.init(3, ones())
        kv.set_updater(lambda key, merged, stored: kv.close())
        with pytest.raises(tutti.UserCodeError, match="close: a call of this object is under way"):
            kv.push(3, ones())
    with tutti.create("local") as kv:
        with pytest.raises(tutti.Error, match="close: a call of this object is under way"):
            kv.agree(kv.close)
        kv.agree(lambda: tutti.create("local").close())  # another one
        kv.init(3, ones())
        kv.set_updater(lambda key, merged, stored: kv.close())
        with pytest.raises(tutti.UserCodeError, match="close: a call of this object is under way"):
            kv.push_async(3, ones()).wait()


def test_a_stop_is_asked_for_beside_a_push_that_waits_for_python(kv):
    kv.init(3, ones())
    kv.set_updater(lambda key, merged, stored: time.sleep(0.2))
    pending = kv.push_async(3, ones())
    kv.request_stop()
    pending.wait()
    kv.barrier()
    assert kv.stop_requested()


def test_the_optimizer_of_a_store_can_be_changed(kv):
    with pytest.raises(tutti.InvalidArgumentError, match="runs no optimizer"):
        _ = kv.optimizer
    kv.init(3, ones(0))
    kv.set_optimizer("sgd", learning_rate=1.0)
    assert kv.optimizer.name == "sgd"
    kv.optimizer.learning_rate = 0.5
    kv.push(3, ones())
    assert (kv.view(3).numpy() == -0.5 * kv.num_workers).all()
    kv.set_updater(None)
    with pytest.raises(tutti.InvalidArgumentError, match="runs no optimizer"):
        _ = kv.optimizer


def test_options_that_would_be_ignored_are_refused(kv):
    for call, text in (
            (lambda: kv.set_optimizer(tutti.optimizer("sgd"), momentum=0.5), "options go with"),
            (lambda: kv.set_gradient_compression({"type": "2bit"}, threshold=0.1), "got both"),
            (lambda: kv.init_row_sparse("e", ones(), dtype="float64"), "an array has its own")):
        with pytest.raises(tutti.InvalidArgumentError, match=text):
            call()
    kv.init_row_sparse("e", (4, 2))
    assert kv.view("e").dtype == "float32"
    kv.init_row_sparse("f", (4, 2), dtype="float64")
    assert kv.view("f").dtype == "float64"


def test_bytes_are_no_keys(kv):
    for key in (b"w", bytearray(b"w"), memoryview(b"w")):
        with pytest.raises(tutti.InvalidArgumentError, match="expected an int or a str"):
            kv.init(key, ones())


def test_what_a_generator_of_keys_raises_is_raised_on_all_ranks(kv):
    def keys():
        yield 3
        if kv.rank == kv.num_workers - 1:
            raise ValueError("no more keys")
        yield 4

    expected = ValueError if kv.rank == kv.num_workers - 1 else tutti.UserCodeError
    with pytest.raises(expected, match="no more keys"):
        kv.init(keys(), [ones(), ones()])
    kv.init([3, 4], [ones(), ones()])


def test_what_an_exception_cannot_say_is_left_out(kv):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def keys(error):
        raise error
        yield 3

    for error in (Mute(), ValueError("bad \udcff")):
        with pytest.raises(type(error)):
            kv.init(keys(error), [ones()])


def test_a_shape_beyond_any_memory_is_refused(kv):
    with pytest.raises(tutti.InvalidArgumentError, match="63 bits"):
        kv.allocate(10**30)
    with pytest.raises(tutti.OutOfMemoryError, match="no address space"):
        kv.allocate(2**62)


def test_settings_are_keyword_arguments():
    tutti.create("local", timeout=5, reproducible=True, asynchronous=False).close()
    with pytest.raises(tutti.InvalidArgumentError, match="TUTTI_TIMEOUT"):
        tutti.create("dist", timeuot=5)
    with pytest.raises(tutti.InvalidArgumentError, match="TUTTI_THREADS"):
        tutti.create("dist", threads="many")


def test_collectives_need_no_keys():
    world = tutti.Communicator.world()
    array = np.full(4, world.rank + 1.0, np.float32)
    total = world.size * (world.size + 1) / 2
    world.allreduce(array)
    assert (array == total).all()
    world.allreduce_async(array, op="max").wait()
    assert (array == total).all()
    everyone = np.zeros(world.size, np.int64)
    world.allgather(np.array([world.rank]), everyone)
    assert everyone.tolist() == list(range(world.size))
    part = np.zeros(1, np.float32)
    world.reduce_scatter(np.ones(world.size, np.float32), part)
    assert part[0] == world.size
    world.broadcast(array, 0)
    world.reduce(array, array.copy() if world.rank == 0 else None, root=0)
    world.barrier()
    alone = world.split(world.rank)
    assert alone.size == 1 and alone.job_rank == world.rank
    assert (world.subgroup([0]) is None) == (world.rank != 0)
    with pytest.raises(tutti.InvalidArgumentError, match="sum"):
        world.allreduce(array, op="mean")
