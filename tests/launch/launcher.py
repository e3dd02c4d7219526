# SPDX-License-Identifier: Apache-2.0
"""Starts launch.sh, with a launcher that only looks like mpirun where that is enough; and finds
what train-fashion-mnist has saved.

Environment: LAUNCH_SCRIPTS, the folder of launch.sh; LAUNCH_MPIRUN, the real mpirun.
"""

import glob
import os
import re
import subprocess
import tempfile
import unittest
from collections import namedtuple
from pathlib import Path

SCRIPTS = Path(os.environ["LAUNCH_SCRIPTS"])
LAUNCH = str(SCRIPTS / "launch.sh")
TIMEOUT_S = 600
# What would change a command, and may be set where the tests run.
CHOICES = ("SLURM_", "PBS_", "LSB_", "PE_HOSTFILE", "OMPI_MCA_", "PRTE_MCA_", "TUTTI_", "NCCL_",
           "OMP_", "LD_LIBRARY_PATH", "CUDA_", "MPIRUN", "LAUNCH_DEVICES", "LAUNCH_NUMA")

Result = namedtuple("Result", "code out err")


def environment(**changed):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CHOICES)}
    return {**kept, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "MPIRUN": os.environ["LAUNCH_MPIRUN"], "LAUNCH_DEVICES": "/no/device",
            "LAUNCH_NUMA": "/no/domain", **changed}


def launch(*arguments, one_core=False, **changed):
    """Runs launch.sh; `one_core` makes every machine one with a single usable core."""
    first = min(os.sched_getaffinity(0))
    done = subprocess.run([LAUNCH, *map(str, arguments)], capture_output=True, text=True,
                          timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False,
                          env=environment(**changed),
                          preexec_fn=lambda: os.sched_setaffinity(0, {first}) if one_core else None)
    return Result(done.returncode, done.stdout, done.stderr)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="launch_test.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def script(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/bash\n" + text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def fake_mpirun(self, version="4.1.4", name="Open MPI", body="exit 0", asked=":"):
        text = (f'if [ "$1" = --version ]; then {asked}; echo "mpirun ({name}) {version}"; exit; '
                'fi\n')
        return self.script("mpirun", text + body + "\n")


def newest(directory):
    """The number of the newest whole checkpoint, 0 if there is none. The folder may be a pattern,
    as "memory/*/*", and may go away meanwhile."""
    names = (Path(path).name for path in glob.glob(f"{directory}/generation-*"))
    return max((int(name.split("-")[1]) for name in names
                if re.fullmatch(r"generation-\d+", name)), default=0)


def weights(directory):
    folder = Path(directory) / f"generation-{newest(directory)}"
    return [(folder / name).read_bytes()
            for name in ("weights.safetensors", "optimizer.safetensors")]
