# SPDX-License-Identifier: Apache-2.0
"""Arguments of any type: an error that says what is wrong, never a crash; and no leak."""

import random
import resource

import numpy as np
import pytest

import tutti

THINGS = [None, True, 0, -1, 2**70, 1.5, "", "w", "\ud800", b"", b"12", object(), type, print, {},
          {"w": 1}, {1: None}, [], [[]], [[], [1]], (), ((),), [None], range(3), slice(1), 1j,
          np.float32(1), np.zeros(0), np.zeros((2, 3), np.float32), np.zeros((1,) * 9),
          np.zeros((2, 3)), np.array(["a"]), np.array([None]), np.zeros(3, "i4,f4"),
          np.datetime64("2020"), np.zeros((3, 2), np.float32).T, memoryview(b"abc"), float("nan")]
EXPECTED = (tutti.Error, TypeError, UnicodeEncodeError)


def test_arguments_of_any_type_give_an_error_or_work():
    chance = random.Random(7)
    for round_ in range(3000):
        if round_ % 300 == 0:
            kv = tutti.create()
            kv.init("w", np.zeros((2, 3), np.float32))
            alone = tutti.Communicator.self()
        calls = [kv.init, kv.push, kv.pull, kv.pushpull, kv.broadcast, kv.view, kv.allocate,
                 kv.push_async, kv.pushpull_async, kv.init_row_sparse, kv.push_rows, kv.pull_rows,
                 kv.set_updater, kv.set_optimizer, kv.set_gradient_compression, alone.allreduce,
                 alone.allgather, alone.reduce, alone.broadcast, alone.reduce_scatter,
                 alone.allreduce_async, alone.split, alone.subgroup, tutti.optimizer, tutti.create]
        call = chance.choice(calls)
        given = [chance.choice(THINGS) for _ in range(chance.randrange(4))]
        try:
            call(*given)
        except EXPECTED:
            pass


def test_a_hundred_thousand_calls_leave_nothing_behind():
    kv = tutti.create()
    value = np.zeros(1000, np.float32)
    kv.init(0, value)

    def cycle(times):
        for _ in range(times):
            kv.push(0, value)
            kv.pull(0, value)
            np.asarray(kv.view(0))
            with pytest.raises(tutti.Error):
                kv.view(1)

    cycle(2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cycle(25000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # KiB
