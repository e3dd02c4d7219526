#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launch.sh with launchers other than Open MPI's: which one it takes, and the words it uses.

The launchers are stand-ins that say the versions of the real ones; MPICH's is also tried for real
where it is installed.
"""

import shutil
import signal
import unittest

import launcher
import programs
import verdict
from launcher import launch

VERSIONS = {
    "openmpi": "mpirun (Open MPI) 5.0.11",
    "hydra": "HYDRA build details:\n    Version:                                 4.0.2",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005",
    "srun": "slurm 22.05.8",
}
# What loads an MPI, as ldd shows it.
LOADS = {"openmpi": "libmpi.so.40 => /o/libmpi.so.40 (0x1)",
         "mpich": "libmpich.so.12 => /m/libmpich.so.12 (0x1)",
         "cray": "libmpi_gnu_123.so.12 => /c/libmpi_gnu_123.so.12 (0x1)"}


class Launchers(launcher.Folder):
    def stand_in(self, kind, name="mpirun", folder=""):
        (self.folder / folder).mkdir(exist_ok=True)
        return self.script(f"{folder}/{name}" if folder else name,
                           f"echo '{VERSIONS[kind]}'\n")

    def path(self, *folders, ldd=None, system="/usr/bin:/bin"):
        """A PATH with these folders first, and an ldd that says what programs load."""
        if ldd:
            self.script("ldd", f"echo '\t{LOADS[ldd]}'\n")
        return ":".join([str(self.folder), *(str(self.folder / folder) for folder in folders),
                         system])

    def tools(self):
        """A folder with all of the system's commands, but no launcher."""
        folder = self.folder / "tools"
        if folder.exists():
            return str(folder)
        folder.mkdir()
        for name in ("bash", "sh", "cat", "sed", "awk", "id", "nproc", "sort", "wc", "head", "true",
                     "dirname", "readlink", "env", "xargs", "tr", "uname", "echo"):
            (folder / name).symlink_to(shutil.which(name))
        return str(folder)


