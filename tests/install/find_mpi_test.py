#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which MPI a build takes, where there are several: CMake says it, and stops where two disagree.

The other MPIs are stand-ins: folders with a header, a library that says a version, a compiler and a
launcher, as Open MPI 5, MPICH and Intel MPI have them.

Environment: as install_test.py.
"""

import os
import subprocess

import verdict
from project_case import ProjectCase

TIMEOUT_S = 600
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(meet LANGUAGES CXX)
set(TUTTI_BUILD_TESTS ON)
include({source}/cmake/TuttiMpi.cmake)
set(text "")
foreach(abi IN LISTS TUTTI_MPI_ABIS)
  list(GET TUTTI_MPI_INCLUDES_${{abi}} 0 folder)
  list(APPEND text "${{abi}} ${{folder}}")
endforeach()
list(JOIN text ", " text)
message(STATUS "plug-ins: ${{text}}; ${{TUTTI_MPI_FOLDERS}}")
"""
HEADERS = {"Open MPI": "#define OMPI_MAJOR_VERSION {0}\n#define OMPI_MINOR_VERSION {1}\n"
                       "#define OMPI_RELEASE_VERSION {2}\n",
           "MPICH": '#define MPICH_VERSION "{version}"\n',
           "Intel MPI": '#define I_MPI_VERSION "{version}"\n#define MPICH_VERSION "4.1"\n'}
LIBRARIES = {"Open MPI": "Open MPI v{version}, package: somebody's",
             "MPICH": "MPICH Version:\\t{version}\\nMPICH Release date:\\tunreleased",
             "Intel MPI": "Intel(R) MPI Library {version} for Linux* OS"}
COMPILERS = {"Open MPI": ("--showme:version", "mpicxx: Open MPI {version} (Language: C++)"),
             "MPICH": ("-v", "mpicxx for MPICH version {version}"),
             "Intel MPI": ("-v", "mpigxx for the Intel(R) MPI Library {version} for Linux*")}
LAUNCHERS = {"Open MPI": "mpirun (Open MPI) {version}",
             "MPICH": "HYDRA build details:\n    Version:       {version}",
             "Intel MPI": "Intel(R) MPI Library for Linux* OS, Version {version} Build 20231005"}
API = """
#define MPI_VERSION 3
#define MPI_SUBVERSION 1
#define MPI_MAX_LIBRARY_VERSION_STRING 256
extern "C" int MPI_Get_library_version(char* text, int* length);
extern "C" int MPI_Init(int*, char***);
extern "C" int MPI_Finalize(void);
extern "C" int MPI_Get_version(int*, int*);
"""


