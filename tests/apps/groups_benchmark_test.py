#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""groups-benchmark times two groups in three ways, and checks every element."""

import unittest

import programs

SMALL = ("--bytes", "3K", "--calls", "3", "--repeats", "3")

REFUSED = [
    (["--call", "3"], "unrecognised option '--call'"),
    (["--bytes", "many"], "--bytes: "),
    (["--bytes", "3"], "--bytes 3: expected at least 4, one float32"),
    (["--calls", "0"], "--calls: expected at least 1"),
    (["--repeats", "0"], "--repeats: expected at least 1"),
    ([], "2 groups of 1 ranks: expected an even number; start another number of ranks"),
]


def run(ranks, *words):
    command = programs.mpirun(ranks, [programs.program("groups-benchmark"), *words])
    return programs.run_command(command)


class GroupsBenchmark(unittest.TestCase):
    def test_all_ways_are_timed_and_every_element_is_right(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                result = run(ranks, *SMALL)
                self.assertEqual((result.code, result.err), (0, ""))
                self.assertRegex(result.out, rf"^2 groups of {ranks // 2}, 3 pushes of 3072 bytes "
                                 r"in each; milliseconds, p50\none after the other \d+\.\d{3}\n"
                                 r"of two values in turn \d+\.\d{3}\nboth at once \d+\.\d{3}\n"
                                 r"ratio \d+\.\d{3}, of two values \d+\.\d{3}\n"
                                 r"wrong elements: 0\n$")

    def test_what_cannot_be_is_refused_once(self):
        for words, text in REFUSED:
            with self.subTest(words=words):
                result = programs.run("groups-benchmark", *words)
                self.assertEqual(result.code, 1)
                self.assertEqual(result.err.count(text), 1, result.err)


if __name__ == "__main__":
    unittest.main()
