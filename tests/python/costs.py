#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What calls cost from Python, beside the same calls from C++; no test, because it measures.

    PYTHONPATH=build/python build/venv/bin/python tests/python/costs.py build/tests/python_costs
"""

import statistics
import subprocess
import sys
import time

import numpy as np

import tutti

CASES = {  # what may be added to the time from C++, in microseconds
    "push": ("push of 8 float32", 1.5),
    "list": ("push of 161 arrays of 64 float32", 50),
    "view": ("view of 100 MB, as an array of NumPy", 5),
}


def measure(calls, call):
    """The median of 31 batches, in microseconds a call."""
    batches = []
    for _ in range(31):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        batches.append(1e6 * (time.perf_counter() - begin) / calls)
    return statistics.median(batches)


def in_python():
    kv = tutti.create("local")
    one = np.zeros(8, np.float32)
    kv.init(1000, one)
    keys = list(range(161))
    values = [np.zeros(64, np.float32) for _ in keys]
    kv.init(keys, values)
    kv.init(2000, np.zeros(25_000_000, np.float32))
    return {"push": measure(2000, lambda: kv.push(1000, one)),
            "list": measure(200, lambda: kv.push(keys, values)),
            "view": measure(2000, lambda: np.asarray(kv.view(2000)))}


def main():
    done = subprocess.run(sys.argv[1:2], stdout=subprocess.PIPE, text=True, check=True)
    in_cpp = {name: float(cost) for name, cost in map(str.split, done.stdout.splitlines())}
    costs = in_python()
    print(f"{'microseconds a call':<38}{'C++':>8}{'Python':>8}{'more':>8}{'goal':>8}")
    for name, (text, goal) in CASES.items():
        more = costs[name] - in_cpp[name]
        print(f"{text:<38}{in_cpp[name]:8.2f}{costs[name]:8.2f}{more:8.2f}{goal:8.1f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
