#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checkpoint-benchmark times saves and loads beside the disk, and leaves nothing behind."""

import re
import tempfile
import unittest
from pathlib import Path

import programs

ROW = re.compile(r"(\S+)" + 5 * r" +(\d+\.\d\d)" + r" +\d+\.\d")
SMALL = ("--bytes", "3M", "--keys", "3", "--repeats", "2")

REFUSED = [
    (["--byte", "3M"], "unrecognised option '--byte'"),
    (["--bytes", "many"], "--bytes: "),
    (["--bytes", "60"], "--bytes 60: expected at least one float32 (4 bytes) for each of 16 keys"),
    (["--keys", "0"], "--keys: expected at least 1"),
    (["--repeats", "0"], "--repeats: expected at least 1"),
]


class CheckpointBenchmark(unittest.TestCase):
    def setUp(self):
        self.folder = self.new_folder()

    def new_folder(self, place=None):
        folder = tempfile.TemporaryDirectory(prefix="checkpoint_benchmark_test.", dir=place)
        self.addCleanup(folder.cleanup)
        return Path(folder.name)

    def test_every_turn_is_a_row_and_every_element_comes_back(self):
        in_memory = self.new_folder("/dev/shm")
        for ranks, directory in ((None, self.folder), (2, self.folder), (3, in_memory)):
            with self.subTest(ranks=ranks, directory=directory):
                result = programs.run("checkpoint-benchmark", *SMALL, "--directory", directory,
                                      ranks=ranks)
                self.assertEqual((result.code, result.err), (0, ""))
                lines = result.out.splitlines()
                self.assertRegex(lines[0], f"^3 MiB in 3 keys, {ranks or 1} ranks?, to ")
                rows = [ROW.fullmatch(line) for line in lines[2:-1]]
                self.assertTrue(all(rows), result.out)
                self.assertEqual([row[1] for row in rows], ["warm-up", "warm-up", "1", "2", "p50"])
                self.assertEqual(lines[-1], "wrong elements after a load: 0")
                self.assertEqual(list(directory.iterdir()), [])

    def test_wrong_use_is_one_line_for_the_job(self):
        for arguments, expected in REFUSED:
            with self.subTest(arguments=arguments):
                result = programs.run("checkpoint-benchmark", *arguments)
                self.assertEqual((result.code, len(result.err.splitlines())), (1, 1), result.err)
                self.assertIn(expected, result.err)

    def check_no_folder(self, directory, expected):
        script = programs.program("checkpoint-benchmark") + ' "$@"'
        codes, err = programs.exit_codes(2, script, *SMALL, "--directory", directory)
        self.assertEqual((codes, len(err.splitlines())), ([2, 2], 1), err)
        self.assertIn(f"cannot make {directory}/checkpoint-benchmark.tmp: {expected}", err)

    def test_a_folder_that_is_missing_or_in_use_is_named(self):
        self.check_no_folder(self.folder / "none", "No such file or directory")
        in_use = self.folder / "checkpoint-benchmark.tmp"
        in_use.mkdir()
        (in_use / "file").touch()
        self.check_no_folder(self.folder,
                             "it exists, of a run that goes on or was killed; remove it")
        self.assertTrue((in_use / "file").exists())

    def test_help_and_version_print_once(self):
        for option in ("--help", "--version"):
            shown = programs.run("checkpoint-benchmark", option, ranks=2)
            self.assertEqual((shown.code, shown.err), (0, ""))
            self.assertGreater(len(shown.out.strip()), 0)
        self.assertEqual(programs.run("checkpoint-benchmark", "--help").out.count("--repeats"), 1)


if __name__ == "__main__":
    unittest.main()
