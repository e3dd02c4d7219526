#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A machine that does not give a job what it needs: one sentence and a documented exit code, or a
job that does without; no rank dies of a signal.

Environment: FAULT_WORKER, the program; FAULT_MPIRUN, the launcher and its flags; FAULT_SANITIZED,
the sanitizers of the worker; FAULT_REFUSED_CALLS, the library of tests/support/refused_calls.cpp.
"""

import errno
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import verdict

WORKER = os.environ["FAULT_WORKER"]
MPIRUN = shlex.split(os.environ["FAULT_MPIRUN"])
LIMIT_S = 600
GRACE_S = 1  # for a launcher to read why a rank calls MPI_Abort
FILE_BLOCKS = 40_000  # of 512 bytes, as sh counts: 20 MB
KIB_OF_DATA = 1_000_000  # what MPI and two ranks take, not what an arena could become
KIB_OF_A_RANK = 240_000  # address space: what MPI takes, and a quarter more


def can_mount():
    return shutil.which("unshare") and subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True,
        check=False).returncode == 0


def limited(limit, *program):
    """Each rank runs under a limit of the shell's."""
    return ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *program]


def refusing(calls, ranks, *program):
    """The calls of the system are refused to these ranks: "0 1", or to all of them."""
    chosen = f'case " {ranks} " in *" $OMPI_COMM_WORLD_RANK "*|"  ") ;; *) exec "$@" ;; esac; '
    library = os.environ["FAULT_REFUSED_CALLS"]
    return ["sh", "-c", f'{chosen} REFUSED_CALLS={calls} LD_PRELOAD={library} exec "$@"', "sh",
            *program]


