#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several launches as one table: medians, ratios, the best, means, and what is refused."""

import csv
import io
import json
import sys

import launcher

sys.path.insert(0, str(launcher.SCRIPTS))
from comparing import table  # noqa: E402 - from the folder of the scripts

MIB = 1 << 20


def document(label, times, wrong=0, **changed):
    """A --json of collective-benchmark. `times`: (backend, buffers, bytes, microseconds)."""
    config = {"label": label, "collective": "allreduce", "type": "float32", "cache": "fresh",
              "model": None, "compression": None, "device": "cpu", "iterations": None,
              "warmup_iterations": 5, "calls_per_iteration": 1, "check": True,
              "ranks_per_node": ""}
    environment = {"started": "2025-01-31T12:00:00Z", "ranks": 2, "nodes": 1,
                   "hosts": [{"name": "one", "ranks": 2}], "library": "tutti 1", "mpi": "MPI 4",
                   "vector_instructions": "AVX2", "processor": "a processor", "algorithms": {},
                   "tuning": "learn", "last_level_cache_bytes": MIB}
    for part in (config, environment):
        part.update({name: value for name, value in changed.items() if name in part})
    results = [{"backend": backend, "buffers": buffers, "bytes": size, "type": "float32",
                "redop": "sum", "root": 0, "in_place": False, "time_us": {"p50": p50},
                "wrong": wrong} for backend, buffers, size, p50 in times]
    return {"config": config, "environment": environment, "results": results}


def times(size, store, user, other):
    return [("tutti", "store", size, store), ("tutti", "user", size, user),
            ("mpi", "user", size, other)]


def launch(label, *lists, **changed):
    return table.Launch(json.dumps(document(label, sum(lists, []), **changed)))


