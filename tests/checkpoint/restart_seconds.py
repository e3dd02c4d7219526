#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the seconds of a restart are made of. By hand, at rest:

    tests/checkpoint/restart_seconds.py BUILD [--kills 5] [--mib 400] [--lost rank]
        [--python PYTHON]

The job has MIB of values and as much momentum, and a snapshot every second. What is lost each time:
    rank     one of 2 ranks, on this host
    remote   one of 4 ranks on two hosts, which are namespaces, on the other host
    spare    the second of these hosts, its processes, link and memory; a third one takes its place
    fewer    the same, and 2 ranks go on
PYTHON is an interpreter with torch: the same in Python, with the package in BUILD/python.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SOURCE = Path(__file__).parents[2]
LAUNCH = SOURCE / "scripts/mpirun/launch.sh"
# The launcher and its options, for what is lost.
LAUNCHERS = {
    "rank": [LAUNCH, "-np", 2],
    "remote": [SOURCE / "scripts/mpirun/hosts.sh", 2, "--rate", "10gbit", "--slots", 2, "--",
               LAUNCH],
    "spare": [SOURCE / "scripts/mpirun/hosts.sh", 3, "--rate", "10gbit", "--slots", 2, "--",
              LAUNCH, "--spares", 1],
    "fewer": [SOURCE / "scripts/mpirun/hosts.sh", 2, "--rate", "10gbit", "--slots", 2, "--",
              LAUNCH, "--min-ranks", 2],
}
PARTS = {"ended": "until mpirun has ended", "main": "launch.sh and mpirun start the programs",
         "imported": "imports", "store": "MPI_Init and the store",
         "buffers": "the program's buffers", "loaded": "load()", "pushed": "the first push"}


class Job:
    def __init__(self, words, directory):
        self.lost = words.lost
        self.parts = dict(PARTS)
        program = [words.build / "tests/checkpoint_worker", "restart"]
        if words.python:
            program = [words.python, Path(__file__).with_name("restart_worker.py")]
        else:
            del self.parts["imported"]
        command = [*LAUNCHERS[words.lost], "--max-restarts", words.kills + 1, "--snapshot-every", 1,
                   *program, directory / "run", words.mib]
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(words.build / "python"),
                 "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        self.told = []  # (what, when), in the order in which it came
        self.changed = threading.Condition()
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self.listen, args=(stream,), daemon=True).start()

    def listen(self, stream):
        for line in stream:
            what, _, when = line.partition(" ")
            if what == "launch.sh:":
                what, when = "ended", time.time()
            elif what not in self.parts:
                sys.stderr.write(line)
                continue
            with self.changed:
                self.told.append((what, float(when)))
                self.changed.notify_all()

    def wait_for(self, what, since):
        """The first time that this was told since then."""
        def found():
            return [when for name, when in self.told if name == what and when > since]
        with self.changed:
            if not self.changed.wait_for(found, timeout=120):
                sys.exit(f"nothing was told of {what}: {self.told[-10:]}")
            return found()[-1 if what in ("main", "imported") else 0]

    @staticmethod
    def ranks():
        """Process ids, of each the name of the host and the first part of the hosts' names."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                variables = dict(line.partition("=")[::2] for line in
                                 (folder / "environ").read_text(errors="replace").split("\0"))
            except OSError:
                continue
            if b"restart" in b" ".join(words) and "OMPI_COMM_WORLD_RANK" in variables:
                prefix = variables.get("HOSTS_PREFIX", "")
                found[int(folder.name)] = (host_of(folder.name), prefix)
        return found

    def lose(self):
        ranks = self.ranks()
        if self.lost in ("rank", "remote"):
            os.kill(max(ranks, key=lambda pid: (ranks[pid][0], pid)), signal.SIGKILL)
            return lambda: None
        host, prefix = max(ranks.values())
        port = ["ip", "-n", f"{prefix}-switch", "link", "set", f"port{host[-1]}"]
        subprocess.run([*port, "down"], check=True)
        for pid in output("ip", "netns", "pids", f"{prefix}-{host}").split():
            os.kill(int(pid), signal.SIGKILL)
        for path in Path(f"/dev/shm/hosts-{prefix}/{host}").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return lambda: subprocess.run([*port, "up"], check=True)

    def kill(self):
        """The seconds of each part, after what is lost."""
        time.sleep(4)  # some snapshots
        before = time.time()
        repair = self.lose()
        seconds = {}
        for part in self.parts:
            now = self.wait_for(part, before)
            seconds[part], before = now - before, now
        repair()
        return seconds

    def end(self):
        os.killpg(self.process.pid, signal.SIGTERM)  # hosts.sh waits for launch.sh
        self.process.wait()


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def host_of(pid):
    """The name of the namespace for hosts' names in which a process is, as hosts.sh gives it."""
    return output("nsenter", "--target", pid, "--uts", "uname", "-n").strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda text: Path(text).resolve())
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--mib", type=int, default=400)
    parser.add_argument("--lost", choices=LAUNCHERS, default="rank")
    parser.add_argument("--python")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="restart_seconds.") as folder:
        job = Job(words, Path(folder))
        job.wait_for("pushed", 0)
        rows = [job.kill() for _ in range(words.kills)]
        job.end()
    for part, text in job.parts.items():
        values = [row[part] for row in rows]
        print(f"{text:40} {min(values):.2f} to {max(values):.2f}, median "
              f"{statistics.median(values):.2f} s")
    sums = [sum(row.values()) for row in rows]
    print(f"{'from the loss to the end of that push':40} {min(sums):.2f} to {max(sums):.2f}, "
          f"median {statistics.median(sums):.2f} s, of {words.kills} losses")


if __name__ == "__main__":
    main()
