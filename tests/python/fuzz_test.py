# SPDX-License-Identifier: Apache-2.0
"""Arguments of any type: an error that says what is wrong, never a crash; and no leak."""

import random
import resource
import sys
from collections import UserList, deque
from pathlib import Path

import numpy as np
import pytest

import tutti

THINGS = [None, True, 0, -1, 2**70, 1.5, "", "w", "\ud800", b"", b"12", object(), type, print, {},
          {"w": 1}, {1: None}, [], [[]], [[], [1]], (), ((),), [None], range(3), slice(1), 1j,
          np.float32(1), np.zeros(0), np.zeros((2, 3), np.float32), np.zeros((1,) * 9),
          np.zeros((2, 3)), np.array(["a"]), np.array([None]), np.zeros(3, "i4,f4"),
          range(0), deque(), UserList([]), UserList([np.zeros(3, np.float32)] * 2),
          np.datetime64("2020"), np.zeros((3, 2), np.float32).T, memoryview(b"abc"), float("nan")]
NAMES = ["keys", "values", "out", "priority", "borrow", "cast", "shape", "dtype", "op", "root",
         "timeout", "threads", "learning_rate", "metadata", "stream", "max_version", "type", ""]
# ImportError: bfloat16 as an array of NumPy where there is no ml_dtypes.
EXPECTED = (tutti.Error, TypeError, UnicodeEncodeError, ImportError)


class Hostile:
    """Answers every question of the protocols with what no library would."""

    def __init__(self, answer):
        self._answer = answer

    def _reply(self, *_, **__):
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    __index__ = __iter__ = __str__ = __len__ = __getitem__ = __dlpack__ = __fspath__ = _reply
    __dlpack_device__ = keys = values = _reply
    dtype = name = property(_reply)


class Shrinks(list):
    """A list that is another one whenever it is looked at."""

    def __iter__(self):
        self[:] = self[:-1]
        return super().__iter__()


def things(kv):
    """Beside THINGS: arrays of the library, and objects that break the rules."""
    used = np.zeros(3, np.float32).__dlpack__()
    return THINGS + [kv.allocate(3), kv.allocate((2, 3), "bfloat16"), kv.view("w"),
                     Hostile(KeyError("no")), Hostile(3), Hostile(None), Hostile(used),
                     Hostile("w"), Hostile([1]), Shrinks(["w", "w"]), "/dev/null/run", b"\xff",
                     "w" * 5000, "w\0w", [1] * 100, {Hostile(KeyError("no")): 1}]


def test_arguments_of_any_type_give_an_error_or_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance = random.Random(7)
    for round_ in range(6000):
        if round_ % 300 == 0:
            kv = tutti.create()
            kv.init("w", np.zeros((2, 3), np.float32))
            alone = tutti.Communicator.self()
            own = kv.allocate((2, 3))
            optimizer = tutti.optimizer("sgd")
            given_things = things(kv)
        calls = [kv.init, kv.push, kv.pull, kv.pushpull, kv.broadcast, kv.view, kv.allocate,
                 kv.push_async, kv.pushpull_async, kv.init_row_sparse, kv.push_rows, kv.pull_rows,
                 kv.set_updater, kv.set_optimizer, kv.set_gradient_compression, alone.allreduce,
                 alone.allgather, alone.reduce, alone.broadcast, alone.reduce_scatter,
                 alone.allreduce_async, alone.split, alone.subgroup, tutti.optimizer, tutti.create,
                 kv.save, kv.load, kv.save_optimizer_states, kv.load_optimizer_states, kv.agree,
                 kv.is_capable, kv.verify, kv.statistics, alone.allocate, alone.agree,
                 tutti.Communicator.from_mpi, optimizer.set_lr_mult, optimizer.set_wd_mult,
                 own.__dlpack__, own.__dlpack_device__, tutti.Communicator.self]
        call = chance.choice(calls)
        given = [chance.choice(given_things) for _ in range(chance.randrange(4))]
        named = {chance.choice(NAMES): chance.choice(given_things)} if chance.random() < .3 else {}
        try:
            call(*given, **named)
        except TypeError as error:
            assert "\n" not in str(error)
        except EXPECTED:
            pass
        except KeyError as error:
            assert error.args == ("no",)  # a hostile one's own


@pytest.mark.parametrize("call, text", [
    ("kv.push()", "push: expected (keys: object | None, values: object | None = None, "
     "priority: int = 0); got ()"),
    ("kv.push(1, own, priority='x')", "push: expected (keys: object | None, values: object | None "
     "= None, priority: int = 0); got (int, tutti.Array, priority: str)"),
    ("kv.barrier(3)", "barrier: expected (); got (int)"),
    ("kv.barrier(deep=3)", "barrier: expected (); got (deep: int)"),
    ("tutti.Communicator.self().split('a')",
     "split: expected (color: int, key: int = 0); got (str)"),
    ("tutti.optimizer(3)", "optimizer: expected (name: str, **options); got (int)"),
    ("setattr(tutti.optimizer('sgd'), 'learning_rate', 'x')",
     "value of an attribute: expected (arg: float, /); got (str)"),
    ("tutti.KVStore()", "tutti._core.KVStore: no constructor defined!")])
def test_arguments_of_other_types_are_refused_in_one_sentence(call, text):
    kv = tutti.create()
    with pytest.raises(TypeError) as caught:
        eval(call, {"kv": kv, "own": kv.allocate(3), "tutti": tutti})
    assert str(caught.value) == text


@pytest.mark.parametrize("change", [
    "kv[3]", "own['a']", "own[5, 5]", "own.fill('x')", "own += 'x'", "own @ 3", "own[...] = 'x'",
    "memoryview(view)[0] = 1", "own.__dlpack__(max_version='1')", "own.__dlpack__(max_version=())",
    "own.__dlpack__(max_version=(None, None))", "float(own)",
    "bool(own.numpy())", "view[...] = 1", "kv.rank = 3", "tutti.Array()", "tutti.Pending()",
    "tutti.KVStore()", "del kv.rank", "own.shape = 3"])
def test_misuse_of_an_object_is_an_exception_of_python(change):
    kv = tutti.create()
    kv.init("w", np.zeros((2, 3), np.float32))
    with pytest.raises((TypeError, ValueError, IndexError, AttributeError, BufferError)):
        exec(change, {"kv": kv, "own": kv.allocate((2, 3)), "view": kv.view("w"), "tutti": tutti})


def resident_kib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


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
    grown = []
    for _ in range(3):  # a leak is there each time; a heap that grows once is none
        before = resident_kib(), sys.getallocatedblocks()
        cycle(25000)
        grown.append((resident_kib() - before[0], sys.getallocatedblocks() - before[1]))
        if grown[-1][0] < 1024 and grown[-1][1] < 1000:  # KiB: 40 bytes for each cycle
            return
    pytest.fail(f"KiB and blocks that were left behind: {grown}")
