#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Intel's MPI Benchmarks without and with the preloaded library: how many times faster each
collective gets, in a Markdown table.

    imb.py IMB-MPI1 [--launches 3] [--least] [--only Allreduce Bcast] [--sizes 3:23] [--log FILE]

Both ways are started in turn. A time is the slowest rank's mean, of which the median over the
launches counts, or the least, for a machine that has other work. Below the table come the classes
that got slower by more than 5 %, and how many rows have defects: a program that was built with
CPPFLAGS=-DCHECK compares the data.

Environment: PRELOAD_LIBRARY; MPIRUN, the launcher and its flags (mpirun --oversubscribe).
"""

import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import NamedTuple, Optional

MPIRUN = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe"))
COLLECTIVES = ("Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Bcast",
               "Allgather", "Allgatherv", "Gather", "Scatter", "Alltoall", "Barrier")
SHOWN = (8, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 8 << 20)
WAYS = ("without", "with")


class Row(NamedTuple):
    name: str
    bytes: int
    slowest_us: float
    defects: Optional[float]  # None where the data is not compared


def rows_of(output):
    rows, name = [], ""
    for text in output.splitlines():
        if started := re.match(r"# Benchmarking (\w+)", text):
            name = started[1]
        words = text.split()
        if not name or not words or not re.fullmatch(r"[\d.\s]+", text):
            continue
        size, words = (0, words[1:]) if name == "Barrier" else (int(words[0]), words[2:])
        defects = float(words[3]) if len(words) > 3 else None
        rows.append(Row(name, size, float(words[1]), defects))
    return rows


def launch(args, way):
    """(collective, bytes) -> microseconds of the slowest rank, and the number of bad rows."""
    command = [*MPIRUN, "-np", str(args.ranks)]
    if way == "with":
        command += ["env", f"LD_PRELOAD={os.environ['PRELOAD_LIBRARY']}"]
    command += [args.program, "-npmin", str(args.ranks), "-msglog", args.sizes, "-zero_size", "off",
                "-iter", "1000", "-iter_policy", "multiple_np", *args.only]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          check=False)
    if args.log:
        with open(args.log, "a", encoding="utf-8") as log:
            log.write(f"# {way}: {shlex.join(command)}\n{done.stdout}{done.stderr}")
    if done.returncode != 0:
        sys.exit(f"imb.py: error: {shlex.join(command)} ended with {done.returncode}: "
                 f"{done.stderr[-2000:]}")
    rows = rows_of(done.stdout)
    times = {(row.name, row.bytes): row.slowest_us for row in rows}
    bad = sum(bool(row.defects) for row in rows)
    return times, bad


def text_of(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="IMB-MPI1, built for the launcher's MPI")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--least", action="store_true", help="of the launches; else their median")
    parser.add_argument("--only", nargs="+", default=COLLECTIVES, metavar="COLLECTIVE")
    parser.add_argument("--sizes", default="3:23", metavar="LEAST:MOST", help="powers of two")
    parser.add_argument("--log", help="gets what IMB says")
    args = parser.parse_args()
    seen, bad = {way: defaultdict(list) for way in WAYS}, dict.fromkeys(WAYS, 0)
    for _ in range(args.launches):
        for way in WAYS:
            times, bad_now = launch(args, way)
            bad[way] += bad_now
            for key, time in times.items():
                seen[way][key].append(time)
    ratios, slower = {}, []
    one_of = min if args.least else statistics.median
    for key in seen["without"]:
        without, given = (max(one_of(seen[way][key]), 0.01) for way in WAYS)
        ratios[key] = without / given
        if ratios[key] < 0.95:
            slower.append(f"{key[0]} of {text_of(key[1])}: {without:.2f} us without, {given:.2f}"
                          " with")
    print("| |", *(f"{text_of(size)} |" for size in SHOWN), "mean |")
    print("|---|" + "---|" * (len(SHOWN) + 1))
    for name in args.only:
        own = {size: ratio for (kind, size), ratio in ratios.items() if kind == name}
        cells = [f"{own[size]:.2f}" if size in own else "" for size in SHOWN]
        print("|", " | ".join([name, *cells, f"{statistics.geometric_mean(own.values()):.2f}"]),
              "|")
    print(f"\nmean of all {len(ratios)}: {statistics.geometric_mean(ratios.values()):.2f};",
          f"rows with defects: {bad['without']} without, {bad['with']} with the library")
    print(f"slower: {len(slower)}", *slower, sep="\n  ")
    sys.exit(1 if bad["with"] else 0)


if __name__ == "__main__":
    main()
