#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills ranks, mpirun, launch.sh and hosts at random moments: each job ends as promised.

After a kill launch.sh starts the job again, or, if it was killed itself, this test does. A job that
has ended has the bits of one that nothing has disturbed, and has left no process and no file in
/dev/shm. So that both can be seen, and no other process can be hit, all of this runs in namespaces
of its own for processes, mounts and network.

Environment: KILLS, how many (12); KILLS_SEED, from which victims and moments follow (1).
"""

import collections
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import launcher
import programs
import verdict
from job_test import TRAIN, children, training

KILLS = int(os.environ.get("KILLS", "12"))
SEED = int(os.environ.get("KILLS_SEED", "1"))
EPOCHS = 250
MOST_DELAY_S = 1.5  # a start takes a third of that
END_S = 60          # by which what a kill has to end has ended
# A launcher that can start nothing any more is ended after 10 times the grace.
SETTINGS = {"TUTTI_REPRODUCIBLE": "1", "TUTTI_TIMEOUT": "10", "TUTTI_GRACE": "3"}
# Of one host, and how often each comes; then of three hosts, the third of which is a spare.
VICTIMS = {"rank": 8, "mpirun": 3, "launch.sh": 2, "launch.sh and mpirun": 2, "all processes": 1}
HOSTS_VICTIMS = {"rank of any host": 3, "processes of a host": 3, "host": 3, "link of a host": 1}
HOSTS_SHARE = 0.3  # of the jobs are on several hosts
STARTED_AGAIN = re.compile(r"^launch\.sh: the job ended with \d+; restart ", re.MULTILINE)
# Runs a job, and says then what the hosts that can be reached have in memory.
AND_LOOK = """
"$@"
code=$?
while read -r host _; do
  $OMPI_MCA_plm_rsh_agent $host ls -A /dev/shm </dev/null
done <$OMPI_MCA_orte_default_hostfile >%s 2>/dev/null
exit $code
"""
THREE_ENDS = "launch.sh: the job ended three times at push "


class Process(collections.namedtuple("Process", "pid words variables")):
    @property
    def is_rank(self):
        return self.words[0] == TRAIN and "OMPI_COMM_WORLD_RANK" in self.variables

    @property
    def is_mpirun(self):
        return Path(self.words[0]).name == Path(os.environ["LAUNCH_MPIRUN"]).name


def processes():
    """What runs here beside this test, which the init process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid in (1, os.getpid()) or not programs.runs(pid):
            continue
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            variables = dict(line.partition("=")[::2] for line in
                             (folder / "environ").read_text(errors="replace").split("\0"))
            if words[0]:
                found.append(Process(pid, words, variables))
    return found


def descendants(pids):
    """Those of a start that is over may still run on a host that is cut off."""
    found = [child for pid in pids for child in children(pid)]
    return found + descendants(found) if found else []


class Job:
    """One directory of checkpoints; started again and again until it has ended by itself."""

    def __init__(self, folder, on_hosts):
        self.folder, self.directory = folder, folder / "run"
        self.process, self.log, self.ends = None, folder / "errors", 0
        self.cut = None  # the link that is, as words of ip
        self.left = folder / "left"
        words = training(folder.parent, self.directory, EPOCHS, 100)
        options = ["--max-restarts", "9999", "--snapshot-every", "0.02"]
        self.command = [launcher.LAUNCH, *options, "-np", "2", *words]
        if on_hosts:
            self.command = [str(launcher.SCRIPTS / "hosts.sh"), "3", "--", "bash", "-c",
                            AND_LOOK % self.left, "bash", launcher.LAUNCH, *options, "--spares",
                            "1", *words]

    def start(self):
        self.ends = 0
        with open(self.log, "w", encoding="utf-8") as log, \
                open(self.folder / "output", "a", encoding="utf-8") as output:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=log,
                start_new_session=True, env=launcher.environment(**SETTINGS))

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def has_ended(self):
        return self.process.poll() is not None

    def was_started_again(self):
        return len(STARTED_AGAIN.findall(self.said())) > self.ends


