#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kind of an MPI is known by the names of its libraries, in the launcher and in what is loaded,
and what is loaded calls no function that it takes.

Environment: PRELOAD_LIBRARIES, the folder of the libraries to preload.

An MPI of this test has the name of a real one and two functions; the part behind a library cannot
be loaded with it, which the library says, unless it knows that this is not its kind of MPI.
"""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARIES = Path(os.environ["PRELOAD_LIBRARIES"])
LIMIT_S = 60
MPI = """
int PMPI_Barrier(void* comm) { return comm != 0; }
int MPI_Barrier(void* comm) { return PMPI_Barrier(comm); }
"""
PROGRAM = "int MPI_Barrier(void* comm); int main(void) { return MPI_Barrier(0); }\n"

# DT_SONAME; the kind of MPI for the launcher, and that which is loaded.
NAMES = (
    ("libmpi.so.40", "openmpi", "openmpi"),             # Open MPI 4 and 5
    ("libmpi.so.20", "openmpi", ""),                    # 2 and 3, whose ABI is another
    ("libmpi.so.12", "mpich", "mpich"),                 # MPICH, Intel MPI, MVAPICH
    ("libmpich.so.12", "mpich", "mpich"),               # Debian's MPICH
    ("libmpi_cray.so.12", "mpich", "mpich"),            # Cray's, for each of the compilers
    ("libmpi_gnu_91.so.12", "mpich", "mpich"),
    ("libmpi_gnu_123.so.12", "mpich", "mpich"),
    ("libmpi_intel.so.12", "mpich", "mpich"),
    ("libmpi_nvidia.so.12", "mpich", "mpich"),
    ("libmpi_amd.so.12", "mpich", "mpich"),
    ("libmpi_abi.so.1", "standard", "standard"),        # MPI 5's ABI
    ("libmpi_gtl_cuda.so.0", "", ""),                   # Cray's, which is no MPI
    ("libmpi_mpifh.so.40", "", ""),                     # Open MPI's, which needs libmpi.so.40
    ("libmpi.so.1", "", ""),                            # Open MPI 1.4
)


class Names(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def test_the_librarys_own_calls_go_past_it(self):
        """It has the names of the functions that it takes, for all of the process."""
        fronts = sorted(LIBRARIES.glob("libtutti_mpi_*.so"))
        self.assertTrue(fronts)
        for front in fronts:
            abi = front.stem.removeprefix("libtutti_mpi_")
            behind, = LIBRARIES.glob(f"*/libtutti-preload-{abi}.so")
            taken = self.symbols(front, "T")
            self.assertIn("MPI_Wait", taken)
            self.assertEqual(taken & self.symbols(behind, "U"), set())

    def symbols(self, library, kind):
        said = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True)
        return set(re.findall(rf" {kind} (MPI_\w+)", said.stdout))

    def program_of(self, name):
        """A program that needs this library, which lies beside it."""
        library, program = self.folder / name, self.folder / f"of_{name}"
        self.compile(library, MPI, "-shared", f"-Wl,-soname,{name}")
        self.compile(program, PROGRAM, "-x", "none", library, f"-Wl,-rpath,{self.folder}")
        return program

    def compile(self, file, text, *words):
        subprocess.run(["cc", "-fPIC", "-o", file, "-x", "c", "-", *words], input=text, text=True,
                       check=True, timeout=LIMIT_S)

    def test_the_launcher_knows_the_kind_of_mpi_of_a_program(self):
        for name, expected, _ in NAMES:
            with self.subTest(name):
                script = f'. {ROOT}/scripts/mpirun/dialects.sh; abi_of_program "$1"'
                found = subprocess.run(["bash", "-c", script, "bash", self.program_of(name)],
                                       capture_output=True, text=True, timeout=LIMIT_S,
                                       check=True).stdout.strip()
                self.assertEqual(found, expected)

    def test_a_library_knows_the_kind_of_mpi_that_is_in_the_process(self):
        libraries = {re.fullmatch(r"libtutti_mpi_(\w+)\.so", file.name)[1]: file
                     for file in LIBRARIES.glob("libtutti_mpi_*.so")}
        self.assertTrue(libraries)
        for name, _, expected in NAMES:
            program = self.program_of(name)
            for abi, library in libraries.items():
                with self.subTest(name, library=abi):
                    done = subprocess.run([program], env={**os.environ, "LD_PRELOAD": library},
                                          capture_output=True, text=True, timeout=LIMIT_S,
                                          check=False)
                    is_other = f"that is another kind of MPI than {abi}" in done.stderr
                    self.assertEqual(is_other, abi != expected, done.stderr)
                    self.assertIn("leaves this program's collectives to its MPI", done.stderr)
                    self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
