#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a job does something wrong: the job ends, says why, and with the documented code.

    faults_test.py LAYOUT            one of LAYOUTS; a test
    faults_test.py --table [LAYOUT]  prints what was seen, for the README

Environment: FAULT_WORKER, the program; FAULT_MPIRUN, the launcher and its flags; FAULT_HOSTS, the
script that makes hosts.
"""

import concurrent.futures
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections import namedtuple
from pathlib import Path

import verdict

WORKER = os.environ["FAULT_WORKER"]
MPIRUN = shlex.split(os.environ["FAULT_MPIRUN"])
DEADLINE_S = 4
NEVER_S = 3600  # the deadline of faults that are seen at once, far beyond the limit
LIMIT_S = 120
REPETITIONS = 1  # how many jobs of a layout may meet a crash or hang of mpirun itself
NOT_HERE = 77

Layout = namedtuple("Layout", "ranks victim nodes environment hosts")
LAYOUTS = {
    "node2": Layout(2, 0, 1, {}, None),
    "node4": Layout(4, 2, 1, {}, None),
    "nodes2x1": Layout(2, 1, 2, {"TUTTI_RANKS_PER_NODE": "1"}, None),
    "nodes2x2": Layout(4, 3, 2, {"TUTTI_RANKS_PER_NODE": "2"}, None),
    "hosts2x2": Layout(4, 2, 2, {}, 2),
}

# `words` are in the message, with the victim for V; codes is what mpirun may end with; `when`: at
# once, or at the deadline.
Fault = namedtuple("Fault", "codes when words program_says", defaults=(True,))
PID = r"rank V \(host \S+, pid \d+\)"
# The call of the fault is 16: one for init, two in each of seven steps.
FAULTS = {
    "killed": Fault({137}, "at once", [r"rank V with PID \d+ on node \S+ exited on signal 9"],
                    False),
    "stopped": Fault({4}, "deadline", [r"call 16\b", "key a", r"rank V\b", r"pids? \d+", "waited"]),
    "aborts": Fault({134}, "at once", [r"rank V with PID \d+ on node \S+ exited on signal 6"],
                    False),
    "vanishes": Fault({1}, "at once", [r"rank V", "without calling"], False),
    "exits": Fault({2}, "at once", [r"call 16\b", "key a", r"rank V\b", r"pids? \d+",
                                    "left before this call"]),
    "throws": Fault({2}, "at once", [PID + ", after call 15, push of key b",
                                     "the data loader has no more images"]),
    "updater": Fault({2}, "at once", [PID + ", after call 16, push of key a", "in the updater",
                                      "the learning rate is not a number"]),
    "skips": Fault({2}, "at once", [r"ranks disagree in call 16\b", "push of key a", PID
                                    + " called push of key b"]),
    "order": Fault({2}, "at once", [r"ranks disagree in call 16\b", "push of key a", PID
                                    + " called push of key b"]),
    "shape": Fault({1}, "at once", [PID, "push", "key a", r"\(40, 30\)", r"\(30, 40\)"]),
    "dtype": Fault({1}, "at once", [PID, "push", "key a", "float64", "float32"]),
    "steps": Fault({2}, "at once", [r"ranks disagree in call 16\b", "push of key a", PID
                                    + " called barrier"]),
}

Seen = namedtuple("Seen", "code seconds messages err")


def command(layout, fault):
    exported = [word for name in layout.environment for word in ("-x", name)]
    quiet = ["--quiet"] if FAULTS[fault].program_says else []  # else mpirun has the message
    launcher = [*MPIRUN, *quiet, *exported, "-x", "TUTTI_TIMEOUT", "-np", str(layout.ranks)]
    if layout.hosts:
        launcher = [os.environ["FAULT_HOSTS"], str(layout.hosts), "--slots",
                    str(layout.ranks // layout.hosts), "--", *launcher]
    return [*launcher, WORKER, fault, str(layout.victim)]


def all_have_ended(launcher):
    """True if mpirun has processes and all of them are dead."""
    path = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    children = path.read_text(encoding="ascii").split()
    states = [Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
              for child in children]
    return bool(states) and set(states) == {"Z"}


def run_once(layout, fault, environment):
    """The job's end, or the way in which mpirun failed after every rank had ended."""
    with subprocess.Popen(command(layout, fault), stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.PIPE, env=environment,
                          stdin=subprocess.DEVNULL) as process:
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            ended = all_have_ended(process)
            process.kill()
            if not ended:
                raise
            return "hung beside ranks that had ended"
    if process.returncode == -signal.SIGSEGV:
        return "crashed"
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class Runner:
    """Runs the jobs of a layout. Open MPI's mpirun 4.1 may crash or hang where ranks end with an
    error. Such a run says nothing about the library, so there is another; but a user meets it,
    too, so it must stay rare."""

    def __init__(self, layout):
        self.layout = layout
        self.repeated = []
        self.lock = threading.Lock()

    def run(self, fault, environment):
        while True:
            done = run_once(self.layout, fault, environment)
            if not isinstance(done, str):
                return done
            with self.lock:
                self.repeated.append(f"{fault}: mpirun {done}")
                print(self.repeated[-1], file=sys.stderr, flush=True)
                if len(self.repeated) > REPETITIONS:
                    raise AssertionError(f"expected at most {REPETITIONS} failure of mpirun itself "
                                         f"in a layout, got {self.repeated}")