class Kills(launcher.Folder):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.kills = collections.Counter()
        self.outcomes = collections.Counter()
        self.whole = None

    def test_jobs_whose_processes_are_killed_end_with_the_same_bits_and_leave_nothing(self):
        self.whole = self.weights_of_an_undisturbed_run()
        jobs = 0
        while self.kills.total() < KILLS:
            on_hosts = self.random.random() < HOSTS_SHARE
            folder = self.folder / f"job{jobs}"
            folder.mkdir()
            jobs += 1
            self.disturb(Job(folder, on_hosts), HOSTS_VICTIMS if on_hosts else VICTIMS)
            shutil.rmtree(folder)
            print(f"seed {SEED}: {self.kills.total()} kills in {jobs} jobs: {dict(self.kills)}; "
                  f"{dict(self.outcomes)}", file=sys.stderr)

    def weights_of_an_undisturbed_run(self):
        directory = self.folder / "whole"
        result = launcher.launch("-np", 2, *training(self.folder, directory, EPOCHS, 100),
                                 **SETTINGS)
        self.assertEqual(result.code, 0, result.err)
        return launcher.weights(directory)

    def disturb(self, job, victims):
        """Runs the job to its end, under kills as long as some are left."""
        job.start()
        while not job.has_ended():
            self.wait_until(job.has_ended, self.random.uniform(0, MOST_DELAY_S))
            name = self.random.choices(list(victims), list(victims.values()))[0]
            if self.kills.total() < KILLS and not job.has_ended():
                self.kill(job, name)
            elif not job.has_ended():
                self.wait_until(job.has_ended, END_S)
                self.assertTrue(job.has_ended(), job.said())
        self.check_end(job)

    def wait_until(self, is_so, seconds):
        deadline = time.monotonic() + seconds
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.002)
        return is_so()

    # --- a kill -----------------------------------------------------------------------------------

    def kill(self, job, name):
        """Kills what has this name, if there is such a process now, and waits for what follows."""
        job.ends = len(STARTED_AGAIN.findall(job.said()))
        if name in ("launch.sh", "launch.sh and mpirun", "all processes"):
            self.kill_launch_sh(job, name)
            return
        running = processes()
        mpiruns = [process.pid for process in running if process.is_mpirun]
        started = set(descendants(mpiruns))
        if "host" in name and "rank" not in name:
            sent = self.kill_host(job, running, started, name)
        elif name == "mpirun":
            sent = self.send(mpiruns, name)
        else:
            ranks = [process.pid for process in running
                     if process.is_rank and process.pid in started]
            sent = ranks and self.send([self.random.choice(ranks)], name)
        if not sent:
            return
        is_seen = self.wait_until(lambda: job.was_started_again() or job.has_ended(), END_S)
        self.assertTrue(is_seen, f"nothing follows after the kill of {name}: {job.said()}")
        self.outcomes["started again" if job.was_started_again() else "ended"] += 1

    def send(self, victims, name):
        """Whether any of the victims was there to be killed."""
        sent = 0
        for pid in victims:
            if programs.runs(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    sent += 1
        if sent:
            self.kills[name] += 1
        return sent

    def kill_host(self, job, running, started, name):
        """Whether there was a host with a rank, other than the one where launch.sh is.

        A host loses its link, its processes and its memory. Its link, and one that was cut alone,
        is there again when the next one is cut.
        """
        prefix = prefix_of(running)
        hosts = [f"{prefix}-h{index}" for index in (1, 2)] if prefix else []
        pids = {host: [int(pid) for pid in ip("netns", "pids", host).split()] for host in hosts}
        hosts = [host for host in hosts if started.intersection(pids[host])]
        if not hosts:
            return False
        host = self.random.choice(hosts)
        if name != "processes of a host":
            if job.cut:
                ip(*job.cut, "up")
            job.cut = ["-n", f"{prefix}-switch", "link", "set", f"port{host[-1]}"]
            ip(*job.cut, "down")
        if name == "link of a host":
            self.kills[name] += 1
            return True
        is_sent = self.send(pids[host], name)
        if name == "host":
            for path in Path(f"/dev/shm/hosts-{prefix}/h{host[-1]}").iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return is_sent

    def kill_launch_sh(self, job, name):
        """Its mpirun goes on without it, if it is left. The next start removes the memory."""
        running = processes()
        pids = [job.process.pid]
        if name == "launch.sh and mpirun":
            pids += [process.pid for process in running if process.is_mpirun]
        elif name == "all processes":
            pids = [process.pid for process in running]
        if not self.send(pids, name):
            return
        job.process.wait()
        is_alone = self.wait_until(lambda: not processes(), END_S)
        self.assertTrue(is_alone, f"after the kill of {name} there are {processes()}")
        left = sorted(os.listdir("/dev/shm"))
        job.start()
        self.outcomes["started by the test"] += 1
        self.wait_until(lambda: job.has_ended() or any(p.is_rank for p in processes()), END_S)
        still = [path for path in left if os.path.exists(f"/dev/shm/{path}")]
        self.assertEqual(still, [], f"left by the job before, after the kill of {name}")

    # --- the end ----------------------------------------------------------------------------------

    def check_end(self, job):
        if job.process.returncode != 0:
            self.assertIn(THREE_ENDS, job.said(), job.process.returncode)
            self.outcomes["three ends at one push"] += 1
            job.start()
            self.assertTrue(self.wait_until(job.has_ended, END_S), job.said())
            self.assertEqual(job.process.returncode, 0, job.said())
        self.assertEqual(launcher.weights(job.directory), self.whole)
        self.assertTrue(self.wait_until(lambda: not processes(), END_S), processes())
        self.assertEqual(os.listdir("/dev/shm"), [])
        if job.left.exists():
            self.assertEqual(job.left.read_text(encoding="utf-8"), "", job.said())


def prefix_of(running):
    """The first part of the hosts' names, which the processes of hosts.sh have."""
    return next((process.variables["HOSTS_PREFIX"] for process in running
                 if "HOSTS_PREFIX" in process.variables), None)


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False).stdout


def enter_namespaces():
    """Starts this file again in namespaces; bash is their init process, which awaits orphans."""
    prepare = ("mount -t tmpfs tmpfs /dev/shm && mkdir -p /run/netns && "
               "mount -t tmpfs tmpfs /run/netns && \"$@\"; exit $?")
    enter = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child", "bash", "-c",
             prepare, "bash"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: no right to make namespaces for processes and mounts", file=sys.stderr)
        sys.exit(77)
    os.environ["KILLS_INSIDE"] = "yes"
    os.execvp("unshare", [*enter, sys.executable, "-B", *sys.argv])


if __name__ == "__main__":
    if os.environ.get("KILLS_INSIDE") != "yes":
        enter_namespaces()
    verdict.main()
