#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A notebook's cell under MXNet and under tutti.mxnet; no test, because it measures.

    python3.8 -m venv build/mxnet && build/mxnet/bin/pip install mxnet==1.9.1 numpy==1.23.5
    PYTHONPATH=build/python build/venv/bin/python tests/python/mxnet_costs.py build/mxnet/bin/python

Both run it in turn, each in a process of its own. The first argument is the interpreter that has
MXNet. Prints the p50 of the cell for arrays of several shapes, and the ratio. Each process first
takes and gives back as much memory as it will need: a virtual machine may have returned it to its
host, and new huge pages then cost 30 times as much, which is no property of either library.
"""

import mmap
import statistics
import subprocess
import sys
import time

SHAPES = [(2, 3), (100, 100), (1000, 1000)]
MEMORY = 2 << 30  # bytes: 40 cells of arrays of 4 MB, twice


def cell(mx, kv, shape, key):
    """Pushes of one array, of four contexts' and of three keys', and what comes back."""
    kv.init(key, mx.nd.ones(shape) * 2)
    a = mx.nd.zeros(shape)
    kv.pull(key, out=a)
    kv.push(key, mx.nd.ones(shape) * 8)
    kv.pull(key, out=a)
    contexts = [mx.cpu(i) for i in range(4)]
    kv.push(key, [mx.nd.ones(shape, ctx=context) for context in contexts])
    kv.pull(key, out=a)
    found = [a.asnumpy()]
    keys = [key + 1, key + 2, key + 3]
    kv.init(keys, [mx.nd.ones(shape)] * 3)
    kv.push(keys, [mx.nd.ones(shape) * 3] * 3)
    b = [mx.nd.zeros(shape) for _ in keys]
    kv.pull(keys, out=b)
    return found + [one.asnumpy() for one in b]


def times_of(mx, shape, cells):
    """Seconds of each cell; the results are looked at."""
    kv, taken = mx.kv.create("local"), []
    for number in range(cells):
        begin = time.perf_counter()
        found = cell(mx, kv, shape, 4 * number)
        taken.append(time.perf_counter() - begin)
        assert [float(one.min()) for one in found] == [4, 3, 3, 3]
        assert [float(one.max()) for one in found] == [4, 3, 3, 3]
    return taken[len(taken) // 5:]


def touch_memory():
    """So that the host has given the pages that this process will be given."""
    with mmap.mmap(-1, MEMORY, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, MEMORY, mmap.PAGESIZE):
            memory[page] = 1


def measure(name):
    touch_memory()
    if name == "tutti":
        from tutti import mxnet as mx
    else:
        import mxnet as mx
    for shape in SHAPES:
        print(1e6 * statistics.median(times_of(mx, shape, 500 if shape[0] < 1000 else 40)))


def main(interpreter):
    taken = {"mxnet": [], "tutti": []}
    for _ in range(3):
        for name, python in (("mxnet", interpreter), ("tutti", sys.executable)):
            done = subprocess.run([python, __file__, "--measure", name], check=True, text=True,
                                  stdout=subprocess.PIPE)
            taken[name].append([float(line) for line in done.stdout.split()])
    print(f"{'shape':<16}{'MXNet':>10}{'tutti':>10}{'ratio':>8}   microseconds a cell")
    for index, shape in enumerate(SHAPES):
        p50 = {name: statistics.median(row[index] for row in rows) for name, rows in taken.items()}
        print(f"{str(shape):<16}{p50['mxnet']:10.0f}{p50['tutti']:10.0f}"
              f"{p50['mxnet'] / p50['tutti']:8.1f}")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--measure":
        measure(sys.argv[2])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit(__doc__)
