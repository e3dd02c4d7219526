#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""For which GPUs a build by pip is: CMake says it.

The GPUs are what a stand-in for nvidia-smi names. Where nvcc is not installed, only what is decided
before it is looked for can be tested.

Environment: as install_test.py.
"""

import os
import shutil
import subprocess
import unittest

import verdict
from project_case import ProjectCase

TIMEOUT_S = 600
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(meet LANGUAGES CXX)
include({source}/cmake/TuttiCuda.cmake)
"""
NOT_BUILT = "-- GPUs: not built for: "


class FindGpu(ProjectCase):
    PROJECT = PROJECT

    def setUp(self):
        super().setUp()
        (self.folder / "bin").mkdir()

    def line(self, gpus, *options, by_pip=True, build=None, code=0, **environment):
        """CMake's line about GPUs, where nvidia-smi prints these."""
        smi = self.folder / "bin" / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\nprintf '{gpus}'\nexit {code}\n", encoding="utf-8")
        smi.chmod(0o755)
        if build is None:
            self.builds += 1
            build = self.folder / f"build{self.builds}"
        cleared = {name: value for name, value in os.environ.items() if name != "CUDAARCHS"}
        done = subprocess.run(
            [os.environ["INSTALL_CMAKE"], "-S", self.folder / "source", "-B", build,
             f"-DCMAKE_CXX_COMPILER={os.environ['INSTALL_CXX']}", *options,
             *(["-DSKBUILD=2"] if by_pip else [])], check=False, capture_output=True, text=True,
            timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            env={**cleared, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("-- GPUs: ")]
        return line

    def assert_built_for(self, line, architectures):
        self.assertRegex(line, rf"-- GPUs: CUDA \S+ for {architectures}; NCCL: ")

    def test_without_a_gpu_pip_builds_without_cuda_and_says_how_to_do_otherwise(self):
        for gpus, code in (("", 0), ("No devices were found\n", 6), ("9.0\n", 9),
                           ("NVML library version: 535.104\n", 0)):
            line = self.line(gpus, code=code)
            self.assertIn(f"{NOT_BUILT}nvidia-smi names no GPU here; CUDAARCHS=90, or ", line)
            self.assertIn("CMAKE_ARGS=-DTUTTI_CUDA=ON", line)
        self.assertEqual(self.line("9.0\n", "-DTUTTI_CUDA=OFF"), f"{NOT_BUILT}TUTTI_CUDA is OFF")

    @unittest.skipUnless(shutil.which("nvcc"), "no nvcc here")
    def test_pip_builds_for_the_gpus_that_are_here(self):
        build = self.folder / "build"
        for gpus, architectures in (("9.0\n9.0\n8.0\n", "90-real;80-real"),
                                    ("99.0\n", r"\d+-virtual"), ("8.0\n", "80-real")):
            self.assert_built_for(self.line(gpus, build=build), architectures)
        self.assertIn("nvidia-smi names no GPU here", self.line("", build=build))
        self.assertRegex(self.line("1.0\n"), f"{NOT_BUILT}.* does not compile for the GPUs here, "
                                             "of compute capability 10; CUDAARCHS=90, or")

    @unittest.skipUnless(shutil.which("nvcc"), "no nvcc here")
    def test_what_is_named_wins_over_the_gpus_that_are_here(self):
        for gpus in ("", "8.0\n"):
            self.assert_built_for(self.line(gpus, CUDAARCHS="86"), "86")
            self.assert_built_for(self.line(gpus, "-DCMAKE_CUDA_ARCHITECTURES=89"), "89")
            self.assert_built_for(self.line(gpus, by_pip=False), "75-real;80-real;90")
            self.assert_built_for(self.line(gpus, "-DTUTTI_CUDA=ON"), "75-real;80-real;90")


if __name__ == "__main__":
    verdict.main()
