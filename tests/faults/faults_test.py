#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a job does something wrong: the job ends, says why, and with the documented code.
kill -USR2 prints what ranks did last, also of one that is stopped.

    faults_test.py LAYOUT            one of LAYOUTS; a test
    faults_test.py Records | Messages | Stuck  the other tests
    faults_test.py --table [LAYOUT]  prints what was seen, for the README

Environment: FAULT_WORKER, the program; FAULT_MPIRUN, the launcher and its flags; FAULT_HOSTS, the
script that makes hosts.
"""

import concurrent.futures
import contextlib
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
LIMIT_S = 600
REPETITIONS = 1  # how many jobs of a layout may meet a crash or hang of mpirun itself
NOT_HERE = 77

Layout = namedtuple("Layout", "ranks victim nodes environment hosts mode", defaults=((),))
LAYOUTS = {
    "node2": Layout(2, 0, 1, {}, None),
    "node4": Layout(4, 2, 1, {}, None),
    "nodes2x1": Layout(2, 1, 2, {"TUTTI_RANKS_PER_NODE": "1"}, None),
    "nodes2x2": Layout(4, 3, 2, {"TUTTI_RANKS_PER_NODE": "2"}, None),
    "hosts2x1": Layout(2, 1, 2, {}, 2),
    "hosts2x2": Layout(4, 2, 2, {}, 2),
    "async2": Layout(2, 0, 1, {}, None, ("async",)),
    "async2x1": Layout(2, 1, 2, {"TUTTI_RANKS_PER_NODE": "1"}, None, ("async",)),
    "groups4": Layout(4, 3, 2, {}, None, ("groups",)),  # two groups may speak in one node
    "groups2x2": Layout(4, 3, 4, {"TUTTI_RANKS_PER_NODE": "1"}, None, ("groups",)),
}

# `words` are in the message, with the victim for V; codes is what mpirun may end with; `when`: at
# once, or at the deadline.
Fault = namedtuple("Fault", "codes when words program_says", defaults=(True,))
PID = r"rank V \(host \S+, pid \d+\)"


WITHOUT_A_WORD = PID + " ended without a word"


def gone_by(signal):
    """What is said of a rank that a signal ended. The launcher says it, with a status of its own;
    where it needs longer than the 2 s after which ranks look for each other's processes, a rank
    does, and the job ends with 2."""
    return rf"rank V with PID \d+ on node \S+ exited on signal {signal}|{WITHOUT_A_WORD}"


# The call of the fault is 16: one for init, two in each of seven steps.
FAULTS = {
    "killed": Fault({137, 2}, "at once", [gone_by(9)], False),
    "stopped": Fault({4}, "deadline", [r"call 16\b", "key a", r"rank V\b", r"pids? \d+", "waited"]),
    "aborts": Fault({134, 2}, "at once", [gone_by(6)], False),
    "vanishes": Fault({1, 2}, "at once", [r"rank V", f"without calling|{WITHOUT_A_WORD}"], False),
    "exits": Fault({2}, "at once", [r"call 16\b", "key a", r"rank V\b", r"pids? \d+",
                                    "left before this call"]),
    "finalizes": Fault({2}, "at once", [r"call 16\b", "key a", r"rank V\b", r"pids? \d+",
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

# The faults of a job whose victim has other ranks on its node, which see each other's calls.
NODE_FAULTS = {
    **FAULTS,
    "creates": Fault({2}, "half the deadline", [
        "ranks disagree: " + PID + r" has waited \S+ s for all ranks to begin to create",
        r"rank \d \(host \S+, pid \d+\) waits in call 16, push of key a"]),
}

# The faults of a job with one rank on each node: the one that creates sees that data has come, and
# the other one misses it. Either may be the first to say so.
NODES_FAULTS = {
    **FAULTS,
    "creates": Fault({4}, "deadline", [
        r"rank V\b", r"for all ranks to begin to create .* rank \d of the job has sent data that "
        r"this rank has not received|call 16\b.* key a|key a.* call 16\b"]),
}

# Pushes in another order are no fault, and a key that is skipped is missed when its rank does
# something else: the pushes of later steps take its place.
ASYNC_CALL = ["agreement on asynchronous calls", "push of key a"]
ASYNC_FAULTS = {
    **{name: FAULTS[name] for name in ("killed", "aborts", "vanishes")},
    "stopped": FAULTS["stopped"]._replace(words=[*ASYNC_CALL, r"rank V\b", r"pids? \d+", "waited"]),
    "exits": FAULTS["exits"]._replace(words=[*ASYNC_CALL, r"rank V\b", r"pids? \d+",
                                             "left before this call"]),
    "throws": FAULTS["throws"]._replace(words=[PID, "the data loader has no more images"]),
    "midway": FAULTS["throws"]._replace(words=[PID, "the data loader has no more images"]),
    "returns": Fault({2}, "at once", [PID + ": error: a store or communicator is destroyed before",
                                      r"\(push of key c"], False),
    "quits": Fault({4}, "deadline", ["asynchronous calls have waited", "push of key a",
                                     PID + " did not", "push of key c", PID + " made the call"]),
    "updater": FAULTS["updater"]._replace(words=[PID, "in the updater",
                                                 "the learning rate is not a number"]),
    "skips": FAULTS["skips"]._replace(words=["ranks disagree in call", "barrier", *ASYNC_CALL]),
    "steps": FAULTS["steps"]._replace(words=["ranks disagree in call", "barrier", *ASYNC_CALL]),
    "shape": FAULTS["shape"],
    "dtype": FAULTS["dtype"],
}

# A rank of one pair; the other pair waits for both at the job's next barrier, and may be the first
# to say so.
PAIR = r"of the group of ranks 2 and 3 of the job"
IN_PAIR = r"rank 1 \(rank V of the job, host \S+, pid \d+\)"
GROUP_FAULTS = {
    "killed": FAULTS["killed"]._replace(words=[gone_by(9) + rf"|{IN_PAIR} ended without a word"]),
    "stopped": FAULTS["stopped"]._replace(words=[
        "waited", rf"push of key a.*{PAIR}.*{IN_PAIR}|barrier .* ranks 2 and V\b"]),
    "exits": FAULTS["exits"]._replace(words=[
        "left before this call", rf"push of key a.*{PAIR}.*{IN_PAIR}|barrier .* rank V\b"]),
    "throws": FAULTS["throws"]._replace(words=[r"rank V\b", "the data loader has no more images"]),
    "skips": FAULTS["skips"]._replace(words=["ranks disagree in call", PAIR, "push of key a",
                                             IN_PAIR + " called push of key b"]),
    "shape": FAULTS["shape"]._replace(codes={1, 2}, words=[IN_PAIR, "push", "key a", r"\(40, 30\)",
                                             r"\(30, 40\)"]),
}

Seen = namedtuple("Seen", "code seconds messages err")


def faults_of(layout):
    plain = NODES_FAULTS if layout.nodes == layout.ranks else NODE_FAULTS
    return {(): plain, ("async",): ASYNC_FAULTS, ("groups",): GROUP_FAULTS}[layout.mode]


def command(layout, fault):
    exported = [word for name in layout.environment for word in ("-x", name)]
    program_says = faults_of(layout)[fault].program_says
    quiet = ["--quiet"] if program_says else []  # else mpirun has the message
    launcher = [*MPIRUN, *quiet, *exported, "-x", "TUTTI_TIMEOUT", "-np", str(layout.ranks)]
    if layout.hosts:
        launcher = [os.environ["FAULT_HOSTS"], str(layout.hosts), "--slots",
                    str(layout.ranks // layout.hosts), "--", *launcher]
    return [*launcher, WORKER, fault, str(layout.victim), *layout.mode]


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
    by_hosts = process.returncode == 128 + signal.SIGSEGV and "exited on signal 11" not in err
    if process.returncode == -signal.SIGSEGV or by_hosts:
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
    deadline_s = NEVER_S if faults_of(layout)[fault].when == "at once" else DEADLINE_S
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
        faults = faults_of(layout)
        return dict(zip(faults, pool.map(lambda fault: see(runner, fault), faults)))


class Faults(unittest.TestCase):
    layout = None

    def check(self, fault, seen):
        expected = faults_of(self.layout)[fault]
        self.assertIsNotNone(seen.seconds, f"the job did not come to the fault: {seen.err}")
        self.assertIn(seen.code, expected.codes, seen.err)
        if expected.when == "deadline":  # else it is so long that the job has ended without it
            self.assertGreater(seen.seconds, DEADLINE_S * 0.9)
        if expected.when == "half the deadline":
            self.assertGreater(seen.seconds, DEADLINE_S * 0.4)
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


EXPECTED = (r"tutti: rank 1 \(host \S+, pid \d+\) is stopped",
            r"tutti:   rank 1 call 15, push of key b, 4800 bytes: done, begun \d+\.\d{3} s ago",
            r"tutti: rank 0 \(host \S+, pid \d+\) is ",
            r"tutti:   rank 0 call 1, init of key a and 2 more, 14400 bytes: done",
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
            with contextlib.suppress(BlockingIOError):
                text += os.read(launcher.stderr.fileno(), 1 << 20).decode(errors="replace")
        os.kill(ranks[1], signal.SIGCONT)
        launcher.communicate(timeout=LIMIT_S)
        self.assertEqual(launcher.returncode, 0)


# A rank is killed in a message of 64 MiB, of which more than 1 MiB has come, and the launcher
# leaves the others alone. In the node they see that its process has ended; other nodes wait. On
# another host MPI itself may not return: Open MPI 4.1 waits for a lock that it has.
WAITED = rf"(send|receive) of \(\d+\) float32 (to|from) rank V .* waited \d.* for {PID}"
ENDED = rf"cannot read the tensor of {PID}: its process has ended|{PID} ended without a word"
IN_MPI = (r"rank \d \(host \S+, pid \d+\) has been in MPI_\w+ for \d\S* s, and MPI does not return "
          r"from it \(.*{}\); this rank ends")
IN_MESSAGE = rf"{WAITED}|{IN_MPI.format('waits in a (send to|receive from) rank V')}"
MESSAGE_FAULTS = (("nodes2x1", "sender", WAITED), ("nodes2x1", "receiver", WAITED),
                  ("node4", "sender", ENDED), ("node4", "receiver", ENDED),
                  ("hosts2x1", "sender", IN_MESSAGE), ("hosts2x1", "receiver", IN_MESSAGE))


# The launcher leaves the others alone when a rank has ended.
RECOVERY = ("--enable-recovery",)


def see_job(name, options, *arguments):
    """The end of a job, with options of mpirun."""
    layout = LAYOUTS[name]
    exported = [word for variable in layout.environment for word in ("-x", variable)]
    launcher = [*MPIRUN, *options, *exported, "-x", "TUTTI_TIMEOUT", "-x", "TUTTI_LOG",
                "-np", str(layout.ranks)]
    if layout.hosts:
        launcher = [os.environ["FAULT_HOSTS"], str(layout.hosts), "--", *launcher]
    done = subprocess.run([*launcher, WORKER, *arguments], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
                          env={**os.environ, **layout.environment,
                               "TUTTI_TIMEOUT": str(DEADLINE_S), "TUTTI_LOG": "quiet"})
    end = time.monotonic()
    begin = re.search(r"fault at (\d+\.\d+)", done.stdout)
    messages = [line for line in done.stderr.splitlines()
                if line.startswith(("fault_worker: error: ", "tutti: error: "))]
    return Seen(done.returncode, end - float(begin[1]) if begin else None, messages, done.stderr)


class Messages(unittest.TestCase):
    def test_a_rank_killed_in_a_message_is_named_by_the_others_which_end(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            jobs = [(name, fault, words,
                     pool.submit(see_job, name, RECOVERY, fault, str(LAYOUTS[name].victim),
                                 "message"))
                    for name, fault, words in MESSAGE_FAULTS]
            for name, fault, words, job in jobs:
                with self.subTest(layout=name, fault=fault):
                    self.check(LAYOUTS[name], words, job.result())

    def check(self, layout, words, seen):
        if layout.hosts and seen.code == NOT_HERE:
            return self.skipTest(seen.err)
        self.assertIsNotNone(seen.seconds, f"the job did not come to the fault: {seen.err}")
        self.assertGreaterEqual(len(seen.messages), 1, seen.err)
        self.assertRegex("\n".join(seen.messages), words.replace("V", str(layout.victim)))


class Stuck(unittest.TestCase):
    """MPI does not return from MPI_Test, on any rank: each node says so once, and the job ends."""

    def test_ranks_whose_mpi_hangs_say_so_and_end(self):
        for name in ("nodes2x1", "nodes2x2"):
            with self.subTest(layout=name):
                self.check(LAYOUTS[name], see_job(name, RECOVERY, "stuck", "0"))

    def test_the_job_ends_with_the_code_of_a_deadline(self):
        self.assertEqual(see_job("nodes2x1", (), "stuck", "0").code, 4)

    def test_who_waits_for_a_message_that_is_not_taken_names_the_rank(self):
        seen = see_job("nodes2x1", RECOVERY, "hangs", "1")
        # What rank 1 had sent before lets rank 0 through the push of key a, or not.
        words = r"push of key [ab] .* rank 0 .* waited \d\S* s for rank 1 .*, which did not arrive"
        self.assertRegex("\n".join(seen.messages), words)

    def check(self, layout, seen):
        self.assertIsNotNone(seen.seconds, f"the job did not come to the fault: {seen.err}")
        self.assertGreater(seen.seconds, DEADLINE_S * 0.9)
        self.assertGreaterEqual(len(seen.messages), 1, seen.err)
        self.assertLessEqual(len(seen.messages), layout.nodes, seen.err)
        for message in seen.messages:
            self.assertRegex(message, IN_MPI.format("call 16, push of key a.*"))


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
    elif sys.argv[1] in LAYOUTS:
        Faults.layout = LAYOUTS[sys.argv[1]]
        sys.argv[1] = "Faults"
        verdict.main()
    else:
        verdict.main()
