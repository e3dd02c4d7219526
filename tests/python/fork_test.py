# SPDX-License-Identifier: Apache-2.0
"""Processes that a rank forks, such as the workers of a DataLoader: they read arrays in the store's
memory, are told that they are no ranks, and end without a trace in their parent's job."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import tutti

SHAPE = (300, 1000)  # more than a page


@pytest.fixture(params=["dist", "local"])
def kv(request):
    store = tutti.create(request.param)
    store.init("w", np.full(SHAPE, 2, np.float32))
    yield store
    store.close()


def in_child(body):
    """What `body()` gives or raises in a forked process, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(body())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the child crashed"
    return text


def push_all(kv, factor):
    kv.push("w", np.full(SHAPE, factor, np.float32))
    return (np.asarray(kv.view("w")) == factor * kv.num_workers).all()


def test_a_child_reads_what_lies_in_the_stores_memory(kv):
    view = kv.view("w")
    shown = np.asarray(view)
    own = kv.allocate(SHAPE)
    own[...] = 7
    assert in_child(lambda: float(shown.sum())) == str(2.0 * shown.size)
    assert in_child(lambda: float(own.numpy().max())) == "7.0"
    assert in_child(lambda: np.from_dlpack(view)[0, 0]) == "2.0"
    assert in_child(lambda: (kv.rank, kv.num_workers)) == str((kv.rank, kv.num_workers))
    assert push_all(kv, 3)


@pytest.mark.parametrize("call", [
    lambda kv: kv.push("w", np.ones(SHAPE, np.float32)), lambda kv: kv.view("w"),
    lambda kv: kv.pull("w", np.ones(SHAPE, np.float32)), lambda kv: kv.barrier(),
    lambda kv: kv.allocate(3), lambda kv: kv.request_stop(), lambda kv: kv.stop_requested(),
    lambda kv: kv.push_async("w", np.ones(SHAPE, np.float32)), lambda kv: kv.save("run")])
def test_a_call_of_a_child_is_one_sentence(kv, call):
    text = in_child(lambda: call(kv))
    assert text.startswith("InvalidArgumentError: ") and "this process was forked" in text
    assert 'tutti.create("local")' in text
    assert push_all(kv, 3)


def test_a_communicator_says_so_too():
    world = tutti.Communicator.world()
    for call in (world.barrier, world.algorithms, world.statistics, world.stop_requested,
                 world.request_stop, lambda: world.allocate(3), lambda: world.split(0)):
        assert "this process was forked" in in_child(call)
    world.barrier()


def test_a_child_makes_no_store_over_a_communicator_and_awaits_nothing():
    ranks = tutti.Communicator.self()
    assert "create: this process was forked" in in_child(lambda: tutti.create(ranks))
    kv = tutti.create(ranks)
    kv.init("w", np.ones(3, np.float32))
    is_open = threading.Event()
    kv.set_updater(lambda key, merged, stored: is_open.wait(60))
    handle = kv.push_async("w", np.ones(3, np.float32))
    assert "wait: this process was forked" in in_child(handle.wait)
    assert "ready: this process was forked" in in_child(handle.ready)
    is_open.set()
    handle.wait()
    assert in_child(lambda: (handle.ready(), handle.wait())) == "(True, None)"


def test_a_child_may_have_a_local_store_and_no_other():
    kv = tutti.create("dist")

    def local():
        own = tutti.create("local")
        own.init(0, np.ones(3, np.float32))
        own.push(0, np.full(3, 5, np.float32))
        return own.view(0).numpy().tolist()

    assert in_child(local) == "[5.0, 5.0, 5.0]"
    text = in_child(lambda: tutti.create("dist"))
    assert "was forked by a rank (pid" in text and '"local"' in text
    kv.barrier()


def test_a_child_drops_what_it_has_inherited(kv):
    views = [kv.view("w"), kv.allocate(SHAPE), kv.push_async("w", np.ones(SHAPE, np.float32))]
    views[-1].wait()

    def drop():
        views.clear()
        kv.close()
        gc.collect()
        return "dropped"

    assert in_child(drop) == "dropped"
    assert push_all(kv, 4)


def _total(index):
    return float(_shared_view[index].sum())


_shared_view = None


def test_workers_end_where_a_job_waits_for_signals(kv):
    global _shared_view
    _shared_view = np.asarray(kv.view("w"))
    with tutti.PreemptionSignals() as signals:
        with multiprocessing.get_context("fork").Pool(2) as workers:
            assert workers.map(_total, range(4)) == [2.0 * SHAPE[1]] * 4
        # Leaving the block sends SIGTERM to the workers, and waits for them.
        assert not signals.received()
    assert push_all(kv, 5)


def test_a_child_that_ends_as_a_program_does_leaves_mpi_alone():
    program = textwrap.dedent("""
        import os, sys
        import numpy as np
        import tutti
        kv = tutti.create("dist")
        kv.init(0, np.ones(3, np.float32))
        view = kv.view(0)
        child = os.fork()
        if child == 0:
            sys.exit(int(view.numpy()[0]) + 4)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        kv.push(0, np.full(3, 5, np.float32))
        print(status, kv.view(0).numpy()[0])
    """)
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("OMPI_", "PMI_", "PMIX_"))}
    done = subprocess.run([sys.executable, "-c", program], env=variables, text=True, timeout=600,
                          capture_output=True)
    assert done.stdout == "5 5.0\n", done.stderr


def test_signals_do_in_a_child_what_they_did_before():
    with tutti.PreemptionSignals():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
