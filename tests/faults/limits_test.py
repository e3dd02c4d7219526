#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A machine that does not give a job what it needs: one sentence and a documented exit code.

No rank dies of a signal.

Environment: as of faults_test.py; FAULT_SANITIZED, the sanitizers of the worker.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from faults_test import MPIRUN, WORKER

LIMIT_S = 100
KIB_OF_A_RANK = 200_000  # address space: what MPI takes, and a little


def can_mount():
    return shutil.which("unshare") and subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True,
        check=False).returncode == 0


def limited(limit, *program):
    """Each rank runs under a limit of the shell's."""
    return ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *program]


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
        words = [r"rank 0 \(host ", r"waited 1\S* s for all ranks to begin to create their store",
                 "TUTTI_TIMEOUT"]
        self.check(4, words, self.end([WORKER, "late", "1"], TUTTI_TIMEOUT="1"))

    def test_a_program_without_mpirun_is_a_job_of_one_rank(self):
        done = subprocess.run([WORKER, "takes", "1"], capture_output=True, timeout=LIMIT_S,
                              check=False, env={**os.environ, "TUTTI_LOG": "quiet"})
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main()