class Dialects(Launchers):
    def command(self, kind, *arguments, **options):
        mpirun = self.stand_in(kind, "launcher")
        result = launch("--dry-run", *arguments, MPIRUN=mpirun, **options)
        self.assertEqual(result.code, 0, result.err)
        name, command = result.out.rstrip("\n").split(" ", 1)
        self.assertEqual(name, mpirun)
        return command

    def test_ranks_that_take_turns(self):
        for kind, words in (("openmpi", "-np 2 --map-by :OVERSUBSCRIBE --bind-to none true"),
                            ("hydra", "-n 2 -bind-to none true"),
                            ("intel", "-n 2 -genv I_MPI_PIN 0 true"),
                            ("srun", "-n 2 true")):
            self.assertEqual(self.command(kind, "-np", 2, "true", one_core=True), words, kind)
        self.assertEqual(self.command("srun", "-np", 2, "--oversubscribe", "true"),
                         "-n 2 --overcommit true")

    def test_hosts(self):
        hosts = self.folder / "hosts"
        hosts.write_text("a slots=4 # the first\n\nb:2\nc\n", encoding="utf-8")
        for option in (("--hostfile", hosts), (f"--machinefile={hosts}",),
                       ("--host", "a:4,b:2,c"), ("-H", "a:4,b:2,c")):
            for kind, words in (("hydra", "-hosts a:4,b:2,c"), ("intel", "-hosts a:4,b:2,c"),
                                ("srun", "--nodelist a,b,c")):
                self.assertEqual(self.command(kind, *option, "-np", 6, "true"),
                                 f"{words} -n 6 true")
        self.assertEqual(self.command("hydra", "-np", 4, "true", PBS_NODEFILE="/p"),
                         "-f /p -n 4 true")
        result = launch("--hostfile", "/no/file", "true", MPIRUN=self.stand_in("hydra"))
        self.assertEqual((result.code, result.err),
                         (1, "error: --hostfile /no/file cannot be read\n"))

    def test_ranks_per_node(self):
        for option in ("-N 2", "-N2", "-npernode 2", "--map-by ppr:2:node", "--map-by=ppr:2:node",
                       "--ppr 2:node"):
            for kind, words in (("hydra", "-ppn 2"), ("intel", "-ppn 2"),
                                ("srun", "--ntasks-per-node 2")):
                self.assertEqual(self.command(kind, *option.split(), "true"), f"{words} true")

    def test_binding(self):
        for kind, words in (
                ("hydra", {"none": "-bind-to none", "core": "-bind-to core",
                           "numa": "-bind-to numa"}),
                ("intel", {"none": "-genv I_MPI_PIN 0", "core": "-genv I_MPI_PIN_DOMAIN core"}),
                ("srun", {"none": "--cpu-bind=none", "core": "--cpu-bind=cores",
                          "numa": "--cpu-bind=ldoms", "socket": "--cpu-bind=sockets"})):
            for value, spelt in words.items():
                self.assertEqual(self.command(kind, "-np", 1, "--bind-to", value, "true"),
                                 f"-n 1 {spelt} true")
        self.assertEqual(self.command("hydra", "true", SLURM_JOB_ID="1", SLURM_CPUS_PER_TASK="4"),
                         "-bind-to numa true")

    def test_variables_with_a_value_are_set_and_others_go_by_themselves(self):
        for kind, words in (("hydra", "-genv A 'b c'"), ("intel", "-genv A 'b c'"),
                            ("srun", "'--export=ALL,A=b c'")):
            self.assertEqual(self.command(kind, "--host", "a", "-np", 1, "-x", "A=b c", "-x", "B",
                                          "true", TUTTI_TIMEOUT="5").split(" -n 1 ", 1)[1],
                             f"{words} true")

    def test_its_own_options_are_passed_on(self):
        self.assertEqual(self.command("hydra", "-np", 1, "-genv", "A", "1", "-l", "true",
                                      one_core=True), "-n 1 -bind-to none -genv A 1 -l true")
        self.assertEqual(self.command("srun", "-np", 2, "--mpi=pmi2", "--exclusive", "true"),
                         "-n 2 --mpi=pmi2 --exclusive true")
        for option in ("-c 4", "-c4"):  # Open MPI's is a number of ranks
            self.assertEqual(self.command("srun", "-np", 2, *option.split(), "true"),
                             "-n 2 -c 4 true")

    def test_options_that_are_open_mpis_alone_are_refused(self):
        for kind, name in (("hydra", "MPICH"), ("intel", "Intel MPI"), ("srun", "Slurm")):
            mpirun = self.stand_in(kind)
            for option in ("--mca btl tcp", "--map-by node", "--rankfile f"):
                result = launch("-np", 1, *option.split(), "true", MPIRUN=mpirun)
                self.assertEqual((result.code, result.out), (1, ""))
                self.assertEqual(result.err.splitlines()[-1], f"error: {option} is an option of "
                                 f"Open MPI's mpirun, and {mpirun} is {name}'s, which has no such "
                                 "option: leave it out, or use that launcher's own")

    def test_srun_of_slurms_own_sources_and_of_debian(self):
        for version in ("slurm 22.05.8", "slurm-wlm 22.05.8", "slurm-wlm 23.11.4-1.2ubuntu5"):
            mpirun = self.script("launcher", f"echo '{version}'\n")
            result = launch("--dry-run", "-np", 2, "true", MPIRUN=mpirun)
            self.assertEqual((result.code, result.out), (0, f"{mpirun} -n 2 true\n"), result.err)

    def test_srun_is_told_the_interface_of_the_programs_mpi(self):
        for loads, words in (("openmpi", "--mpi=pmix"), ("mpich", "--mpi=pmi2"),
                             ("cray", "--mpi=pmi2")):
            self.assertEqual(self.command("srun", "-np", 2, "true", PATH=self.path(ldd=loads)),
                             f"-n 2 {words} true")
        self.assertEqual(self.command("srun", "-np", 2, "true", PATH=self.path(ldd="mpich"),
                                      SLURM_MPI_TYPE="cray_shasta"), "-n 2 true")


