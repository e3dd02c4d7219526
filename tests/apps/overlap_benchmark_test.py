#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""overlap-benchmark times steps that hide their pushes, and checks every element."""

import re
import unittest

import programs

ROW = re.compile(r"(\S+)( +\d+\.\d\d){4} +-?(\d+|inf|nan) %")
URGENT_ROW = re.compile(r"(\S+)( +\d+\.\d\d){5}")
SMALL = ("--bytes", "30K", "--keys", "3", "--repeats", "2")

REFUSED = [
    (["--byte", "3M"], "unrecognised option '--byte'"),
    (["--bytes", "many"], "--bytes: "),
    (["--bytes", "60"], "--bytes 60: expected at least one float32 (4 bytes) for each of 20 keys"),
    (["--keys", "0"], "--keys: expected at least 1"),
    (["--repeats", "0"], "--repeats: expected at least 1"),
    (["--case", "urgent"], "--case urgent: expected overlap or priority"),
    (["--urgent", "2"], "--urgent 2: expected at least one float32 (4 bytes) for each of 1 key"),
    (["--compute", "-1"], "--compute: expected milliseconds, at least 0"),
]


class OverlapBenchmark(unittest.TestCase):
    def test_every_turn_is_a_row_and_every_element_is_right(self):
        for ranks, environment in ((None, ()), (2, ()), (3, ("TUTTI_RANKS_PER_NODE=1",))):
            for compute in (("--compute", "1"), ()):
                with self.subTest(ranks=ranks, compute=compute):
                    program = [programs.program("overlap-benchmark"), *SMALL, *compute]
                    command = program if ranks is None else programs.mpirun(ranks, program)
                    result = programs.run_command(["env", *environment, *command])
                    self.assertEqual((result.code, result.err), (0, ""))
                    lines = result.out.splitlines()
                    self.assertRegex(lines[0], r"^\d.* in \d+ keys, \d+ ranks? on \d nodes?; mill")
                    rows = [ROW.fullmatch(line) for line in lines[2:-2]]
                    self.assertRegex(lines[-2], r"^idle +\d+\.\d\d of a push; the step became "
                                     r"shorter by -?\d+ % of it$")
                    self.assertTrue(all(rows), result.out)
                    self.assertEqual([row[1] for row in rows],
                                     ["warm-up", "warm-up", "1", "2", "p50"])
                    self.assertEqual(lines[-1], "wrong elements: 0")

    def test_urgent_pushes_are_timed_beside_others(self):
        for ranks, environment in ((None, ()), (2, ()), (2, ("TUTTI_RANKS_PER_NODE=1",))):
            with self.subTest(ranks=ranks, environment=environment):
                program = [programs.program("overlap-benchmark"), "--case", "priority", "--urgent",
                           "1K", "--bytes", "4M", "--keys", "2", "--repeats", "2"]
                command = program if ranks is None else programs.mpirun(ranks, program)
                result = programs.run_command(["env", *environment, *command])
                self.assertEqual((result.code, result.err), (0, ""))
                lines = result.out.splitlines()
                rows = [URGENT_ROW.fullmatch(line) for line in lines[2:-1]]
                self.assertTrue(all(rows), result.out)
                self.assertEqual([row[1] for row in rows], ["warm-up", "warm-up", "1", "2", "all"])
                self.assertEqual(lines[-1], "wrong elements: 0")

    def test_wrong_use_is_one_line_for_the_job(self):
        for arguments, expected in REFUSED:
            with self.subTest(arguments=arguments):
                result = programs.run("overlap-benchmark", *arguments)
                self.assertEqual((result.code, len(result.err.splitlines())), (1, 1), result.err)
                self.assertIn(expected, result.err)

    def test_help_and_version_print_once(self):
        for option in ("--help", "--version"):
            shown = programs.run("overlap-benchmark", option, ranks=2)
            self.assertEqual((shown.code, shown.err), (0, ""))
        self.assertEqual(programs.run("overlap-benchmark", "--help").out.count("--repeats"), 1)


if __name__ == "__main__":
    unittest.main()
