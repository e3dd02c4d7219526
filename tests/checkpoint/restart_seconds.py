#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the seconds of a restart are made of, after a rank was killed. By hand, at rest:

    tests/checkpoint/restart_seconds.py BUILD [KILLS [MIB]]

The job of 2 ranks has MIB (400) of values and as much momentum, and a snapshot every second.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SOURCE = Path(__file__).parents[2]
PARTS = {"ended": "until mpirun has ended", "main": "launch.sh and mpirun start the programs",
         "store": "MPI_Init and the store", "buffers": "the program's buffers",
         "loaded": "load()", "pushed": "the first push"}


class Job:
    def __init__(self, build, directory, mib, kills):
        command = [SOURCE / "scripts/mpirun/launch.sh", "--max-restarts", kills + 1,
                   "--snapshot-every", 1, "-np", 2, build / "tests/checkpoint_worker", "restart",
                   directory / "run", mib]
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        self.told = []  # (what, when), in the order in which it came
        self.changed = threading.Condition()
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self.listen, args=(stream,), daemon=True).start()

    def listen(self, stream):
        for line in stream:
            what, _, when = line.partition(" ")
            if what == "launch.sh:":
                what, when = "ended", time.time()
            elif what not in PARTS:
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
            return found()[-1 if what == "main" else 0]

    def ranks(self):
        found = subprocess.run(["pgrep", "-s", str(self.process.pid), "-f", "^[^ ]*worker restart"],
                               capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in found.split()]

    def kill(self):
        """The seconds of each part, after one rank was killed."""
        time.sleep(4)  # some snapshots
        before = time.time()
        os.kill(self.ranks()[-1], signal.SIGKILL)
        seconds = {}
        for part in PARTS:
            now = self.wait_for(part, before)
            seconds[part], before = now - before, now
        return seconds

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def main():
    build = Path(sys.argv[1]).resolve()
    kills, mib = (int(word) for word in (sys.argv[2:] + ["5", "400"][len(sys.argv) - 2:])[:2])
    with tempfile.TemporaryDirectory(prefix="restart_seconds.") as folder:
        job = Job(build, Path(folder), mib, kills)
        job.wait_for("pushed", 0)
        rows = [job.kill() for _ in range(kills)]
        job.end()
    for part, words in PARTS.items():
        values = [row[part] for row in rows]
        print(f"{words:40} {min(values):.2f} to {max(values):.2f}, median "
              f"{statistics.median(values):.2f} s")
    sums = [sum(row.values()) for row in rows]
    print(f"{'from the kill to the end of that push':40} {min(sums):.2f} to {max(sums):.2f}, "
          f"median {statistics.median(sums):.2f} s, of {kills} kills")


if __name__ == "__main__":
    main()