def see(runner, fault):
    """Runs the job; None if hosts cannot be made here."""
    layout = runner.layout
    deadline_s = DEADLINE_S if FAULTS[fault].when == "deadline" else NEVER_S
    environment = {**os.environ, **layout.environment, "TUTTI_TIMEOUT": str(deadline_s),
                   "TUTTI_LOG": "quiet"}
    done = runner.run(fault, environment)
    end = time.monotonic()
    if layout.hosts and done.returncode == NOT_HERE:
        print(done.stderr, file=sys.stderr)
        return None
    begin = re.search(r"fault at (\d+\.\d+)", done.stdout)
    messages = [line for line in done.stderr.splitlines()
                if line.startswith("fault_worker: error: ")]
    return Seen(done.returncode, end - float(begin[1]) if begin else None, messages, done.stderr)


def see_all(layout):
    """Several jobs at once: they mostly wait."""
    jobs = 1 if layout.hosts else 2
    runner = Runner(layout)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return dict(zip(FAULTS, pool.map(lambda fault: see(runner, fault), FAULTS)))


class Faults(unittest.TestCase):
    layout = None

    def check(self, fault, seen):
        expected = FAULTS[fault]
        self.assertIsNotNone(seen.seconds, f"the job did not come to the fault: {seen.err}")
        self.assertIn(seen.code, expected.codes, seen.err)
        if expected.when == "deadline":  # else it is so long that the job has ended without it
            self.assertGreater(seen.seconds, DEADLINE_S * 0.9)
        # Nodes that notice at the same time say so both. Where the launcher is slower than the 2 s
        # after which ranks look for each other's processes, one of them speaks, too.
        self.assertLessEqual(len(seen.messages), self.layout.nodes, seen.err)
        texts = seen.messages if expected.program_says else [" ".join(seen.err.split())]
        self.assertGreaterEqual(len(texts), 1, seen.err)
        for text in texts:
            for words in expected.words:
                self.assertRegex(text, words.replace("V", str(self.layout.victim)))

    def test_the_job_ends_and_says_why(self):
        everything = see_all(self.layout)
        if None in everything.values():
            raise unittest.SkipTest("hosts cannot be made on this machine")
        for fault, seen in everything.items():
            with self.subTest(fault=fault):
                self.check(fault, seen)


def print_table(names):
    for name in names:
        for fault, seen in see_all(LAYOUTS[name]).items():
            if seen is None or seen.seconds is None:
                sys.exit(f"{name}, {fault}: the job did not come to the fault: {seen and seen.err}")
            text = (seen.messages or seen.err.splitlines() or [""])[0]
            print(f"| {name} | {fault} | {seen.code} | {seen.seconds:.2f} s | "
                  f"{len(seen.messages)} | {text} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        print_table(sys.argv[2:] or LAYOUTS)
    else:
        Faults.layout = LAYOUTS[sys.argv.pop(1)]
        verdict.main()