class Limits(unittest.TestCase):
    def end(self, program, mount=None, **environment):
        """Exit code and messages of two ranks; `mount` is what a shell does before, as root in a
        mount namespace of its own."""
        command = [*MPIRUN, "--quiet", "-np", "2", *program]
        if mount:
            command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, "TUTTI_TIMEOUT": "30", "TUTTI_LOG": "quiet",
                                   **environment})
        return done.returncode, [line for line in done.stderr.splitlines()
                                 if line.startswith("fault_worker: error: ")], done.stderr

    def check(self, code, words, seen):
        """One rank says what is wrong, or all do, of what each found out alone."""
        self.assertEqual(seen[0], code, seen)
        self.assertIn(len(seen[1]), (1, 2), seen)
        for text in seen[1]:
            for word in words:
                self.assertRegex(text, word)

    def test_too_few_addresses_name_the_limit(self):
        if os.environ["FAULT_SANITIZED"]:
            raise unittest.SkipTest("sanitizers take terabytes of addresses")
        for kib, words in ((KIB_OF_A_RANK, ["address space", r"ulimit -v"]),
                           (2 * KIB_OF_A_RANK, [r"ulimit -v"])):
            with self.subTest(kib=kib):
                self.check(2, words, self.end(limited(f"-v {kib}", WORKER, "takes", "256")))

    def test_too_few_open_files_name_the_limit(self):
        for files in (8, 16):
            with self.subTest(files=files):
                self.check(2, [f"ulimit -n allows {files} open files", "ulimit -n 1024"],
                           self.end(limited(f"-n {files}", WORKER, "takes", "1")))

    def test_too_small_files_name_the_limit(self):
        self.check(2, ["node-shared memory: [0-9]+ MiB more are needed", "ulimit -f"],
                   self.end(limited(f"-f {FILE_BLOCKS}", WORKER, "takes", "64")))
        self.assertEqual(self.end(limited(f"-f {FILE_BLOCKS}", WORKER, "takes", "1"))[0], 0)

    def test_too_little_data_names_the_limit(self):
        if os.environ["FAULT_SANITIZED"]:
            raise unittest.SkipTest("sanitizers take memory of their own")
        self.assertEqual(self.end(limited(f"-d {KIB_OF_DATA}", WORKER, "takes", "1"))[0], 0)

    def test_a_small_stack_and_no_core_files_are_enough(self):
        for limit in ("-s 1024", "-c 0"):
            with self.subTest(limit=limit):
                self.assertEqual(self.end(limited(limit, WORKER, "takes", "1"))[0], 0)

    def test_what_cannot_be_reserved_leaves_no_file(self):
        if os.environ["FAULT_SANITIZED"]:
            raise unittest.SkipTest("sanitizers take terabytes of addresses")
        before = set(Path("/dev/shm").glob("tutti-*"))
        self.assertEqual(self.end(limited(f"-v {KIB_OF_A_RANK}", WORKER, "takes", "256"),
                                  TUTTI_SHARED_MEMORY="shm")[0], 2)
        self.assertEqual(self.end(limited(f"-f {FILE_BLOCKS}", WORKER, "takes", "64"),
                                  TUTTI_SHARED_MEMORY="shm")[0], 2)
        mine = {path for path in set(Path("/dev/shm").glob("tutti-*")) - before
                if not Path("/proc", path.name.split("-")[1]).exists()}
        self.assertEqual(mine, set())

    def test_where_anonymous_files_are_refused_dev_shm_is_taken(self):
        if os.environ["FAULT_SANITIZED"]:
            raise unittest.SkipTest("sanitizers want to be loaded first")
        for error in (errno.EACCES, errno.ENOSYS):
            for ranks in ("", "1"):  # all of them, or rank 1 alone
                with self.subTest(error=error, ranks=ranks):
                    command = refusing(f"memfd_create:{error}", ranks, WORKER, "takes", "1")
                    self.assertEqual(self.end(command)[0], 0)
            command = refusing(f"memfd_create:{error}", "", WORKER, "takes", "1")
            self.check(2, ["TUTTI_SHARED_MEMORY=memfd: memfd_create", "seccomp"],
                       self.end(command, TUTTI_SHARED_MEMORY="memfd"))
            self.assertEqual(self.end(command, TUTTI_SHARED_MEMORY="none")[0], 0)

    def test_no_locked_memory_is_needed(self):
        self.assertEqual(self.end(limited("-l 0", WORKER, "takes", "1"))[0], 0)

    def test_a_small_dev_shm_is_named_and_nobody_dies_of_it(self):
        if not can_mount():
            raise unittest.SkipTest("no right to mount")
        for mebibytes in (1, 3, 8, 70):  # 3: one rank has its control block, the other has not
            with self.subTest(mebibytes=mebibytes):
                mount = f"mount -t tmpfs -o size={mebibytes}M none /dev/shm"
                words = ["node-shared memory: [0-9]+ MiB more are needed", "/dev/shm"]
                self.check(2, words, self.end([WORKER, "takes", "32"], mount,
                                              TUTTI_SHARED_MEMORY="shm"))
                self.assertEqual(self.end([WORKER, "takes", "1"], mount)[0], 0)

    def test_a_dev_shm_that_cannot_be_written_is_named_or_not_needed(self):
        if not can_mount():
            raise unittest.SkipTest("no right to mount")
        mount = "mount -t tmpfs -o ro none /dev/shm"
        self.check(2, ["cannot create /dev/shm/tutti-", "Read-only file system"],
                   self.end([WORKER, "takes", "1"], mount, TUTTI_SHARED_MEMORY="shm"))
        self.assertEqual(self.end([WORKER, "takes", "1"], mount)[0], 0)

    def test_a_checkpoint_that_cannot_be_written_names_the_place(self):
        with tempfile.TemporaryDirectory(prefix="limits_test.") as name:
            folder = Path(name)
            (folder / "file").touch()
            for path in (folder / "no" / "folder", folder / "file"):
                self.check(2, [re.escape(str(path))], self.end([WORKER, "saves", str(path)]))
            if can_mount():
                self.check(2, [re.escape(name), "Read-only file system"],
                           self.end([WORKER, "saves", str(folder / "run")],
                                    f"mount -t tmpfs -o ro none {name}"))

    def test_a_rank_that_does_not_create_its_store_in_time_ends_the_job(self):
        words = [r"rank 0 \(host ", "TUTTI_TIMEOUT",
                 r"waited [56]\S* s for all ranks to begin to create their store"]
        self.check(4, words, self.end([WORKER, "late", "1"], TUTTI_TIMEOUT="5"))

    def test_a_program_without_mpirun_is_a_job_of_one_rank(self):
        done = subprocess.run([WORKER, "takes", "1"], capture_output=True, timeout=LIMIT_S,
                              check=False, env={**os.environ, "TUTTI_LOG": "quiet"})
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_a_rank_that_aborts_leaves_time_to_read_its_reason_but_not_without_end(self):
        begin = time.monotonic()
        with subprocess.Popen([WORKER, "throws", "0"], stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "TUTTI_LOG": "quiet"}) as program:
            program.wait(LIMIT_S)  # as a launcher that does not read
            self.assertGreater(time.monotonic() - begin, GRACE_S)
            self.assertIn("the data loader has no more images", program.stderr.read())


if __name__ == "__main__":
    verdict.main()
