#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tutti-doctor as its users start it: a healthy job, and mistakes that are really made."""

import json
import os
import random
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import programs

QUICK = ["--seconds", "0.1"]


def run_shell(script, ranks=2):
    """Runs mpirun from a shell that sets limits or variables first; $RUN starts the doctor."""
    command = " ".join(programs.mpirun(ranks, [programs.program("tutti-doctor"), *QUICK]))
    return programs.run_command(["bash", "-c", script.replace("$RUN", command)])


class Doctor(unittest.TestCase):
    def check(self, result, code, *words):
        self.assertEqual(result.code, code, result.out + result.err)
        for word in words:
            self.assertRegex(result.out, word)

    def test_alone(self):
        result = programs.run("tutti-doctor", *QUICK)
        gpus = programs.run("tutti-doctor", "--version").out.split("\nGPUs: ")[1].splitlines()[0]
        self.check(result, 0, r"(?m)^ok +self-test +\d+ collectives, 0 wrong elements$",
                   r"(?m)^0 errors, ", "the library can use " + re.escape(gpus))

    def test_healthy_job(self):
        with tempfile.TemporaryDirectory() as folder:
            result = programs.run("tutti-doctor", *QUICK, "--need", "1M", "--json",
                                  Path(folder) / "doctor.json", "--checkpoint-dir", folder, ranks=2)
            self.check(result, 0, r"(?m)^ok +software +Tutti ", r"(?m)^ok +checkpoints ",
                       r"(?m)^ok +self-test .* 0 wrong elements; allreduce of 8 B in ")
            report = json.loads((Path(folder) / "doctor.json").read_text(encoding="utf-8"))
        self.assertEqual(report["errors"], 0)
        self.assertEqual([facts["rank"] for facts in report["ranks"]], [0, 1])
        self.assertIn("remedy", report["findings"][0])

    def test_too_little_memory(self):
        self.check(programs.run("tutti-doctor", *QUICK, "--need", "1000000G", ranks=2), 2,
                   r"(?m)^error +memory .* 2 ranks need ", r"(?m)^ +-> fewer ranks per host")

    def test_no_directory(self):
        self.check(programs.run("tutti-doctor", *QUICK, "--checkpoint-dir", "/no/such", ranks=2), 2,
                   r"(?m)^error +checkpoints .*/no/such: No such file")

    def test_a_directory_that_the_first_save_would_make(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("run", "run/"):
                self.check(programs.run("tutti-doctor", *QUICK, "--checkpoint-dir",
                                        f"{folder}/{name}", ranks=2), 0,
                           rf"(?m)^ok +checkpoints .* free in {folder}/{name}; every rank can")
            self.assertEqual(list(Path(folder).iterdir()), [])
            self.check(programs.run("tutti-doctor", *QUICK, "--checkpoint-dir",
                                    f"{folder}/some/run", ranks=2), 2,
                       r"(?m)^error +checkpoints .*/some/run: No such file")

    def test_programs_that_know_mpi_alone(self):
        """A static program, one that calls MPI, and a script; others are made up in a unit test."""
        for program, line in (("collective-benchmark", "ok .* calls MPI in a shared library"),
                              ("tutti-doctor", "ok .* itself calls no function of MPI"),
                              ("/sbin/ldconfig", "warning .* is linked statically"),
                              ("/no/program", "error .*/no/program: no such program")):
            if not program.startswith("/"):
                program = programs.program(program)
            elif not Path(program).exists() and "no" not in program:
                continue  # no program is known to be static
            code = 2 if line.startswith("error") else 0
            self.check(programs.run("tutti-doctor", "--seconds", "0", "--mpi-program", program),
                       code, "(?m)^" + line.replace(" .*", r" +preload +\S*", 1))

    def test_open_files(self):
        self.check(run_shell("ulimit -n 70; $RUN"), 2, r"(?m)^error +limits .*ulimit -n allows 70")

    def test_different_settings(self):
        """A variable on one rank alone. The library itself is not asked: it would not start."""
        doctor = programs.program("tutti-doctor")
        launcher = programs.mpirun(1, ["env", "TUTTI_TIMEOUT=7", doctor])
        result = programs.run_command([*launcher, ":", "-np", "1", doctor])
        self.check(result, 2, r"(?m)^error +settings .*rank 0 .* has TUTTI_TIMEOUT=7, rank 1 ",
                   r"(?m)^error +self-test +not run")

    def test_misspelt_setting(self):
        self.check(run_shell("export TUTTI_TIMOUT=7; $RUN"), 0,
                   r"(?m)^warning +settings .*TUTTI_TIMOUT .* did you mean TUTTI_TIMEOUT")

    @unittest.skipUnless(os.cpu_count() > 1, "binding to one processor of one is no mistake")
    def test_same_processor(self):
        first = min(os.sched_getaffinity(0))
        self.check(run_shell(f"taskset -c {first} $RUN"), 2,
                   r"(?m)^error +binding .*ranks 0 and 1 are bound to the same processor")

    def test_stale_segment(self):
        name = Path(f"/dev/shm/tutti-4194305-{random.getrandbits(64):016x}")  # no process has it
        name.touch()
        self.addCleanup(name.unlink)
        self.check(programs.run("tutti-doctor", *QUICK, ranks=2), 0,
                   r"(?m)^warning +segments .*" + re.escape(str(name)))

    def test_reading_is_forbidden(self):
        """A seccomp filter, as that of a container: the job works, and is told what to allow."""
        forbid = Path(__file__).parent.parent / "support" / "forbid_reading.py"
        result = programs.run_command(programs.mpirun(
            2, [sys.executable, str(forbid), programs.program("tutti-doctor"), *QUICK]))
        if result.code == 77:
            self.skipTest(result.err)
        self.check(result, 0, r"(?m)^warning +reading .*: rank 0 cannot read the memory of rank 1 ",
                   r"process_vm_readv: Operation not permitted; .*(SYS_PTRACE|ptrace_scope)",
                   r"(?m)^ +-> the job works without, and large calls from ordinary memory take a ",
                   r"(?m)^ok +self-test .* 0 wrong elements")
        self.assertNotIn("nothing is fetched here", result.err)
        asked = programs.run_command(["env", "TUTTI_ALGORITHMS=inputs=fetched", *programs.mpirun(
            2, [sys.executable, str(forbid), programs.program("tutti-doctor"), *QUICK])])
        self.assertRegex(asked.err, r"rank 0 .*: warning: TUTTI_ALGORITHMS=inputs=fetched: nothing "
                                    r"is fetched here; inputs are staged\. cannot read the memory")

    def test_network_of_another_host(self):
        """One host needs no network, so a wrong one is no mistake there."""
        self.check(run_shell("export OMPI_MCA_btl_tcp_if_include=ib7; $RUN"), 0,
                   r"(?m)^ok +network +one host")

    def tune(self, file, ranks=2, seconds="1"):
        return programs.run("tutti-doctor", *QUICK, "--tuning", file, "--tuning-seconds", seconds,
                            ranks=ranks)

    def test_tuning(self):
        """What --tuning writes, a job with TUTTI_TUNING uses; rows of other jobs stay."""
        other = ("ranks=7 kind=allreduce data=ordinary in-place=no consumed=no apart=yes "
                 "bytes=65536 inputs=fetched results=own slots=cached outputs=cached margin=1.31")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tuning"
            target = Path(folder) / "target"
            target.write_text(f"# tutti tuning 1\n{other}\n", encoding="utf-8")
            file.symlink_to(target)
            for _ in range(5):  # a second is little where other programs have the cores
                result = self.tune(file)
                if "\nranks=2 kind=allreduce " in file.read_text(encoding="utf-8"):
                    break
            self.check(result, 0, r"(?m)^tuned    \d+ kinds and sizes of calls of 2 ranks in ",
                       f"TUTTI_TUNING={file}", "(?m)^tuned    2 KiB ", "no time for .*32 MiB")
            self.assertNotIn("variable file", result.err)  # mpirun takes some options for its own
            text = file.read_text(encoding="utf-8")
            self.assertRegex(text, r"\A# tutti tuning 1\n# .*, host .*, Open MPI .*, 20\d\d-")
            self.assertIn(other, text)
            self.assertIn("\nranks=2 kind=allreduce ", text)
            self.assertEqual(set(Path(folder).iterdir()), {file, target})
            self.assertTrue(file.is_symlink())
            command = programs.mpirun(2, [programs.program("collective-benchmark"),
                                          "-b", "2K", "-e", "2K", "-n", "3", "-w", "1"])
            used = programs.run_command(["env", f"TUTTI_TUNING={file}", "TUTTI_LOG=info", *command])
            self.assertEqual(used.code, 0, used.out + used.err)

    def test_tuning_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "notes"
            file.write_text("shopping: milk\n", encoding="utf-8")
            result = self.tune(file)
            self.assertEqual(result.code, 1, result.out + result.err)
            self.assertIn(f"{file}, line 1: 'shopping: milk': expected '# tutti tuning 1'",
                          result.err)
            self.assertEqual(file.read_text(encoding="utf-8"), "shopping: milk\n")
            for name, code, words in (("no/such/file", 1, "cannot be written: No such file"),
                                      ("", 2, "cannot be read: Is a directory")):
                result = self.tune(f"{folder}/{name}")
                self.assertEqual(result.code, code, result.out + result.err)
                self.assertIn(words, result.err)
            self.assertIn("one rank has nothing to choose", self.tune(f"{folder}/f", ranks=1).err)
        self.assertIn("expected the name of a file", self.tune("static").err)
        self.assertIn("expected above 0, up to 3600", self.tune("f", seconds="0").err)

    def test_usage(self):
        result = programs.run("tutti-doctor", "--sedonds", "1", ranks=2)
        self.assertEqual(result.code, 1)
        self.assertEqual(result.err.count(
            "unrecognised option '--sedonds', did you mean --seconds?"), 1, result.err)
        result = programs.run("tutti-doctor", "--seconds", "-1")
        self.assertIn("--seconds -1.000000: expected 0 to 3600", result.err)
        self.check(programs.run("tutti-doctor", "--help"), 0, "--checkpoint-dir", "TUTTI_TIMEOUT")


class AnotherLauncher(unittest.TestCase):
    """A program of one MPI, and what another MPI's launcher leaves: stand-ins, and a real one."""

    def setUp(self):
        self.is_mpich = "\nMPI: Open MPI" not in programs.run("tutti-doctor", "--version").out
        said = [programs.run_command(["env", f"TUTTI_MPI={name}", programs.program("kvstore-tour"),
                                      "--version"]).out for name in ("openmpi", "mpich")]
        self.has_both = not any("\nMPI: none" in text for text in said)
        self.names = (("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK") if self.is_mpich else
                      ("PMI_SIZE", "PMI_RANK"))

    def run_as(self, rank, name, *arguments, **variables):
        size_name, rank_name = self.names
        return programs.run_command(
            ["env", f"{size_name}=2", f"{rank_name}={rank}",
             *(f"{key}={value}" for key, value in variables.items()),
             programs.program(name), *arguments])

    def test_stores_and_communicators_throw_on_each_rank_and_rank_0_says_it(self):
        size_name, rank_name = self.names
        for name, why in (("kvstore-tour", "this build of Tutti has no plug-in for "),
                          ("overlap-benchmark", "to the MPI of this program, ")):
            if why.startswith("this build") and self.has_both:
                continue
            said = self.run_as(0, name)
            self.assertEqual(said.code, 1, said.out + said.err)
            self.assertIn(f"has started 2 processes ({size_name}=2, {rank_name}=0), but {why}",
                          said.err)
            self.assertIn("TUTTI_LAUNCHER=ignore", said.err)
            other = self.run_as(1, name)
            self.assertEqual((other.code, other.out, other.err), (1, "", ""))

    def test_ranks_that_are_meant_to_be_alone_are(self):
        for rank in (0, 1):
            alone = self.run_as(rank, "kvstore-tour", TUTTI_LAUNCHER="ignore")
            self.assertEqual(alone.code, 0, alone.err)
            self.assertRegex(alone.out, "checks right on 1 rank\n$")

    def test_the_doctor_names_it_once(self):
        found = self.run_as(0, "tutti-doctor", *QUICK)
        self.assertEqual(found.code, 2, found.out + found.err)
        self.assertRegex(found.out, r"(?m)^error +launcher +.* has started 2 processes \(.*\n"
                                    r" +-> (start it with the launcher of |build Tutti with )")
        self.assertRegex(found.out, r"(?m)^error +self-test +not run: ")
        self.assertEqual(self.run_as(1, "tutti-doctor", *QUICK), (2, "", ""))

    def test_the_doctor_says_which_launcher_and_which_mpi(self):
        name = "PMI_SIZE" if self.is_mpich else "OMPI_COMM_WORLD_SIZE"
        mpi = "MPICH" if self.is_mpich else "Open MPI v"
        self.assertRegex(programs.run("tutti-doctor", *QUICK, ranks=2).out,
                         rf"(?m)^ok +launcher +built with {mpi}.*, started by .*\({name}=2, ")
        self.assertRegex(programs.run("tutti-doctor", *QUICK).out,
                         rf"(?m)^ok +launcher +built with {mpi}.*, started by no launcher$")

    def test_under_another_mpis_real_launcher(self):
        names = ("mpirun.openmpi",) if self.is_mpich else ("mpiexec.hydra", "mpiexec.mpich")
        launcher = next(filter(None, map(shutil.which, names)), None)
        if launcher is None:
            self.skipTest(f"none of {names} is here")
        if self.has_both:
            self.skipTest("they run there: tests/launch/plugins_test.py")
        for name in ("kvstore-tour", "tutti-doctor"):
            result = programs.run_command([launcher, "-n", "2", programs.program(name)])
            self.assertNotEqual(result.code, 0)
            said = result.out + result.err
            self.assertEqual(said.count("has started 2 processes"), 1, said)


if __name__ == "__main__":
    unittest.main()
