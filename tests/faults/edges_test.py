#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The edges of a job: each way to end it, each limit, stream and file name, with each kind of
work, on one node and on two. A job is right, or says in one sentence why not and ends with a
promised code.

    edges_test.py Ends | Machine    a test

A new way, limit or name is a row of the tables below. Environment: EDGE_WORKER, the program;
FAULT_MPIRUN, the launcher and its flags; EDGE_PYTHON and EDGE_PACKAGE, an interpreter and the
folder of the package for it, where there is one.
"""

import concurrent.futures
import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import namedtuple
from pathlib import Path

import verdict

WORKER = os.environ["EDGE_WORKER"]
MPIRUN = shlex.split(os.environ["FAULT_MPIRUN"])
PYTHON = os.environ.get("EDGE_PYTHON", "")
PACKAGE = os.environ.get("EDGE_PACKAGE", "")
DEADLINE_S = 4
LIMIT_S = 600
JOBS = 4  # at once; they mostly wait
PROMISED = {1, 2, 3, 4}  # what a job ends with that says why

KINDS = ["store", "communicator", "async"]
PYTHON_KINDS = ["store", "async"]
LAYOUTS = {"one node": {}, "two nodes": {"TUTTI_RANKS_PER_NODE": "1"}}

# How a job ends of which the last rank ends by `way`, and of which all do. Words are in what the
# job says; where there are none, the launcher says it. Its code is what one of its processes ends
# with, or 128 and the signal.
End = namedtuple("End", "codes words", defaults=((),))
LEFT = End({2}, (r"rank 1 \(host \S+, pid \d+\)", "left before this call|are complete"))
THROWN = End({2}, (r"rank \d \(host \S+, pid \d+\)", "thrown in the program"))
DONE = End({0})


def by_signal(number):
    return End({128 + number})


WAYS = {  # way: (one rank ends so, all do)
    "return": (LEFT, DONE),
    "return_3": (LEFT, End({3})),
    "finalize": (LEFT, DONE),
    "exit": (LEFT, DONE),
    "exit_in_thread": (LEFT, DONE),
    "quick_exit": (End({1}), End({1})),
    "_exit": (End({1}), End({1})),
    "exec": (End({1}), End({1})),
    "abort": (by_signal(signal.SIGABRT),) * 2,
    "terminate": (End({128 + signal.SIGABRT}, ("thrown in a thread",)),) * 2,
    "throw": (THROWN, THROWN),
    "throw_int": (End({2}, ("an exception of unknown type",)),) * 2,
    "sigterm": (by_signal(signal.SIGTERM),) * 2,
    "sigint": (by_signal(signal.SIGINT),) * 2,
    "sigsegv": (by_signal(signal.SIGSEGV),) * 2,
    "sigkill": (by_signal(signal.SIGKILL),) * 2,
    "mpi_abort": (End({5}), End({5})),
}

# In Python a process that ends by itself says so to the others, whichever way it takes.
PYTHON_WAYS = {
    **{way: WAYS[way] for way in ("return", "return_3", "_exit", "exec", "abort", "throw",
                                  "sigterm", "sigsegv", "sigkill")},
    "exit": WAYS["return"],
    "sigint": (End({2}, ("KeyboardInterrupt",)),) * 2,
}

# Commands of a shell before it becomes a rank.
LIMITS = {
    "no core files": "ulimit -c 0",
    "files of 1 MiB": "ulimit -f 2048",
    "files of nothing": "ulimit -f 0",
    "files that a job needs": "ulimit -n 64",
    "too few files": "ulimit -n 12",
    "few addresses": "ulimit -v 300000",
    "no locked memory": "ulimit -l 0",
    "a stack of 256 KiB": "ulimit -s 256",
    "a data segment of 100 MB": "ulimit -d 100000",
    "no processor time to speak of": "ulimit -t 60",
    "no standard input": "exec <&-",
    "no standard output": "exec >&-",
    "no standard error": "exec 2>&-",
    "no streams": "exec <&- >&- 2>&-",
    "a full standard output": "exec >/dev/full",
    "no HOME": "unset HOME",
    "a HOME that is not there": "export HOME=/nonexistent",
    "a TMPDIR that is not there": "export TMPDIR=/nonexistent",
    "no PATH": "PATH=",
    "a locale that is not there": "export LC_ALL=xx_YY.UTF-8",
    "umask 777": "umask 777",
}

# Commands of root before the job, in a mount namespace of its own.
MOUNTS = {
    "/dev/shm of 1 MiB": "mount -t tmpfs -o size=1M none /dev/shm",
    "/dev/shm read-only": "mount -t tmpfs -o ro none /dev/shm",
    "no /sys": "umount -l /sys",
    "no /proc/self/numa_maps": "mount --bind /dev/null /proc/self/numa_maps",
    "/tmp read-only": "export TMPDIR=/var/tmp && mount --bind /tmp /tmp && "
                      "mount -o remount,bind,ro /tmp",
}

# Control groups: the controller, and its file and value in version 1 and in version 2.
CGROUPS = {
    "1.2 processors": ("cpu", ("cpu.cfs_quota_us", "120000"), ("cpu.max", "120000 100000")),
    "a tenth of a processor": ("cpu", ("cpu.cfs_quota_us", "10000"), ("cpu.max", "10000 100000")),
    "64 processes": ("pids", ("pids.max", "64"), ("pids.max", "64")),
    "4 processes": ("pids", ("pids.max", "4"), ("pids.max", "4")),
    "512 MiB": ("memory", ("memory.limit_in_bytes", str(512 << 20)),
                ("memory.max", str(512 << 20))),
}

# Files that a job writes, by names that few people choose.
NAMES = {
    "not UTF-8": b"\xff\xfe name",
    "a newline": b"first\nsecond",
    "blanks": b"  two blanks  ",
    "255 bytes": b"n" * 255,
    "256 bytes": b"n" * 256,
    "quotes": b"it's \"so\" $HOME `id`",
    "a leading dash": b"-rf",
    "percent": b"%s%n%p%r",
}
OUTPUTS = ["TUTTI_TRACE", "TUTTI_STATISTICS", "TUTTI_PROMETHEUS", "checkpoint"]


def run(program, environment, prefix=(), before=""):
    """The end of a job of two ranks; each is a shell that does `before` first.

    Its folder for temporary files is its own: ranks with "umask 777" leave folders there that
    nobody can use, and Open MPI names them by mpirun's process id, which a later job may have.
    """
    ranks = ["sh", "-c", f'{before}; exec "$@"', "sh", *program] if before else program
    exported = [word for name in environment for word in ("-x", name)]
    command = [*prefix, *MPIRUN, *exported, "-np", "2", *ranks]
    with tempfile.TemporaryDirectory(prefix="edges_test.", ignore_cleanup_errors=True) as folder:
        return subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, "TUTTI_TIMEOUT": str(DEADLINE_S),
                                   "TUTTI_LOG": "quiet", "PYTHONPATH": PACKAGE,
                                   "TMPDIR": folder, **environment})


def said(done):
    return done.stderr.decode(errors="replace")


def sentences(done):
    """The lines in which ranks said an error."""
    return [line for line in said(done).splitlines() if re.match(r"\S.*: error: ", line)]


@contextlib.contextmanager
def cgroup(controller, first_version, second_version):
    """The folder of a group of its own, with one limit."""
    root = Path("/sys/fs/cgroup")
    is_second = (root / "cgroup.controllers").exists()
    name, value = second_version if is_second else first_version
    parent = root if is_second else root / controller
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="tutti-edges-", dir=parent))
        (folder / name).write_text(value, encoding="ascii")
    except OSError as error:
        if folder:
            folder.rmdir()
        raise unittest.SkipTest(f"no control group can be made here: {error}") from error
    try:
        yield folder
    finally:
        for _ in range(100):  # until the kernel has seen its last process end
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.05)


def can_mount():
    return shutil.which("unshare") and not subprocess.run(
        ["unshare", "-m", "true"], capture_output=True, check=False).returncode


class Edges(unittest.TestCase):
    def for_each(self, cases, see, check):
        """`see(case)` of several cases at once, then `check(case, seen)` of each."""
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for case, seen in zip(cases, pool.map(see, cases)):
                with self.subTest(case=case):
                    check(case, seen)

    def right_or_one_sentence(self, done):
        """Its result, or what is in the way, of each rank at most once; nobody dies of a signal."""
        text = said(done)
        if done.returncode == 0:
            self.assertEqual(sentences(done), [], text)
            return
        self.assertIn(done.returncode, PROMISED, text)
        self.assertIn(len(sentences(done)), (1, 2), text)
        self.assertNotIn("terminate called", text)
        self.assertNotIn("Signal:", text)


class Ends(Edges):
    """One rank ends in the middle of its work, or all do."""

    def test_each_way_to_end(self):
        self.check_ways(WAYS, KINDS, [WORKER])

    def test_each_way_to_end_in_python(self):
        if not PYTHON:
            raise unittest.SkipTest("built without the package for Python")
        worker = str(Path(__file__).with_name("edge_worker.py"))
        self.check_ways(PYTHON_WAYS, PYTHON_KINDS, [PYTHON, worker])

    def check_ways(self, ways, kinds, worker):
        cases = list(itertools.product(ways, ("one", "all"), kinds, LAYOUTS))

        def see(case):
            way, who, kind, layout = case
            return run([*worker, kind, way, who], LAYOUTS[layout])

        def check(case, done):
            way, who, kind, _ = case
            expected = ways[way][who == "all"]
            text = said(done)
            self.assertIn(b"ends", done.stdout, text)
            # The code is the ranks' if they notice before the launcher does.
            codes = expected.codes | ({2} if "ended without a word" in text else set())
            if kind == "async" and way in ("return", "return_3", "finalize") and who == "all":
                codes |= {2}  # the first rank that gives its pushes up may end the others
            self.assertIn(done.returncode, codes, text)
            if done.returncode != 0:
                self.assertNotEqual(text.strip(), "", "the job ended without a word")
            if "ended without a word" not in text:
                for words in expected.words:
                    self.assertRegex(" ".join(text.split()), words)

        self.for_each(cases, see, check)


class Machine(Edges):
    """Limits of a machine, and names that files have."""

    def test_the_work_is_right_where_nothing_is_in_its_way(self):
        for kind in KINDS:
            done = run([WORKER, kind], {})
            self.assertEqual((done.returncode, b"right" in done.stdout), (0, True), said(done))

    def test_each_limit(self):
        cases = list(itertools.product(LIMITS, KINDS, LAYOUTS))

        def see(case):
            limit, kind, layout = case
            return run([WORKER, kind], LAYOUTS[layout], before=LIMITS[limit])

        def check(case, done):
            if "2>&-" in LIMITS[case[0]]:  # says nothing to anybody
                self.assertIn(done.returncode, {0} | PROMISED)
            else:
                self.right_or_one_sentence(done)

        self.for_each(cases, see, check)

    def test_each_mount(self):
        if not can_mount():
            raise unittest.SkipTest("no right to mount")
        cases = list(itertools.product(MOUNTS, KINDS, LAYOUTS, ("memfd", "shm")))

        def see(case):
            mount, kind, layout, memory = case
            return run([WORKER, kind], {**LAYOUTS[layout], "TUTTI_SHARED_MEMORY": memory},
                       prefix=["unshare", "-m", "sh", "-c", f'{MOUNTS[mount]} && exec "$@"', "sh"])

        self.for_each(cases, see, lambda _, done: self.right_or_one_sentence(done))

    def test_memory_that_is_too_small_for_snapshots(self):
        """The job is right all the same, and a warning has the sum. A snapshot is 390 KiB."""
        self.see_small_memory(lambda _: ["snapshots"], "no more snapshots are taken")

    def test_memory_that_is_too_small_for_saves_that_go_on(self):
        """They wait for the disk then."""
        with tempfile.TemporaryDirectory(prefix="edges_test.") as folder:
            self.see_small_memory(lambda case: ["save-async", f"{folder}/{'-'.join(case)}"],
                                  "until then save_async\\(\\) is save\\(\\)")

    def see_small_memory(self, words, warning):
        if not can_mount():
            raise unittest.SkipTest("no right to mount")
        lacks = {"4M": "", "600k": " 39[04] KiB", "400k": " 39[04] KiB|No space",
                 "200k": " 39[04] KiB", "8M,nr_inodes=3": "No space left"}
        cases = list(itertools.product(lacks, LAYOUTS))

        def see(case):
            size, layout = case
            mount = f'mount -t tmpfs -o mode=700,size={size} none /srv && exec "$@"'
            return run([WORKER, *words(case)],
                       {**LAYOUTS[layout], "TUTTI_SNAPSHOTS": "/srv", "TUTTI_LOG": "warning",
                        "TUTTI_SNAPSHOT_EVERY": "1e-9"},
                       prefix=["unshare", "-m", "sh", "-c", mount, "sh"])

        def check(case, done):
            lack = lacks[case[0]]
            self.assertEqual((done.returncode, b"right" in done.stdout), (0, True), said(done))
            self.assertEqual(len(re.findall(warning, said(done))), 1 if lack else 0, said(done))
            self.assertRegex(said(done), lack or "^")

        self.for_each(cases, see, check)

    def test_each_control_group(self):
        cases = list(itertools.product(CGROUPS, KINDS, LAYOUTS))

        def see(case):
            limit, kind, layout = case
            controller, *versions = CGROUPS[limit]
            with cgroup(controller, *versions) as folder:
                enter = f'echo $$ > {folder}/cgroup.procs && exec "$@"'
                return run([WORKER, kind], LAYOUTS[layout], prefix=["sh", "-c", enter, "sh"])

        def check(case, done):
            if done.returncode == 0 or case[0] != "4 processes":
                self.right_or_one_sentence(done)  # else mpirun itself may not start

        self.for_each(cases, see, check)

    def test_each_name(self):
        with tempfile.TemporaryDirectory(prefix="edges_test.") as folder:
            os.symlink("loop", os.path.join(folder, "loop"))
            names = {**NAMES, "a loop of links": b"loop"}
            cases = list(itertools.product(names, OUTPUTS))

            def see(case):
                name, output = case
                into = os.path.join(os.fsencode(folder), output.encode())
                os.makedirs(into, exist_ok=True)
                if name == "a loop of links" and not os.path.lexists(os.path.join(into, b"loop")):
                    os.symlink("loop", os.path.join(into, b"loop"))
                path = os.path.join(into, names[name])
                if output == "checkpoint":
                    return run([WORKER, "save", path], {})
                return run([WORKER, "store"], {output: os.fsdecode(path)})

            def check(case, done):
                self.right_or_one_sentence(done)
                if done.returncode == 0:
                    into = Path(folder, case[1])
                    self.assertTrue(any(Path(into).iterdir()), "nothing was written")

            self.for_each(cases, see, check)


if __name__ == "__main__":
    verdict.main()
