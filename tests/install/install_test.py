#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `cmake --install` leaves, as another project meets it.

Environment: INSTALL_BUILD, INSTALL_SOURCE, the folders; INSTALL_CMAKE, _NM, _READELF, _CXX, _C, the
tools; INSTALL_FLAGS, what programs must be built with; INSTALL_MPIRUN, the launcher and its flags.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import verdict

CONSUMER = Path(__file__).resolve().parent / "consumer"
FLAGS = shlex.split(os.environ["INSTALL_FLAGS"])
TIMEOUT_S = 600
SCRIPTS = {"tutti-config", "tutti-launch"}
EXPECTED_CPP = {1: "invalid_argument\nconsumer of 1 ranks: 7.5\nadam,learning_rate=0.25\n",
                2: "invalid_argument\nconsumer of 2 ranks: 7.5\nadam,learning_rate=0.25\n"}
EXPECTED_C = {1: "consumer of 1 ranks: 2.0\n", 2: "consumer of 2 ranks: 4.0\n"}


def tool(name):
    return os.environ["INSTALL_" + name]


def run(*command, check=True, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, **environment})
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="install_test.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.prefix = cls.folder / "a folder"  # was somewhere else when it was installed
        run(tool("CMAKE"), "--install", tool("BUILD"), "--prefix", cls.folder / "before")
        (cls.folder / "before").rename(cls.prefix)
        cls.library = next(cls.prefix.rglob("libtutti.so")).parent
        cls.include = cls.prefix / "include"

    def check_program(self, program, expected, shared):
        """Runs a program alone and on two ranks; tells whether it needs the shared library."""
        environment = {"LD_LIBRARY_PATH": str(self.library)} if shared else {}
        needed = run(tool("READELF"), "-d", program).stdout
        self.assertEqual("[libtutti.so.0.1]" in needed, shared, needed)
        if shared:
            self.assertNotIn("libmpi", needed)
        self.assertEqual(run(program, **environment).stdout, expected[1])
        mpirun = shlex.split(tool("MPIRUN"))
        self.assertEqual(run(*mpirun, "-np", 2, program, **environment).stdout, expected[2])


class Exports(Installed):
    def symbols(self):
        lines = run(tool("NM"), "-DC", "--defined-only", self.library / "libtutti.so").stdout
        return [line.split(" ", 2)[2] for line in lines.splitlines()]

    def declared(self):
        """The words of the public headers that are not only declared as a class somewhere else."""
        text = "\n".join(path.read_text(encoding="utf-8") for path in self.include.rglob("*.h*"))
        text = re.sub(r"//.*", "", text)
        text = re.sub(r"\bclass (Group|Impl);", "", text).replace("<Group>", "").replace(
            "<Impl>", "")
        return set(re.findall(r"~?\w+", text))

    def test_only_what_the_public_headers_declare(self):
        words = self.declared()
        symbols = self.symbols()
        self.assertGreater(len(symbols), 150)
        for symbol in symbols:
            if symbol == "TUTTI_0.1":  # the version itself
                continue
            name = re.sub(r"@@.*|^(vtable|typeinfo|typeinfo name) for |\[abi:\w+\]", "", symbol)
            name = re.sub(r"\(.*", "", name.replace("std::hash<tutti::Key>", "tutti::Key"))
            self.assertTrue(name.startswith(("tutti::", "tutti_")), symbol)
            self.assertLessEqual(set(re.findall(r"~?\w+", name)), words, symbol)

    def test_all_of_the_c_api(self):
        exported = {symbol.split("@")[0] for symbol in self.symbols()}
        text = "\n".join(path.read_text(encoding="utf-8") for path in self.include.rglob("*.h"))
        text = re.sub(r"//.*", "", text)
        functions = set(re.findall(r"\b(tutti_\w+)\(", text))
        self.assertGreater(len(functions), 40)
        self.assertEqual(functions - exported, set())

    def test_the_name_that_programs_ask_for_has_the_version_in_it(self):
        dynamic = run(tool("READELF"), "-d", self.library / "libtutti.so").stdout
        self.assertIn("Library soname: [libtutti.so.0.1]", dynamic)
        self.assertNotIn("libmpi", dynamic)
        self.assertEqual((self.library / "libtutti.so").readlink().name, "libtutti.so.0.1")
        self.assertRegex((self.library / "libtutti.so.0.1").readlink().name,
                         r"^libtutti\.so\.0\.1\.\d+$")


    def test_plug_ins_lie_beside_it_export_one_name_and_link_no_mpi(self):
        plugins = sorted((self.library / "tutti-0.1").iterdir())
        self.assertTrue(plugins)
        for plugin in plugins:
            self.assertRegex(plugin.name, r"^libtutti-(mpi|preload)-(openmpi|mpich|standard)\.so$")
            name = "tutti_mpi_plugin" if "-mpi-" in plugin.name else "tutti_preload"
            self.assertNotRegex(run(tool("READELF"), "-d", plugin).stdout, r"\[libmpi")
            lines = run(tool("NM"), "-D", "--defined-only", plugin).stdout.splitlines()
            self.assertEqual([line.split()[2] for line in lines], [name])