class Choice(Launchers):
    def chosen(self, *arguments, **options):
        result = launch("--dry-run", "-np", 1, *arguments, MPIRUN="", **options)
        self.assertEqual(result.code, 0, result.err)
        return result.out.split()[0], result.err

    def test_the_first_in_the_path_is_taken_where_the_program_does_not_say(self):
        for kind in VERSIONS:
            name = "srun" if kind == "srun" else "mpirun"
            first = self.stand_in(kind, name, kind)
            path = self.path(kind, system=self.tools())
            self.assertEqual(self.chosen("true", PATH=path)[0], first)

    def test_the_one_of_the_programs_mpi_is_taken_and_it_is_said_if_it_is_not_the_first(self):
        self.stand_in("hydra", "mpirun", "m")
        other = self.stand_in("openmpi", "mpirun.openmpi", "m")
        taken, said = self.chosen("true", PATH=self.path("m", ldd="openmpi",
                                                                system=self.tools()))
        self.assertEqual(taken, other)
        self.assertIn(f"launch.sh: {self.folder}/m/mpirun is MPICH's, and true was built with "
                      f"Open MPI: {other}.", said)
        taken, said = self.chosen("true", PATH=self.path("m", ldd="mpich",
                                                                system=self.tools()))
        self.assertEqual(taken, f"{self.folder}/m/mpirun")
        self.assertNotIn("was built with", said)

    def test_a_program_of_the_shared_library_is_of_its_plug_in_if_there_is_one_alone(self):
        first = self.stand_in("hydra", "mpirun", "m")
        other = self.stand_in("openmpi", "mpirun.openmpi", "m")
        library = self.folder / "a folder" / "libtutti.so.0.1"
        plugins = library.parent / "tutti-0.1"
        plugins.mkdir(parents=True)
        self.script("ldd", f"echo '\tlibtutti.so.0.1 => {library} (0x00007f)'\n")
        path = ":".join([str(self.folder), str(self.folder / "m"), self.tools()])
        self.assertEqual(self.chosen("true", PATH=path)[0], first)
        (plugins / "libtutti-mpi-openmpi.so").touch()
        taken, said = self.chosen("true", PATH=path)
        self.assertEqual(taken, other)
        self.assertIn("is MPICH's, and true was built with Open MPI", said)
        (plugins / "libtutti-mpi-mpich.so").touch()
        self.assertEqual(self.chosen("true", PATH=path), (first, ""))
        for kind in ("mpich", "openmpi"):
            (plugins / f"libtutti-mpi-{kind}.so").unlink()
        (plugins / "libtutti-mpi-standard.so").touch()  # of any MPI, as is a program with its ABI
        self.assertEqual(self.chosen("true", PATH=path), (first, ""))
        self.script("ldd", "echo '\tlibmpi_abi.so.1 => /m/libmpi_abi.so.1 (0x1)'\n")
        self.assertEqual(self.chosen("true", PATH=path), (first, ""))

    def test_the_program_may_stand_behind_other_words(self):
        self.stand_in("hydra", "mpirun", "m")
        other = self.stand_in("openmpi", "mpirun.openmpi", "m")
        real = shutil.which("ldd")
        self.script("ldd", f'case "$1" in */cat) echo "\t{LOADS["openmpi"]}" ;; '
                           f'*) exec {real} "$@" ;; esac\n')
        path = self.path("m", system=self.tools())
        self.assertEqual(self.chosen("env", "A=1", "cat", PATH=path)[0], other)

    def test_a_launcher_of_another_mpi_is_refused(self):
        for kind, loads, name, family, remedy in (
                ("openmpi", "mpich", "Open MPI",
                 "MPICH, Intel MPI or another one of MPICH's family", "mpiexec"),
                ("hydra", "openmpi", "MPICH", "Open MPI", "mpirun"),
                ("intel", "openmpi", "Intel MPI", "Open MPI", "mpirun")):
            mpirun = self.stand_in(kind)
            said = (f"is {name}'s launcher, and true was built with {family}: each rank would be a "
                    "job of its own. Put that MPI's launcher first into the PATH, or name it: "
                    f"MPIRUN=/path/to/{remedy}; or build with the launcher's MPI: "
                    "MPI_HOME=FOLDER cmake ...\n")
            result = launch("-np", 2, "true", MPIRUN=mpirun, PATH=self.path(ldd=loads))
            self.assertEqual((result.code, result.err), (1, f"error: MPIRUN={mpirun} {said}"))
            path = self.path(ldd=loads, system=self.tools())
            result = launch("-np", 2, "true", MPIRUN="", PATH=path)
            self.assertEqual((result.code, result.err), (1, f"error: {mpirun} {said}"))

    def test_no_launcher_at_all_and_an_unknown_one_are_refused(self):
        result = launch("true", MPIRUN="", PATH=self.tools())
        self.assertEqual((result.code, result.err), (
            1, "error: no launcher of an MPI is in the PATH: sudo apt-get install openmpi-bin, or "
               "load your cluster's module, or MPIRUN=/path/to/mpirun\n"))
        result = launch("true", MPIRUN="/no/mpirun")
        self.assertEqual((result.code, result.err), (
            1, "error: MPIRUN=/no/mpirun: no such program, or not executable\n"))

    def test_each_rank_gets_a_gpu_under_any_of_them(self):
        for index in range(2):
            (self.folder / f"nvidia{index}").touch()
        for name in ("MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "OMPI_COMM_WORLD_LOCAL_RANK",
                     "SLURM_LOCALID"):
            done = programs.run_command([
                "env", f"{name}=1", f"LAUNCH_DEVICES={self.folder}/nvidia",
                str(launcher.SCRIPTS / "bind_gpu.sh"), "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
            self.assertEqual(done.out, "1\n", name)


class Mpich(launcher.Folder):
    """With the real launcher of MPICH."""

    def setUp(self):
        super().setUp()
        self.mpiexec = shutil.which("mpiexec.hydra")
        if self.mpiexec is None:
            self.skipTest("no mpiexec.hydra in the PATH")

    def launch_hydra(self, *arguments, **environment):
        """The launcher of MPICH 4.0 itself dies by SIGPIPE in one of 14 jobs that end at once."""
        for _ in range(5):
            result = launch(*arguments, MPIRUN=self.mpiexec, **environment)
            if result.code not in (-signal.SIGPIPE, 128 + signal.SIGPIPE):
                break
        return result

    def test_it_starts_the_ranks_and_passes_on_variables_and_exit_codes(self):
        script = 'echo "$PMI_RANK of $PMI_SIZE: $TUTTI_TIMEOUT $A"; sleep 0.3'
        result = self.launch_hydra("-np", 3, "-x", "A=b c", "sh", "-c", script, TUTTI_TIMEOUT="5")
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual(sorted(result.out.splitlines()),
                         [f"{rank} of 3: 5 b c" for rank in range(3)])
        for code in (1, 4, 75):
            result = self.launch_hydra("-np", 2, "sh", "-c", f"sleep 0.3; exit {code}")
            self.assertEqual(result.code, code, result.err)

    def test_a_program_of_open_mpis_is_refused(self):
        doctor = programs.program("tutti-doctor")
        if "\nMPI: Open MPI" not in programs.run("tutti-doctor", "--version").out:
            self.skipTest("this build is not Open MPI's")
        said = programs.run_command(["env", "TUTTI_MPI=mpich", doctor, "--version"]).out
        if "\nMPI: MPICH" in said:
            self.skipTest("this build is MPICH's as well")
        result = launch("-np", 2, doctor, MPIRUN=self.mpiexec)
        self.assertEqual((result.code, result.out), (1, ""))
        self.assertIn(f"MPIRUN={self.mpiexec} is MPICH's launcher, and {doctor} was built with "
                      "Open MPI", result.err)


if __name__ == "__main__":
    verdict.main()