class Table(launcher.unittest.TestCase):
    def refusal(self, call):
        with self.assertRaises(table.Refused) as caught:
            call()
        return str(caught.exception)

    def test_tuttis_time_is_the_median_over_all_launches_anothers_over_its_configuration(self):
        found = table.Comparison([
            launch("default", times(8, 1, 2, 10)), launch("ob1", times(8, 3, 4, 7)),
            launch("default", times(8, 2, 6, 4)), launch("ob1", times(8, 9, 9, 8)),
            launch("default", times(8, 2.5, 5, 12)), launch("ob1", times(8, 2.5, 5, 6))])
        line, = found.lines
        self.assertEqual((line["store_us"], line["user_us"]), (2.5, 5))
        # The fastest single launch, 4, is no configuration's.
        self.assertEqual(line["other_us"], {"default": 10, "ob1": 7})
        self.assertEqual(line["best"], "ob1")
        self.assertEqual({name: len(own) for name, own in found.launches.items()},
                         {"default": 3, "ob1": 3})
        self.assertEqual(found.missing, [])

    def test_a_ratio_is_of_one_launch_and_the_median_over_those_of_the_best(self):
        # The machine is four times slower in the first round.
        line, = table.Comparison([
            launch("ob1", times(8, 4, 8, 12)), launch("default", times(8, 4, 8, 40)),
            launch("ob1", times(8, 1, 2, 5)), launch("default", times(8, 1, 2, 10)),
            launch("ob1", times(8, 1, 4, 4)), launch("default", times(8, 1, 2, 10))]).lines
        self.assertEqual((line["best"], line["other_us"]["ob1"], line["store_us"]), ("ob1", 5, 1))
        self.assertEqual(line["store_ratio"], 4)   # of 3, 5 and 4; the medians' would be 5
        self.assertEqual(line["user_ratio"], 1.5)  # of 1.5, 2.5 and 1
        self.assertEqual(line["ratios"]["default"], {"store": 10, "user": 5})

    def test_a_library_without_times_of_tutti_is_compared_with_tuttis_median(self):
        gloo = launch("gloo", [("gloo", "user", 8, 30)], library=None, tuning=None)
        line, = table.Comparison([gloo, launch("default", times(8, 1, 2, 40))]).lines
        self.assertEqual((line["best"], line["store_ratio"], line["user_ratio"]), ("gloo", 30, 15))

    def test_a_launch_without_one_of_the_two_has_no_part_in_the_ratio(self):
        line, = table.Comparison([launch("ob1", times(8, 1, 2, 4)),
                                  launch("ob1", [("tutti", "store", 8, 100)]),
                                  launch("ob1", [("mpi", "user", 8, 4)])]).lines
        self.assertEqual((line["store_ratio"], line["user_ratio"]), (4, 2))

    def test_the_best_is_chosen_for_each_size_and_sizes_are_in_order(self):
        lines = table.Comparison([launch("default", times(MIB, 1, 1, 5), times(8, 1, 1, 3)),
                                  launch("ob1", times(MIB, 1, 1, 6), times(8, 1, 1, 2))]).lines
        self.assertEqual([(line["bytes"], line["best"]) for line in lines],
                         [(8, "ob1"), (MIB, "default")])

    def test_a_size_that_a_launch_lacks_is_named(self):
        found = table.Comparison([launch("default", times(8, 1, 2, 4), times(16, 1, 2, 8)),
                                  launch("ob1", times(8, 1, 2, 3))])
        self.assertEqual(found.lines[1]["best"], "default")
        self.assertEqual(found.missing, [
            "ob1 at 16 B: 0 of 1 results", "Tutti in the store's memory at 16 B: 1 of 2 results",
            "Tutti in ordinary memory at 16 B: 1 of 2 results"])

    def test_without_another_there_is_no_best_no_ratio_and_no_mean(self):
        found = table.Comparison([launch("default", [("tutti", "store", 8, 1)])])
        self.assertIsNone(found.lines[0]["best"])
        self.assertEqual(dict(found.means())["all sizes"], {"store": None, "user": None})
        self.assertIn("| n/a ", table.to_markdown(found))
        self.assertIsNone(json.loads(table.to_json(found))["results"][0]["store_ratio"])

    def test_means_are_geometric_and_each_size_is_in_one_band_and_in_the_last(self):
        ratios = {8: 2, 1024: 8, 2048: 3, 2 * MIB: 27, 8 * MIB: 5, 32 * MIB: 1, 128 * MIB: 49}
        found = dict(table.Comparison([launch("default", *(
            times(size, 2, 4, 2 * ratio) for size, ratio in ratios.items()))]).means())
        whole = (2 * 8 * 3 * 27 * 5 * 49) ** (1 / 7)
        for mean, expected in zip(found.values(), (4, 9, 5, 7, whole), strict=True):
            self.assertAlmostEqual(mean["store"], expected)
            self.assertAlmostEqual(mean["user"], expected / 2)

    def test_launches_under_other_conditions_are_refused_with_both_values(self):
        for name, value in (("cache", "hot"), ("warmup_iterations", 7), ("check", False),
                            ("device", "gpu"), ("vector_instructions", "none"),
                            ("tuning", "static"), ("algorithms", {"a": 1}), ("ranks", 3)):
            other = launch("ob1", times(8, 1, 2, 3), **{name: value})
            text = self.refusal(lambda other=other: table.Comparison(
                [launch("default", times(8, 1, 2, 3)), other]))
            self.assertRegex(text, f"cannot be compared: {name} is .* in default .* in ob1")
        self.assertIn("mpi is MPI 4 in ob1", self.refusal(lambda: table.Comparison(
            [launch("ob1", times(8, 1, 2, 3)), launch("ob1", times(8, 1, 2, 3), mpi="MPI 5")])))
        table.Comparison([launch("a", times(8, 1, 2, 3)),
                          launch("b", times(8, 1, 2, 3), mpi="MPI 5")])  # another library
        self.assertIn("at least one file", self.refusal(lambda: table.Comparison([])))

    def test_what_is_no_launch_is_refused_in_words(self):
        for text in ("{", "{}", "[]", json.dumps(document("a", []))):
            self.assertIn("not the --json of collective-benchmark: ",
                          self.refusal(lambda text=text: table.Launch(text)))
        self.assertIn("made with --label", self.refusal(lambda: launch(None, times(8, 1, 2, 3))))
        self.assertIn("a p50 of 8 B: expected a time above 0, found 0",
                      self.refusal(lambda: launch("a", times(8, 0, 2, 3))))
        for name in ("type", "redop", "root", "in_place"):
            whole = document("a", times(8, 1, 2, 3))
            whole["results"][2][name] = "another"
            self.assertIn(f"results of more than one {name}: expected one --",
                          self.refusal(lambda whole=whole: table.Launch(json.dumps(whole))))

    def test_wrong_elements_are_added_up(self):
        found = table.Comparison([launch("a", times(8, 1, 2, 3), wrong=1),
                                  launch("b", times(8, 1, 2, 3), wrong=2)])
        self.assertIn("\nWrong elements: 9, FAILED.\n", table.to_markdown(found))
        unchecked = table.Comparison([launch("a", times(8, 1, 2, 3), wrong=None)])
        self.assertIn("not every result was checked", table.to_markdown(unchecked))
        self.assertIsNone(json.loads(table.to_json(unchecked))["wrong"])

    def test_the_table_has_what_was_measured_notes_times_ratios_means_and_what_is_missing(self):
        found = table.Comparison([launch("default", times(8, 1, 2, 6)),
                                  launch("ob1", times(8, 1, 2, 6.5))],
                                 missing=["han, round 1: exit code 2"], notes=["a note"])
        text = table.to_markdown(found)
        self.assertTrue(text.startswith("### allreduce, float32 sum, fresh inputs: Tutti and"))
        for part in ("- 2 ranks on 1 node: one (2); a processor, last-level cache 1 MiB\n",
                     "- Configurations (launches): default (1), ob1 (1)\n- a note\n",
                     "| 8 B  |         1.00 |            2.00 |       6.00 | default |"
                     "         6.00 |            3.00 |\n",
                     "| all sizes         |         6.00 |            3.00 |\n",
                     "**Missing:** han, round 1: exit code 2\n", "\nWrong elements: 0.\n"):
            self.assertIn(part, text)
        self.assertIn("missing: han, round 1: exit code 2\n", table.to_text(found))
        lines = list(csv.DictReader(io.StringIO(table.to_csv(found))))
        self.assertEqual([(line["configuration"], float(line["microseconds"])) for line in lines],
                         [("tutti store", 1), ("tutti user", 2), ("default", 6), ("ob1", 6.5)])


if __name__ == "__main__":
    launcher.unittest.main()