class FindMpi(ProjectCase):
    PROJECT = PROJECT

    def program(self, path, text):
        path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
        path.chmod(0o755)

    def mpi(self, name, version, launcher=None, library=None, compiler=None):
        """A stand-in in a folder of its own; parts may be another version's, or another MPI's."""
        home = self.folder / f"{name.replace(' ', '')}-{version}{len(list(self.folder.iterdir()))}"
        for part in ("bin", "include", "lib"):
            (home / part).mkdir(parents=True)
        (home / "include" / "mpi.h").write_text(
            "#pragma once\n" + HEADERS[name].format(*version.split("."), version=version) + API,
            encoding="utf-8")
        kind, number = library or (name, version)
        source = home / "lib" / "mpi.cc"
        source.write_text(
            '#include <cstring>\n#include "../include/mpi.h"\n'
            "int MPI_Get_library_version(char* text, int* length) {\n"
            f'  std::strcpy(text, "{LIBRARIES[kind].format(version=number)}");\n'
            "  *length = static_cast<int>(std::strlen(text));\n  return 0;\n}\n"
            "int MPI_Init(int*, char***) { return 0; }\nint MPI_Finalize(void) { return 0; }\n"
            "int MPI_Get_version(int*, int*) { return 0; }\n", encoding="utf-8")
        subprocess.run([os.environ["INSTALL_CXX"], "-shared", "-fPIC", source, "-o",
                        home / "lib" / "libmpi.so"], check=True, timeout=TIMEOUT_S)
        flags = f"-I{home}/include -L{home}/lib -Wl,-rpath -Wl,{home}/lib -lmpi"
        kind, number = compiler or (name, version)
        option, text = COMPILERS[kind]
        self.program(home / "bin" / "mpicxx",
                     f'case "$1" in\n  {option}) echo "{text.format(version=number)}" ;;\n'
                     f'  -show | --showme) echo "c++ {flags}" ;;\n'
                     f'  -*) exit 1 ;;\n  *) exec c++ "$@" {flags} ;;\nesac\n')
        kind, number = launcher or (name, version)
        self.program(home / "bin" / "mpirun", f"echo '{LAUNCHERS[kind].format(version=number)}'\n")
        return home

    def configure(self, *options, path=(), build=None, **environment):
        if build is None:
            self.builds += 1
            build = self.folder / f"build{self.builds}"
        cleared = {name: value for name, value in os.environ.items()
                   if name not in ("MPI_HOME", "CPATH", "LIBRARY_PATH")}
        folders = [f"{home}/bin" for home in path] + [os.environ["PATH"]]
        return subprocess.run(
            [os.environ["INSTALL_CMAKE"], "-S", self.folder / "source", "-B", build,
             f"-DCMAKE_CXX_COMPILER={os.environ['INSTALL_CXX']}", *options], check=False,
            capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            env={**cleared, "PATH": ":".join(folders), **environment})

    def assert_taken(self, done, name, home, launcher=None):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"-- MPI: {name} of {home}/bin/mpicxx, launcher: "
                      f"{launcher or home}/bin/mpirun\n", done.stdout)

    def assert_refused(self, done, *texts):
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("-- MPI: ", done.stdout)
        said = " ".join(done.stderr.split())
        for text in texts:
            self.assertIn(text, said)

    def test_the_first_in_the_path_is_taken_with_the_launcher_beside_it(self):
        for name, version in (("Open MPI", "5.0.11"), ("MPICH", "4.2.1"), ("Intel MPI", "2021.11")):
            home = self.mpi(name, version)
            self.assert_taken(self.configure(path=[home]), f"{name} {version}", home)

    def test_a_folder_and_a_compiler_that_are_named_win_over_the_path(self):
        first, other = self.mpi("MPICH", "4.2.1"), self.mpi("Open MPI", "5.0.11")
        for done in (self.configure(path=[first], MPI_HOME=str(other)),
                     self.configure(f"-DMPI_HOME={other}", path=[first]),
                     self.configure(f"-DMPI_CXX_COMPILER={other}/bin/mpicxx", path=[first]),
                     self.configure("-DMPI_CXX_COMPILER=mpicxx", path=[other, first])):
            self.assert_taken(done, "Open MPI 5.0.11", other)

    def test_two_that_are_named_and_differ_are_refused(self):
        one, other = self.mpi("MPICH", "4.2.1"), self.mpi("Open MPI", "5.0.11")
        self.assert_refused(
            self.configure(f"-DMPI_CXX_COMPILER={one}/bin/mpicxx", MPI_HOME=str(other)),
            f"two MPIs are asked for: MPI_CXX_COMPILER={one}/bin/mpicxx, and MPI_HOME={other} has "
            f"{other}/bin/mpicxx. Unset one of the two.")

    def test_what_is_named_and_is_not_there_is_refused(self):
        self.assert_refused(self.configure(MPI_HOME="/nowhere"),
                            "MPI_HOME=/nowhere, but there is no /nowhere/bin/mpicxx")
        self.assert_refused(self.configure("-DMPI_CXX_COMPILER=mpicxx.none"),
                            "MPI_CXX_COMPILER=mpicxx.none: no such program.")

    def test_others_get_a_plug_in_one_for_each_kind(self):
        own, other = self.mpi("Open MPI", "5.0.11"), self.mpi("MPICH", "4.2.1")
        intel = self.mpi("Intel MPI", "2021.11")
        compilers = ";".join(f"{home}/bin/mpicxx" for home in (own, other, intel))
        done = self.configure(f"-DTUTTI_MPIS={compilers}", path=[own])
        self.assert_taken(done, "Open MPI 5.0.11", own)
        self.assertEqual(done.stdout.count("-- MPI: also "), 1)
        self.assertIn(f"-- MPI: also MPICH 4.2.1 of {other}/bin/mpicxx, as a plug-in\n",
                      done.stdout)
        self.assertIn(f"-- plug-ins: openmpi {own}/include, mpich {other}/include; "
                      f"{own}/lib;{other}/lib\n", done.stdout)

    def test_the_standard_abi_is_a_kind_of_its_own(self):
        """The compiler with this name says a definition, and the same header has another ABI."""
        home, own = self.mpi("MPICH", "5.0.2"), self.mpi("Open MPI", "5.0.11")
        header = home / "include" / "mpi.h"
        own_abi = header.read_text(encoding="utf-8")
        header.write_text("#ifdef MPI_ABI\n#pragma once\n#define MPI_ABI_VERSION 1\n"
                          f"#define MPI_ABI_SUBVERSION 0\n{API}#else\n{own_abi}#endif\n",
                          encoding="utf-8")
        native = (home / "bin" / "mpicxx").read_text(encoding="utf-8")
        native = native.replace(f"-I{home}", f"-DMPI_ABI -I{home}").replace("-lmpi", "-lmpi_abi")
        abi = home / "bin" / "mpicxx_abi"
        abi.write_text(native, encoding="utf-8")
        abi.chmod(0o755)
        (home / "lib" / "libmpi_abi.so").symlink_to("libmpi.so")
        done = self.configure(f"-DTUTTI_MPIS={abi};{home}/bin/mpicxx", path=[own])
        self.assertIn(f"-- MPI: also the standard ABI, by MPICH 5.0.2 of {abi}, as a plug-in\n",
                      done.stdout, done.stderr)
        self.assertIn(f"-- plug-ins: openmpi {own}/include, standard {home}/include, "
                      f"mpich {home}/include; {own}/lib;{home}/lib\n", done.stdout)
        done = self.configure(f"-DMPI_CXX_COMPILER={abi}", path=[own])
        self.assertIn(f"-- MPI: MPICH 5.0.2 of {abi}, standard ABI 1.0, launcher: "
                      f"{home}/bin/mpirun\n", done.stdout, done.stderr)
        self.assertIn(f"-- plug-ins: standard {home}/include; {home}/lib\n", done.stdout)

    def test_what_cannot_become_a_plug_in_is_refused(self):
        own, other = self.mpi("Open MPI", "5.0.11"), self.mpi("MPICH", "4.2.1")
        self.assert_refused_plugin(own, "/no/mpicxx", "/no/mpicxx is no program. Name the mpicxx")
        self.assert_refused_plugin(own, "/bin/true", "does not say which MPI it is of")
        (other / "include" / "mpi.h").unlink()
        self.assert_refused_plugin(own, f"{other}/bin/mpicxx", "names no folder with mpi.h")

    def assert_refused_plugin(self, own, given, text):
        done = self.configure(f"-DTUTTI_MPIS={given}", path=[own])
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(f"TUTTI_MPIS={given}: ", " ".join(done.stderr.split()))
        self.assertIn(text, " ".join(done.stderr.split()))

    def test_a_header_of_another_mpi_than_the_library_is_refused(self):
        home = self.mpi("MPICH", "4.2.1")
        other = self.mpi("Open MPI", "5.0.11")
        self.assert_refused(self.configure(path=[home], CPATH=f"{other}/include"),
                            "two MPIs disagree: the header mpi.h",
                            "is Open MPI 5.0.11's, but the library that programs load is "
                            "MPICH 4.2.1",
                            "look at CPATH, LIBRARY_PATH, LD_LIBRARY_PATH")
        self.assert_refused(self.configure(path=[self.mpi("Open MPI", "5.0.11",
                                                          library=("Open MPI", "4.1.4"))]),
                            "is Open MPI 5.0.11's, but the library that programs load is "
                            "Open MPI 4.1.4")

    def test_a_compiler_of_another_mpi_than_the_library_is_refused(self):
        home = self.mpi("Open MPI", "5.0.11", compiler=("MPICH", "4.2.1"))
        self.assert_refused(self.configure(path=[home]), f"{home}/bin/mpicxx is MPICH 4.2.1's, but "
                            "the library that it led to is Open MPI 5.0.11")

    def test_a_launcher_of_another_mpi_that_is_named_is_refused(self):
        one, other = self.mpi("MPICH", "4.2.1"), self.mpi("Open MPI", "5.0.11")
        self.assert_refused(
            self.configure(f"-DMPIEXEC_EXECUTABLE={other}/bin/mpirun", path=[one]),
            f"two MPIs disagree: MPIEXEC_EXECUTABLE={other}/bin/mpirun is Open MPI 5.0.11's, but "
            f"the library is MPICH 4.2.1, of {one}/bin/mpicxx")

    def test_a_launcher_of_another_mpi_beside_the_compiler_is_passed_over(self):
        home = self.mpi("Open MPI", "7.0.0", launcher=("MPICH", "4.2.1"))
        self.assert_refused(self.configure(path=[home]), "no launcher of Open MPI 7.0.0, "
                            f"the MPI of {home}/bin/mpicxx, is beside it or in the PATH "
                            f"({home}/bin/mpirun is MPICH 4.2.1")
        other = self.mpi("Open MPI", "7.0.3")
        self.assert_taken(self.configure(path=[other], MPI_HOME=str(home)), "Open MPI 7.0.0", home,
                          launcher=other)

    def test_a_build_folder_is_not_configured_for_another_mpi(self):
        one, other = self.mpi("MPICH", "4.2.1"), self.mpi("Open MPI", "5.0.11")
        build = self.folder / "build"
        self.assert_taken(self.configure(path=[one], build=build), "MPICH 4.2.1", one)
        self.assert_taken(self.configure(path=[one], build=build), "MPICH 4.2.1", one)
        self.assert_refused(self.configure(path=[other], build=build),
                            f"this build folder is configured for the MPI of {one}/bin/mpicxx, and "
                            f"now that of {other}/bin/mpicxx is meant")


if __name__ == "__main__":
    verdict.main()
