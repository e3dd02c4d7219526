# SPDX-License-Identifier: Apache-2.0
"""Runs tests that other projects publish, each on all ranks of a job, and goes on in another job
where one of them ends its job or does not end."""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 60  # that one test may take
START_SECONDS = 120  # that a job may take to import what it needs
MPIRUN = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe"))


def start(ranks, folder, script, names):
    """A rank gets `script` --rank FOLDER NAMES, and writes what came of a test into
    FOLDER/TEST/rankR: "pass", "skip: why", or "fail: the traceback"."""
    environment = {**os.environ, "TUTTI_TIMEOUT": "30"}
    listed = folder / "names"
    listed.write_text("\n".join(names))
    log = open(folder / "log", "w")
    return subprocess.Popen([*MPIRUN, "-np", str(ranks), sys.executable, *script, "--rank",
                             str(folder), str(listed)],
                            stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)


def carry_on(ranks, folder, script, names):
    """Runs the tests in one job while it lives; yields name and outcome."""
    job = start(ranks, folder, script, names)
    began, index = time.monotonic() + START_SECONDS, 0
    while index < len(names):
        here = folder / names[index]
        done = [here / f"rank{rank}" for rank in range(ranks)]
        ended = job.poll() is not None
        found = [one.read_text() for one in done if one.exists()]
        failed = [text for text in found if text.startswith("fail")]
        if len(found) == ranks:
            yield names[index], failed[0] if failed else max(found)
            began, index = time.monotonic(), index + 1
        elif ended or time.monotonic() - began > SECONDS:
            job.terminate()
            job.wait()
            if ended and index > 0 and not failed:
                return  # perhaps the test before has ended it: this one begins another job
            last = (folder / "log").read_text().strip()[-400:]
            why = f"fail: the job ended: {last}" if ended else "fail: it does not end"
            why = failed[0] if failed else why
            yield names[index], why
            return
        else:
            time.sleep(0.02)
    job.wait()


def run_all(ranks, script, names):
    """Prints a line per test, and numbers at the end. Returns the outcome of each test."""
    outcomes = {}
    while names:
        with tempfile.TemporaryDirectory() as folder:
            for name, found in carry_on(ranks, Path(folder), script, names):
                lines = [line for line in found.splitlines() if line.strip()]
                print(f"{name}: {lines[0] if len(lines) < 2 else 'fail: ' + lines[-1]}", flush=True)
                if os.environ.get("VERBOSE"):
                    print(found)
                outcomes[name] = found
        names = [name for name in names if name not in outcomes]
    kinds = [text.split(":")[0] for text in outcomes.values()]
    print(f"{kinds.count('pass')} passed, {kinds.count('fail')} failed, "
          f"{kinds.count('skip')} skipped")
    return outcomes
