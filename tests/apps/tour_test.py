#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvstore-tour prints the tutorial's story, and its numbers follow the number of ranks."""

import unittest

import programs


def matrix(number):
    row = f"{number} {number} {number}"
    return [f"[[{row}]", f" [{row}]]"]


def updates(*keys):
    return [f"update on key: {key}" for key in keys]


def story(one_key, lists, devices):
    """What a store prints, without the lines that name the calls."""
    two, eight, four, six = one_key
    three, eleven = lists
    return [
        *matrix(two), *matrix(eight), *matrix(four), *matrix(four),
        *updates(3), *matrix(six), *matrix(six),
        *updates(5, 7, 9), *matrix(three), *updates(5, 7, 9), *matrix(eleven),
        *[line for number in devices[:-1] for line in matrix(number)],
        *updates(3), *matrix(devices[-1]),
    ]


ALONE = story(("2.", "8.", "4.", "6."), ("3.", "11."),
              ("-2.", "-7.", "3.", "-3.", "-0.3", "3.", "3.05"))
TWO_RANKS = story(("2.", "16.", "8.", "12."), ("5.", "21."),
                  ("-2.", "-14.", "6.", "-3.", "-0.6", "6.", "6.1"))


def printed(text):
    return [line for line in text.splitlines() if line.startswith(("[[", " [", "update on key"))]


class Tour(unittest.TestCase):
    def check(self, result, expected, last_line):
        self.assertEqual(result.err, "")
        self.assertEqual(result.code, 0)
        self.assertEqual(printed(result.out), expected)
        self.assertEqual(result.out.splitlines()[-1], last_line)

    def test_alone_every_store_prints_the_numbers_of_one_worker(self):
        self.check(programs.run("kvstore-tour"), 3 * ALONE, "all 126 checks right on 1 rank")

    def test_one_rank_of_mpirun_prints_what_a_process_alone_prints(self):
        result = programs.run("kvstore-tour", ranks=1)
        self.check(result, 3 * ALONE, "all 126 checks right on 1 rank")

    def test_two_ranks_print_once_and_only_dist_sums_over_them(self):
        result = programs.run("kvstore-tour", ranks=2)
        self.check(result, 2 * ALONE + TWO_RANKS, "all 126 checks right on 2 ranks")

    def test_four_ranks_are_right(self):
        result = programs.run("kvstore-tour", ranks=4)
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual(result.out.splitlines()[-1], "all 126 checks right on 4 ranks")

    def test_every_call_is_named_before_its_result(self):
        lines = programs.run("kvstore-tour").out.splitlines()
        for before, line in zip(lines, lines[1:]):
            if line.startswith("[["):
                self.assertTrue(before.startswith(("kv.", "update on key")), before)
        stores = [line.split('"')[1] for line in lines if line.startswith("== create(")]
        self.assertEqual(stores, ["local", "local", "device", "device", "dist", "dist"])


if __name__ == "__main__":
    unittest.main()
