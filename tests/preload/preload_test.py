#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that know MPI alone, as they are and with the preloaded library: the same results.

    preload_test.py [-v] [TestCase.test]

Environment: PRELOAD_LIBRARY; PRELOAD_MPIRUN, the launcher and its flags; PRELOAD_PROGRAMS, the
folder of the programs; PRELOAD_FORTRAN, 1 where there is the one in Fortran.
"""

import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

LIBRARY = os.environ["PRELOAD_LIBRARY"]
MPIRUN = shlex.split(os.environ["PRELOAD_MPIRUN"])
ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "scripts/mpirun/launch.sh"
PROGRAMS = Path(os.environ["PRELOAD_PROGRAMS"])
HAS_FORTRAN = os.environ.get("PRELOAD_FORTRAN") == "1"
LIMIT_S = 600


def run(program, ranks, preload=True, **variables):
    """The job's exit status, standard output and standard error."""
    variables = {**({"LD_PRELOAD": LIBRARY} if preload else {}), **variables}
    command = [*MPIRUN, "-np", str(ranks), "env"]
    command += [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run([*command, *[str(word) for word in program]], capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout, done.stderr


def calls_in(statistics):
    """Call -> how often the library carried it out, from the table of TUTTI_STATISTICS."""
    rows = re.findall(r"^ +(\d+) .*  (\w.*)$", statistics, re.MULTILINE)
    return {name: int(count) for count, name in rows}


class Results(unittest.TestCase):
    def check(self, ranks, **variables):
        status, output, errors = run([PROGRAMS / "preload_program"], ranks, **variables)
        self.assertIn(" 0 wrong", output, errors)
        self.assertEqual(status, 0, errors)
        return errors

    def test_a_program_gets_what_mpi_promises(self):
        for ranks in (1, 3):
            self.check(ranks)
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "table.txt"
            self.check(2, TUTTI_STATISTICS=table)
            calls = calls_in(table.read_text(encoding="utf-8"))
        self.assertLessEqual({"allgather", "allreduce", "alltoall", "barrier", "broadcast",
                              "gather", "reduce", "reduce_scatter", "scatter"}, set(calls))
        self.assertGreaterEqual(calls["allreduce"], 17)
        self.assertEqual(calls["MPI_Alltoallv"], 1)
        self.assertGreater(calls["allreduce on communicators of 2 ranks"], 100)
        self.assertEqual(calls["allreduce on twins"], 2)

    def test_and_on_several_nodes(self):
        self.check(4, TUTTI_RANKS_PER_NODE="2")
        self.check(3, TUTTI_RANKS_PER_NODE="1")

    def test_threads_have_a_communicator_each(self):
        for variables in ({}, {"TUTTI_RANKS_PER_NODE": "1"}):
            status, output, errors = run([PROGRAMS / "preload_threads"], 2, **variables)
            self.assertEqual((status, output), (0, "3 threads, 0 wrong\n"), errors)

    def test_a_thread_that_has_not_called_init_may_make_all_calls(self):
        status, output, errors = run([PROGRAMS / "preload_threads", "serialized"], 2)
        self.assertEqual((status, output), (0, "1 threads, 0 wrong\n"), errors)

    def test_communicators_that_come_and_go_leave_nothing_behind(self):
        by_mpi = {"TUTTI_RANKS_PER_NODE": "1", "TUTTI_ALGORITHMS": "exchange=mpi"}
        for ranks, loops, variables in ((2, 3000, {}), (3, 3000, {"TUTTI_RANKS_PER_NODE": "1"}),
                                        (2, 1500, by_mpi)):
            status, output, errors = run([PROGRAMS / "preload_churn", str(loops)], ranks,
                                         **variables)
            self.assertEqual((status, errors), (0, ""))
            grown = re.fullmatch(r"\d+ loops, 0 wrong, grown by (-?\d+) KiB, (-?\d+) descriptors, "
                                 r"(-?\d+) mappings, (-?\d+) files\n", output)
            self.assertIsNotNone(grown, output)
            kib, descriptors, mappings, files = (int(number) for number in grown.groups())
            self.assertLess(kib, 500)
            self.assertEqual((descriptors, mappings, files), (0, 0, 0))

    def test_a_communicator_is_small(self):
        """The most that a rank maps, with its peer's part."""
        status, output, errors = run([PROGRAMS / "preload_churn", "costs", "100"], 2)
        self.assertEqual((status, errors), (0, ""))
        kib = re.search(r"([\d.]+) KiB made; .* ([\d.]+) KiB in the first barrier", output)
        self.assertIsNotNone(kib, output)
        self.assertLess(float(kib[1]), 32)
        self.assertLess(float(kib[2]), 200)

    def test_the_library_for_another_mpi_leaves_the_program_alone(self):
        others = set(Path(LIBRARY).parent.glob("libtutti_mpi_*.so")) - {Path(LIBRARY)}
        if not others:
            self.skipTest("this build is for one MPI")
        for other in others:
            status, output, errors = run([PROGRAMS / "preload_program"], 2, preload=False,
                                         LD_PRELOAD=other)
            self.assertIn("that is another kind of MPI than", errors)
            self.assertIn(" 0 wrong", output, errors)
            self.assertEqual(status, 0, errors)

    def test_the_launcher_puts_the_library_in_front_of_the_program(self):
        command = [LAUNCHER, "--mpi-program", "-np", "2", PROGRAMS / "preload_program"]
        shown = subprocess.run([*command[:1], "--dry-run", *command[1:]], capture_output=True,
                               text=True, env={**os.environ, "LD_PRELOAD": ""}, check=False)
        if Path(LIBRARY).parent == ROOT / "build/runtime":
            self.assertIn(f" env LD_PRELOAD={LIBRARY} {PROGRAMS}/preload_program", shown.stdout)
        else:
            self.assertIn("error: there is no libtutti_mpi_", shown.stderr)

    def test_launchers_may_load_it_too(self):
        done = subprocess.run([*MPIRUN, "-np", "2", PROGRAMS / "preload_program"], text=True,
                              env={**os.environ, "LD_PRELOAD": LIBRARY, "TUTTI_STATISTICS": "1"},
                              capture_output=True, timeout=LIMIT_S, check=False)
        self.assertIn(" 0 wrong", done.stdout, done.stderr)
        self.assertIn("allreduce on twins", done.stderr)

    @unittest.skipUnless(Path("/sbin/ldconfig").exists(), "no program is known to be static")
    def test_the_launcher_says_that_a_static_program_loads_nothing(self):
        command = [LAUNCHER, "--dry-run", "--mpi-program", "-np", "2"]
        for program, is_static in (("/sbin/ldconfig", True), ("true", False)):
            shown = subprocess.run([*command, program], capture_output=True, text=True,
                                   check=False)
            self.assertEqual("is linked statically" in shown.stderr, is_static, shown.stderr)

    def test_a_process_without_mpi_is_as_it_was(self):
        done = subprocess.run(["sh", "-c", "echo one"], env={**os.environ, "LD_PRELOAD": LIBRARY},
                              capture_output=True, text=True, check=True)
        self.assertEqual((done.stdout, done.stderr), ("one\n", ""))


@unittest.skipUnless(HAS_FORTRAN, "there is no compiler of Fortran for this MPI")
class Fortran(unittest.TestCase):
    def residuals(self, ranks, **variables):
        status, output, errors = run([PROGRAMS / "preload_solver"], ranks, **variables)
        self.assertEqual(status, 0, errors)
        self.assertEqual(len(output.splitlines()), 25)
        return output

    def test_a_solver_has_the_same_bits_in_each_layout(self):
        first = self.residuals(8, TUTTI_REPRODUCIBLE="1")
        for per_node in ("4", "1"):
            self.assertEqual(first, self.residuals(8, TUTTI_REPRODUCIBLE="1",
                                                   TUTTI_RANKS_PER_NODE=per_node))

    def test_and_has_them_for_any_number_of_ranks_if_it_asks(self):
        first = self.residuals(6, TUTTI_REPRODUCIBLE="1")
        self.assertEqual(first, self.residuals(6, TUTTI_REPRODUCIBLE="1", TUTTI_RANKS_PER_NODE="3"))
        self.assertNotEqual(first, self.residuals(6, TUTTI_RANKS_PER_NODE="3"))


class Faults(unittest.TestCase):
    def fault(self, name, **variables):
        return run([PROGRAMS / "preload_fault", name], 3, **variables)

    def test_a_rank_that_is_absent_is_named(self):
        status, _, errors = self.fault("absent", TUTTI_TIMEOUT="2")
        self.assertRegex(errors, r"MPI_Allreduce of 1 MPI_INT on grid rows")
        self.assertRegex(errors, r"waited 2\S* s for rank 2 .*, which did not arrive")
        self.assertNotEqual(status, 0)

    def test_a_program_that_goes_on_after_a_failure_sees_it_once(self):
        status, _, errors = self.fault("goes-on", TUTTI_TIMEOUT="1")
        self.assertEqual(errors.count("error: "), 1, errors)
        self.assertEqual(status, 0, errors)

    def test_so_are_different_calls_that_mpi_would_carry_out(self):
        status, _, errors = self.fault("gathered", TUTTI_TIMEOUT="20")
        self.assertIn("MPI_Gatherv on grid rows", errors)
        self.assertIn("MPI_Scan on grid rows", errors)
        self.assertNotEqual(status, 0)

    def test_calls_that_differ_end_the_job(self):
        status, _, errors = self.fault("differs")
        self.assertIn("MPI_Allreduce of 1 MPI_INT on grid rows", errors)
        self.assertIn("MPI_Allreduce of 1 MPI_FLOAT on grid rows", errors)
        self.assertNotEqual(status, 0)

    def test_or_are_returned_to_who_asks_for_that(self):
        status, output, errors = self.fault("returned")
        self.assertRegex(output, r"returned: .*MPI_Bcast of 1 MPI_INT on grid rows")
        self.assertIn("then 3", output, errors)
        self.assertEqual(status, 0, errors)

    def test_a_setting_that_is_wrong_ends_the_job(self):
        status, _, errors = self.fault("", TUTTI_TIMEOUT="soon")
        self.assertIn("TUTTI_TIMEOUT", errors)
        self.assertNotEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
