# SPDX-License-Identifier: Apache-2.0
"""Starts the programs, and makes a small data set for them.

Environment: APPS_BIN, the folder of the programs; APPS_MPIRUN, the launcher and its flags.
"""

import contextlib
import gzip
import os
import random
import shlex
import struct
import subprocess
import tempfile
import time
import unittest
from collections import namedtuple
from pathlib import Path

TIMEOUT_S = 600  # a program that hangs fails its test long before ctest ends the whole file

Result = namedtuple("Result", "code out err")


def program(name):
    return str(Path(os.environ["APPS_BIN"]) / name)


def mpirun(ranks, command):
    """Quiet where it can be: mpirun's remarks about exit codes would hide what programs print."""
    quiet = shlex.split(os.environ.get("APPS_QUIET", "--quiet"))
    return [*shlex.split(os.environ["APPS_MPIRUN"]), *quiet, "-np", str(ranks), *command]


def let_plot():
    """plot.py draws, by a stand-in where this machine has no matplotlib."""
    has_one = subprocess.run(["python3", "-c", "import matplotlib"], capture_output=True,
                             check=False).returncode == 0
    if not has_one:
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "support/stand_in")


def run(name, *arguments, ranks=None):
    """Runs a program alone (ranks None) or with mpirun."""
    command = [program(name), *map(str, arguments)]
    return run_command(command if ranks is None else mpirun(ranks, command))


def run_command(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S,
                          stdin=subprocess.DEVNULL, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def ranks_of(launcher):
    """The process ids of the ranks that a running mpirun has started."""
    path = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return [int(child) for child in path.read_text(encoding="ascii").split()]


def send(processes, number):
    """A signal to these of a job that still run: one that ends takes others with it."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def runs(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"  # neither waited for nor dead


def wait_for_ends(processes):
    """Waits until none of these runs: a killed mpirun ends before the ranks that it started."""
    deadline = time.monotonic() + TIMEOUT_S
    while any(map(runs, processes)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes still run of which each was to end: {processes}")
        time.sleep(0.01)


def exit_codes(ranks, script, *arguments):
    """Runs a shell script on every rank; (each rank's own exit code, standard error).

    mpirun reports one code for the job and ends the other ranks; here each shell reports its own
    rank's and ends with 0.
    """
    wrapped = f'( {script} ); echo "exit $?"'
    result = run_command(mpirun(ranks, ["sh", "-c", wrapped, "sh", *map(str, arguments)]))
    codes = [int(line.split()[1]) for line in result.out.splitlines() if line.startswith("exit ")]
    return codes, result.err


def _idx(path, extents, data):
    header = bytes([0, 0, 8, len(extents)]) + struct.pack(f">{len(extents)}I", *extents)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + bytes(data))


class TrainingTest(unittest.TestCase):
    """Has a folder for the files of a class, with a small data set in `data`."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix=f"{cls.__name__.lower()}_test.")
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        (cls.root / "data").mkdir()
        write_data(cls.root / "data")


def write_data(folder, train=1000, test=200):
    """Images of ten classes: a bright row band per class, under noise that hides it at times."""
    source = random.Random(5)
    for name, count in (("train", train), ("t10k", test)):
        labels = [source.randrange(10) for _ in range(count)]
        pixels = bytearray()
        for label in labels:
            image = bytearray(source.randbytes(28 * 28))
            for position in range(label * 56, label * 56 + 112):
                image[position] = min(255, image[position] + 100)
            pixels += image
        _idx(Path(folder) / f"{name}-images-idx3-ubyte.gz", (count, 28, 28), pixels)
        _idx(Path(folder) / f"{name}-labels-idx1-ubyte.gz", (count,), labels)