class Headers(Installed):
    def test_each_compiles_alone_without_the_headers_of_mpi_or_cuda(self):
        headers = [path for path in sorted(self.include.rglob("*.h*")) if path.name != "mpi.hpp"]
        self.assertGreater(len(headers), 20)
        for header in headers:
            with self.subTest(header=header.name):
                source = self.folder / "alone.cc"
                source.write_text(f'#include "{header.relative_to(self.include)}"\n',
                                  encoding="utf-8")
                seen = run(tool("CXX"), "-std=c++20", "-fsyntax-only", "-H", "-I", self.include,
                           "-Wall", "-Wextra", "-Werror", source).stderr
                self.assertNotRegex(seen, r"/(mpi|cuda|cuda_runtime|nccl)\.h\n")


class CMakeProjects(Installed):
    def configure(self, build, *options, check=True, source=CONSUMER):
        return run(tool("CMAKE"), "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   f"-DCMAKE_CXX_COMPILER={tool('CXX')}", f"-DCMAKE_C_COMPILER={tool('C')}",
                   f"-DCMAKE_CXX_FLAGS={' '.join(FLAGS)}", f"-DCMAKE_C_FLAGS={' '.join(FLAGS)}",
                   *options, check=check)

    def build(self, name, kind, languages):
        build = self.folder / name
        self.configure(build, f"-DKIND={kind}", f"-DLANGUAGES={languages}")
        run(tool("CMAKE"), "--build", build)
        return build

    def test_the_shared_library_is_the_default(self):
        build = self.build("default", "default", "CXX")
        self.check_program(build / "consumer_cpp", EXPECTED_CPP, shared=True)

    def test_a_project_in_c_alone_links_the_shared_library(self):
        build = self.build("c", "shared", "C")
        self.check_program(build / "consumer_c", EXPECTED_C, shared=True)

    def test_a_project_links_the_static_library_and_with_it_mpi(self):
        build = self.build("static", "static", "C;CXX")
        self.check_program(build / "consumer_cpp", EXPECTED_CPP, shared=False)
        self.check_program(build / "consumer_c", EXPECTED_C, shared=False)

    def test_a_component_that_there_is_not_is_an_error_with_the_names_of_the_others(self):
        done = self.configure(self.folder / "wrong", "-DKIND=gpu", "-DLANGUAGES=CXX", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("tutti has the components shared and static, not gpu", done.stderr)

    def test_a_subdirectory_follows_build_shared_libs_and_builds_the_library_alone(self):
        source = self.folder / "parent"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(parent LANGUAGES CXX)\n"
            f"add_subdirectory({tool('SOURCE')} tutti)\n"
            "get_target_property(aliased tutti::tutti ALIASED_TARGET)\n"
            "message(STATUS \"tutti::tutti is ${aliased}\")\n"
            "foreach(target tutti::static tutti::shared)\n"
            "  if(NOT TARGET ${target})\n    message(SEND_ERROR ${target})\n  endif()\n"
            "endforeach()\n"
            "if(TARGET kvstore-tour)\n  message(SEND_ERROR programs)\nendif()\n", encoding="utf-8")
        for value, target in (("OFF", "tutti"), ("ON", "tutti_shared")):
            done = self.configure(self.folder / f"parent-{value}", f"-DBUILD_SHARED_LIBS={value}",
                                  source=source)
            self.assertIn(f"tutti::tutti is {target}\n", done.stdout)


