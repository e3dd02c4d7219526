# SPDX-License-Identifier: Apache-2.0
"""Jobs of the programs in this folder, with and without the preloaded library.

Environment: PRELOAD_LIBRARY; PRELOAD_MPIRUN, the launcher and its flags; PRELOAD_PROGRAMS, the
folder of the programs; PRELOAD_FORTRAN, 1 where there is the one in Fortran; PRELOAD_PART, 1 for
fewer ranks and loops in what takes long.
"""

import os
import shlex
import subprocess
from pathlib import Path

LIBRARY = os.environ["PRELOAD_LIBRARY"]
MPIRUN = shlex.split(os.environ["PRELOAD_MPIRUN"])
ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "scripts/mpirun/launch.sh"
PROGRAMS = Path(os.environ["PRELOAD_PROGRAMS"])
IS_OPEN_MPI = "openmpi" in Path(LIBRARY).name
HAS_FORTRAN = os.environ.get("PRELOAD_FORTRAN") == "1"
IS_PART = os.environ.get("PRELOAD_PART") == "1"
LIMIT_S = 600


def run(program, ranks, preload=True, **variables):
    """The job's exit status, standard output and standard error."""
    variables = {**({"LD_PRELOAD": LIBRARY} if preload else {}), **variables}
    command = [*MPIRUN, "-np", str(ranks), "env"]
    command += [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run([*command, *[str(word) for word in program]], capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout, done.stderr
