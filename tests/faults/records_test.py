#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -USR2 prints what a rank and its node's other ranks did last, also of one that is stopped.

Environment: as of faults_test.py.
"""

import os
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

from faults_test import MPIRUN, WORKER

LIMIT_S = 60
EXPECTED = (r"tutti: rank 1 \(host \S+, pid \d+\) is stopped",
            r"tutti:   rank 1 call 15, push of key b, 4800 bytes: done, begun \d+\.\d{3} s ago",
            r"tutti: rank 0 \(host \S+, pid \d+\) is ",
            r"tutti:   rank 0 call 1, init of key a and 1 more, 9600 bytes: done",
            r"tutti:   rank 0 call 16, push of key a, 4800 bytes: waiting for the other ranks")


def ranks_of(launcher):
    path = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return [int(child) for child in path.read_text(encoding="ascii").split()]


def rank_number(process):
    environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next(int(entry.split(b"=")[1]) for entry in environment
                if entry.startswith(b"OMPI_COMM_WORLD_RANK="))


class Records(unittest.TestCase):
    def test_sigusr2_to_a_waiting_rank_shows_the_stopped_one_and_the_job_goes_on(self):
        launcher = subprocess.Popen(
            [*MPIRUN, "--quiet", "-np", "2", WORKER, "stopped", "1"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            env={**os.environ, "TUTTI_TIMEOUT": str(LIMIT_S), "TUTTI_LOG": "quiet"})
        self.addCleanup(launcher.kill)
        while not launcher.stdout.readline().startswith("fault at"):
            self.assertIsNone(launcher.poll())
        ranks = {rank_number(process): process for process in ranks_of(launcher)}
        text = ""
        deadline = time.monotonic() + LIMIT_S / 2
        os.set_blocking(launcher.stderr.fileno(), False)
        while not all(re.search(words, text) for words in EXPECTED):
            self.assertLess(time.monotonic(), deadline, text)
            os.kill(ranks[0], signal.SIGUSR2)
            time.sleep(0.2)
            text += launcher.stderr.read() or ""
        os.kill(ranks[1], signal.SIGCONT)
        launcher.communicate(timeout=LIMIT_S)
        self.assertEqual(launcher.returncode, 0)


if __name__ == "__main__":
    unittest.main()