class Programs(Installed):
    def test_they_find_the_shared_library_in_a_folder_that_was_moved(self):
        for program in sorted((self.prefix / "bin").iterdir()):
            if program.name in SCRIPTS:
                continue
            with self.subTest(program=program.name):
                needed = run(tool("READELF"), "-d", program).stdout
                self.assertIn("[libtutti.so.0.1]", needed)
                self.assertIn("$ORIGIN/", needed)
                self.assertIn("GPUs: ", run(program, "--version").stdout)

    def test_demonstrations_stay_in_the_build_folder(self):
        names = {program.name for program in (self.prefix / "bin").iterdir()}
        self.assertIn(names - SCRIPTS,
                      (set(), {"train-fashion-mnist", "collective-benchmark", "tutti-doctor",
                               "checkpoint-benchmark", "overlap-benchmark"}))


class Pages(Installed):
    def test_the_links_from_page_to_page_hold(self):
        docs = next(self.prefix.rglob("INSTALL.md")).parent
        links = 0
        for page in sorted(docs.rglob("*.md")):
            text = page.read_text(encoding="utf-8")
            for link in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", text):
                links += 1
                self.assertTrue((page.parent / link).exists(), f"{page}: {link}")
        self.assertGreater(links, 40)
        for name in ("README.md", "LICENSE", "CHANGELOG.md"):
            self.assertTrue((docs / name).exists(), name)


class Launcher(Installed):
    def test_the_launcher_and_the_templates_come_with_it(self):
        launch = self.prefix / "bin" / "tutti-launch"
        program = self.prefix / "bin" / "tutti-doctor"
        if not program.exists():
            program = Path("/bin/true")
        line = run(launch, "--dry-run", "--gpus", "yes", "-np", 2, program).stdout
        scripts = self.prefix / "share" / "tutti" / "mpirun"
        self.assertIn(str(scripts / "bind_gpu.sh"), line)
        run(launch, "-np", 2, program)
        for name in ("slurm_cpu.sh", "slurm_gpu.sh", "slurm_benchmark.sh", "pbs_cpu.sh",
                     "pbs_gpu.sh", "pbs_benchmark.sh", "batch.sh"):
            self.assertTrue((scripts / name).exists(), name)

    def test_a_template_that_the_batch_system_has_copied_finds_its_parts(self):
        """The folder of the installation; SCRIPTS names a folder that has been moved."""
        before = self.folder / "before"
        scripts = before / "share" / "tutti" / "mpirun"
        self.addCleanup(before.unlink)
        before.symlink_to(self.prefix)
        for name in ("slurm_cpu.sh", "slurm_gpu.sh", "slurm_benchmark.sh", "pbs_cpu.sh",
                     "pbs_gpu.sh", "pbs_benchmark.sh"):
            copy = self.folder / "slurm_script"
            text = (scripts / name).read_text(encoding="utf-8")
            begin, source, _ = text.partition('/batch.sh" || exit 1\n')
            copy.write_text(begin + source + 'echo "$batch_folder"\n', encoding="utf-8")
            said = run("bash", copy, PBS_O_WORKDIR="/").stdout
            self.assertEqual(Path(said.strip()), scripts)
            self.assertTrue(os.access(scripts / name, os.X_OK), name)

    def test_compare_comes_with_it_and_builds_nothing(self):
        compare = self.prefix / "share" / "tutti" / "mpirun" / "compare.py"
        said = run(compare, "--help", PYTHONDONTWRITEBYTECODE="1").stdout
        self.assertIn(str(self.prefix / "bin"), re.sub(r"\s+", " ", said).replace("- ", "-"))
        done = run(compare, "--bin", self.folder / "nowhere", "--output", self.folder / "compared",
                   check=False, PYTHONDONTWRITEBYTECODE="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no collective-benchmark: build it, or name another", done.stderr)


