# SPDX-License-Identifier: Apache-2.0
"""IMB-MPI1, which comes with Intel MPI, as a check of the benchmark's column of MPI."""

import os
import re
import subprocess

from comparing.libraries import CONFIGURATIONS, Unavailable
from comparing.table import bytes_text, time_text

NAMES = {"allreduce": "Allreduce", "broadcast": "Bcast", "reduce": "Reduce"}
ROW = re.compile(r"^\s*(\d+)\s+\d+\s+[\d.]+\s+([\d.]+)\s+([\d.]+)", re.MULTILINE)


def cross_check(words, environments, comparison):
    """A line for the table: at each size IMB's mean over the ranks beside the benchmark's p50."""
    configuration = CONFIGURATIONS["intelmpi"]
    name, times = NAMES.get(words.collective), {}
    if name is None:
        return [f"IMB-MPI1: not compared, as its sizes of {words.collective} mean something else"]
    try:
        environments.require(configuration)
    except Unavailable as error:
        return [f"IMB-MPI1: {error}"]
    path = environments.path(configuration)
    ranks = comparison.conditions["ranks"]
    done = subprocess.run([path / "bin/mpiexec", "-n", ranks, path / "bin/IMB-MPI1", "-npmin",
                           ranks, "-msglog", "3:27", name], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, **environments.variables(configuration)})
    times = {int(size): float(mean) for size, _, mean in ROW.findall(done.stdout)}
    if not times:
        return [f"IMB-MPI1: exit code {done.returncode}, and no times"]
    found = []
    for line in comparison.lines:
        own, imb = line["other_us"].get("intelmpi"), times.get(line["bytes"])
        if own and imb:
            found.append(f"{bytes_text(line['bytes'])} {time_text(imb)} / {time_text(own)}")
    return ["IMB-MPI1 (mean over calls) / this benchmark (p50) of Intel MPI, microseconds: "
            + ", ".join(found)]
