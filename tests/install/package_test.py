#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packages that `cpack` makes: what is in which, and what Debian's lintian says of them.

Environment: as install_test.py, and INSTALL_CPACK.
"""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import verdict
from install_test import Installed, run, tool

# Part -> name of its package; @ is the MPI of the build.
NAMES = {"library": "libtutti0.1", "dev": "libtutti-dev", "tools": "tutti",
         "static": "libtutti-@-dev", "bench": "tutti-benchmarks-@"}
# Which package an installed file is in: the first row that matches.
PARTS = [
    (r"include/.*", "dev"),
    (r".*/libtutti\.a|.*/tutti-static[^/]*", "static"),
    (r".*/libtutti\.so|.*/pkgconfig/.*|.*/cmake/tutti/.*", "dev"),
    (r"lib.*/.*\.so[.\d]*", "library"),
    (r"bin/.*-benchmark", "bench"),
    (r"bin/.*|share/(tutti|doc)/.*", "tools"),
]
# What packages have besides.
OF_DEBIAN = r"share/(doc/NAME/(copyright|changelog\.gz)|lintian/overrides/NAME|man/man1/.*\.1\.gz)"
# Part -> what it depends on, and what it does not.
DEPENDS = {
    "library": ([r"libc6 "], [r"mpi"]),
    "dev": ([r"libtutti0\.1 \(= VERSION\)"], [r"mpi"]),
    "tools": ([r"libtutti0\.1 \(= VERSION\)", r"openmpi-bin|mpich"], [r"libopenmpi|libmpich"]),
    "static": ([r"libtutti-dev \(= VERSION\)", r"lib@-dev"], []),
    "bench": ([r"tutti \(= VERSION\)", r"lib@|mpi"], []),
}


class Packages(Installed):
    @classmethod
    def setUpClass(cls):
        missing = [name for name in ("dpkg-deb", "dpkg-shlibdeps", "file", "gzip")
                   if not shutil.which(name)]
        if missing:
            raise unittest.SkipTest(f"not installed: {', '.join(missing)}")
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="package_test.")
        cls.addClassCleanup(folder.cleanup)
        # Ninja's build is not asked whether it is up to date, as that of make would be.
        run(tool("CPACK"), "--config", Path(tool("BUILD")) / "CPackConfig.cmake",
            "-B", folder.name, "-D", "CPACK_CMAKE_GENERATOR=Ninja")
        cls.files = sorted(Path(folder.name).glob("*.deb"))
        cls.names = {file.name.split("_")[0]: file for file in cls.files}
        mpi = next(re.fullmatch(r"libtutti-(\w+)-dev", name) for name in cls.names
                   if re.fullmatch(r"libtutti-\w+-dev", name)).group(1)
        cls.mpi = mpi
        cls.parts = {part: name.replace("@", mpi) for part, name in NAMES.items()}

    def field(self, part, field):
        return run("dpkg-deb", "-f", self.names[self.parts[part]], field).stdout.strip()

    def contents(self, part):
        """The files of a package, without its folders and without usr/."""
        tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", self.names[self.parts[part]]],
                             stdout=subprocess.PIPE, check=True)
        listed = subprocess.run(["tar", "-t"], input=tar.stdout, stdout=subprocess.PIPE, check=True)
        names = listed.stdout.decode().splitlines()
        return {name.removeprefix("./usr/") for name in names if not name.endswith("/")}

    def test_each_installed_file_is_in_one_package(self):
        installed = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")
                     if path.is_symlink() or not path.is_dir()}
        triplet = re.compile(r"^lib/[^/]*-linux-gnu[^/]*/")  # where the prefix is Debian's
        self.assertEqual(set(self.parts.values()), set(self.names))
        expected = {part: set() for part in NAMES}
        for name in installed:
            part = next((part for row, part in PARTS if re.fullmatch(row, name)), "none of these")
            expected[part].add(triplet.sub("lib/", name))
        for part, package in self.parts.items():
            seen = {triplet.sub("lib/", name) for name in self.contents(part)}
            besides = re.compile(OF_DEBIAN.replace("NAME", re.escape(package)))
            self.assertEqual({name for name in seen if not besides.fullmatch(name)},
                             expected[part], package)
            for name in ("copyright", "changelog.gz"):
                self.assertIn(f"share/doc/{package}/{name}", seen)
            for command in (name for name in seen if name.startswith("bin/")):
                self.assertIn(f"share/man/man1/{command[4:]}.1.gz", seen)

    def test_each_depends_on_what_it_needs(self):
        version = self.field("library", "Version")
        for part, (needed, others) in DEPENDS.items():
            depends = self.field(part, "Depends")
            for row in needed:
                row = row.replace("VERSION", re.escape(version)).replace("@", self.mpi)
                self.assertRegex(depends, row, part)
            for row in others:
                self.assertNotRegex(depends, row, part)
        for part in ("static", "bench"):  # one of each kind, of whichever MPI
            self.assertEqual(self.field(part, "Conflicts"), self.field(part, "Provides"))

    def test_lintian_finds_nothing(self):
        if not shutil.which("lintian"):
            raise unittest.SkipTest("no lintian in the PATH")
        # What it says of pkg-config's files is right for a build with Debian's prefix and without
        # CUDA, whose folder is none of Debian's.
        tags = ("bad-directive", "multi-arch-wrong-dir", "unavailable-for-cross-compilation")
        suppressed = ",".join(f"pkg-config-{tag}" for tag in tags)
        done = run("lintian", "--fail-on", "error,warning", "--suppress-tags", suppressed,
                   *self.files, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


if __name__ == "__main__":
    verdict.main()