class Config(Installed):
    def ask(self, *options, **arguments):
        return run(self.prefix / "bin" / "tutti-config", *options, **arguments)

    def test_it_says_where_the_parts_are(self):
        link = self.folder / "prefix"  # the words for a compiler are quoted for a shell
        version = re.search(r"project\(tutti VERSION ([\d.]+)", (
            Path(tool("SOURCE")) / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
        link.symlink_to(self.prefix)
        for option, expected in (("--version", version), ("--prefix", str(self.prefix)),
                                 ("--cflags", f"-I{self.include}"),
                                 ("--libs", f"-L{self.library} -ltutti")):
            said = run(link / "bin" / "tutti-config", option).stdout
            said = said.strip() if option in ("--version", "--prefix") else shlex.split(said)
            if isinstance(said, list):
                said = " ".join(said)
            self.assertEqual(said, expected, option)
        both = shlex.split(run(link / "bin" / "tutti-config", "--cflags", "--libs").stdout)
        self.assertEqual(both, [f"-I{self.include}", f"-L{self.library}", "-ltutti"])

    def test_it_names_the_library_to_preload_for_a_launcher_and_for_a_program(self):
        mpirun = shlex.split(tool("MPIRUN"))[0]
        library = Path(self.ask("--preload", MPIRUN=mpirun).stdout.strip())
        self.assertEqual(library.parent, self.library)
        self.assertRegex(library.name, r"^libtutti_mpi_(openmpi|mpich|standard)\.so$")
        program = self.prefix / "bin" / "collective-benchmark"
        if program.exists():
            self.assertEqual(self.ask("--preload", program, MPIRUN=mpirun).stdout,
                             f"{library}\n")

    def test_what_is_not_there_is_an_error(self):
        for options, text in ((["--preload", "/no/program"], "error: '/no/program': no such"),
                              (["--libs", "tutti"], "usage: tutti-config"),
                              ([], "usage: tutti-config")):
            done = self.ask(*options, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ""), options)
            self.assertIn(text, done.stderr)
        source = Path(tool("SOURCE")) / "scripts" / "mpirun" / "config.sh"
        done = run(source, "--version", check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("Tutti is not installed there", done.stderr)


class PkgConfig(Installed):
    def setUp(self):
        if not shutil.which("pkg-config"):
            raise unittest.SkipTest("no pkg-config in the PATH")

    def path(self):
        """Where the packages lie. The original pkg-config, 0.29 and before, cuts paths at spaces,
        which pkgconf does not."""
        path = self.library / "pkgconfig"
        if not run("pkg-config", "--version").stdout.startswith("0."):
            return path
        link = self.folder / "without_spaces"
        if not link.exists():
            link.symlink_to(self.prefix)
        return link / path.relative_to(self.prefix)

    def flags(self, package):
        return shlex.split(run("pkg-config", "--cflags", "--libs", package,
                               PKG_CONFIG_PATH=str(self.path())).stdout)

    def check_package(self, package, shared):
        for compiler, name, expected in (("CXX", "consumer.cpp", EXPECTED_CPP),
                                         ("C", "consumer.c", EXPECTED_C)):
            program = self.folder / f"{package}.{name}.out"
            standard = "-std=c++20" if compiler == "CXX" else "-std=c11"
            run(tool(compiler), standard, *FLAGS, CONSUMER / name, "-o", program,
                *self.flags(package))
            self.check_program(program, expected, shared)

    def test_the_shared_library(self):
        self.check_package("tutti", shared=True)

    def test_the_static_library(self):
        self.check_package("tutti-static", shared=False)

    def test_both_say_their_version(self):
        version = re.search(r"project\(tutti VERSION ([\d.]+)", (
            Path(tool("SOURCE")) / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
        for package in ("tutti", "tutti-static"):
            self.assertEqual(run("pkg-config", "--modversion", package, PKG_CONFIG_PATH=str(
                self.library / "pkgconfig")).stdout, version + "\n")


if __name__ == "__main__":
    verdict.main()
