#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""collective-simulator: its table, its file, and what it refuses."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import programs

NETWORKS = Path(__file__).resolve().parents[2] / "apps/simulator/networks"
ETHERNET = str(NETWORKS / "ethernet-25g.json")

REFUSED = [
    ([], "--network: expected: a file as in apps/simulator/networks/"),
    (["--network", "/nowhere"], "--network: cannot read /nowhere"),
    (["--network", ETHERNET, "--nodes", "0"], '--nodes: got "0"; expected: 1 to 16384'),
    (["--network", ETHERNET, "--nodes", "2-x"], '--nodes: got "x"; expected: 1 to 16384'),
    (["--network", ETHERNET, "--nodes", "4-2"], '--nodes: "4-2" ends before it begins'),
    (["--network", ETHERNET, "--nodes", ""], "--nodes: got nothing; expected: as in 2-64"),
    (["--network", ETHERNET, "--size", "6"], "--size: 6 is no whole number of float32"),
    (["--network", ETHERNET, "--size", "6Q"], "--size: '6Q' is not a size"),
    (["--network", ETHERNET, "--json", "/nowhere/x"], "/nowhere/x: cannot be written"),
    (["--network", ETHERNET, "--plot", "/nowhere/x"], "/nowhere/x: cannot be written"),
    (["--network", ETHERNET, "--size", ""], "--size: got nothing; expected: as in 8,64K,16M"),
    (["--network", ETHERNET, "--ranks-per-node", "0"],
     "--ranks-per-node: got 0; expected: at least 1"),
    (["--network", ETHERNET, "--nodes", "16384", "--ranks-per-node", "2"],
     "16384 nodes of 2; expected: at most 16384 ranks"),
    (["--network", ETHERNET, "--algorithms", "tree"],
     '--algorithms: got "tree"; expected: tutti, recursive-doubling, rabenseifner, ring, '
     "two-level, or all"),
    (["--network", ETHERNET, "--collective", "reduce"],
     '--collective: got "reduce"; expected: allreduce or pushpull'),
    (["--network", ETHERNET, "--buffers", "gpu"], '--buffers: got "gpu"; expected: user or store'),
    (["--network", ETHERNET, "--begin", "now"],
     '--begin: got "now"; expected: together or barrier'),
    (["--network", ETHERNET, "--compression", "3bit"], "--compression: "),
    (["--network", ETHERNET, "--compression", "2bit"],
     "--compression belongs to --collective pushpull"),
    (["--network", ETHERNET, "--buffers", "store", "--algorithms", "all"],
     "--algorithms: the textbook has an allreduce of ordinary memory"),
    (["--network", ETHERNET, "--measured", "x", "--size", "8"],
     "--measured has its own cases; leave out --size"),
    (["--network", ETHERNET, "--measured", "/nowhere"], "--measured: /nowhere: cannot be read"),
    (["--network", ETHERNET, "--nodes", "2", "--size", "8", "--override", "exchange=tree"],
     "TUTTI_ALGORITHMS: 'exchange=tree': expected one of direct, halving, mpi"),
    (["--node", "2"], "did you mean --nodes?"),
]


def run(*words):
    return programs.run("collective-simulator", *words)


class Simulator(unittest.TestCase):
    def test_all_algorithms_on_all_networks_have_right_sums(self):
        for network in sorted(NETWORKS.glob("*.json")):
            with self.subTest(network=network.name):
                result = run("--network", str(network), "--nodes", "2-4,9", "--size", "8,100K",
                             "--ranks-per-node", "2", "--algorithms", "all")
                said = [line for line in result.err.splitlines()
                        if "ASan doesn't fully support" not in line]  # of every switched stack
                self.assertEqual((result.code, said), (0, []))
                lines = result.out.splitlines()
                self.assertEqual(len(lines), 2 + 2 * 3 * 5)
                self.assertEqual({line.split()[-1] for line in lines[2:]}, {"0"})

    def test_two_runs_take_the_same_simulated_time(self):
        with tempfile.TemporaryDirectory() as folder:
            results = []
            for name in ("a.json", "b.json"):
                path = os.path.join(folder, name)
                self.assertEqual(run("--network", ETHERNET, "--nodes", "9", "--size", "64K",
                                     "--json", path).code, 0)
                results.append(json.loads(Path(path).read_text(encoding="utf-8"))["results"][0])
            self.assertGreater(results[0]["time_us"]["p50"], 0)
            self.assertEqual(results[0]["time_us"], results[1]["time_us"])
            self.assertEqual(results[0]["ranks"], 9)
            self.assertEqual(results[0]["wrong"], 0)

    def measured(self, folder, **result):
        """A file of collective-benchmark's, of a pushpull on three hosts or what is said."""
        path = Path(folder) / "measured.json"
        result = {"collective": "pushpull", "backend": "tutti", "buffers": "user",
                  "in_place": False, "bytes": 4096, "type": "float32", "redop": "sum",
                  "time_us": {"p50": 50.0}, **result}
        path.write_text(json.dumps({
            "config": {"ranks_per_node": [], "compression": "fp16"},
            "environment": {"nodes": 3, "ranks": 3}, "results": [result]}), encoding="utf-8")
        return str(path)

    def test_measured_cases_stand_beside_their_times(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.json"
            said = run("--network", ETHERNET, "--measured", self.measured(folder),
                       "--critical-path", "--json", str(path))
            self.assertEqual(said.code, 0)
            lines = said.out.splitlines()
            self.assertEqual(lines[0], "Simulated: what was measured of float32 on 25 Gb/s "
                             "Ethernet, TCP; the slowest rank, median of the calls")
            self.assertIn("simulated/measured", lines[1])
            self.assertRegex(lines[2], r"4 KiB +3 +3 +tutti pushpull fp16 .* 50\.00 +\d+\.\d\d$")
            self.assertRegex(lines[3], r"rank \d: .*latency .*in us; \d+ hops$")
            whole = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual(whole["config"]["ranks_per_node"], 1)
            one = whole["results"][0]
            self.assertEqual((one["collective"], one["compression"], one["buffers"]),
                             ("pushpull", "fp16", "user"))
            self.assertEqual(one["measured_us"], 50)
            self.assertGreater(one["bytes_of_link"], 4096)
            path_us = one["critical_path"]["on_us"]
            self.assertGreater(path_us["latency"], 0)
            self.assertEqual({hop["on"] for hop in one["critical_path"]["hops"]},
                             {kind for kind, us in path_us.items() if us > 0} - {"other"})

    def test_choices_are_those_of_measured_cases_too(self):
        with tempfile.TemporaryDirectory() as folder:
            measured = self.measured(folder)
            result = run("--network", ETHERNET, "--measured", measured, "--override",
                         "exchange=tree")
            self.assertEqual(result.code, 1)
            self.assertIn("expected one of direct, halving, mpi", result.err)
            lines = {run("--network", ETHERNET, "--measured", measured, "--tuning", "static",
                         "--override", f"handshakes={choice}").out.splitlines()[2]
                     for choice in ("direct", "doubling")}
            self.assertEqual(len(lines), 2)

    def setUp(self):
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        programs.let_plot()

    def test_the_picture_has_a_panel_per_size_and_a_curve_per_algorithm(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.svg"
            self.assertEqual(run("--network", ETHERNET, "--nodes", "2,4", "--size", "8,1K,64K",
                                 "--algorithms", "tutti,ring", "--plot", str(path)).code, 0)
            svg = path.read_text(encoding="utf-8")
            ElementTree.fromstring(svg)
            for text, times in [("8 B: microseconds", 1), ("1 KiB: microseconds", 1),
                                ("64 KiB: microseconds", 1), ('id="series-tutti"', 3),
                                ('id="series-ring"', 3), (">nodes<", 3),
                                ("25 Gb/s Ethernet, TCP  ·  1 rank per node<", 1)]:
                self.assertEqual(svg.count(text), times, text)

    def test_table_and_picture_say_what_is_simulated(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.svg"
            for words, first, title in (
                    ([], "allreduce of float32 on 25 Gb/s Ethernet, TCP, 1 ranks per node; the "
                     "slowest rank of the last call", "allreduce, float32 sum"),
                    (["--begin", "barrier", "--collective", "pushpull", "--compression", "fp16",
                      "--buffers", "store"],
                     "pushpull of float32 on 25 Gb/s Ethernet, TCP, 1 ranks per node; the slowest "
                     "rank, median of the calls",
                     "pushpull fp16, float32 sum, memory of the node")):
                result = run("--network", ETHERNET, "--nodes", "2", "--size", "8", "--tuning",
                             "static", "--plot", str(path), *words)
                self.assertEqual(result.out.splitlines()[0], f"Simulated: {first}", result.err)
                self.assertIn(f">{title}<", path.read_text(encoding="utf-8"))
            result = run("--network", ETHERNET, "--measured", self.measured(folder), "--plot",
                         str(path))
            self.assertEqual(result.code, 1)
            self.assertIn("--plot draws one call over nodes; leave it out with --measured",
                          result.err)

    def test_what_does_not_fit_is_refused_before_the_first_case(self):
        result = run("--network", ETHERNET, "--nodes", "2,8192", "--size", "1G")
        self.assertNotEqual(result.code, 0)
        self.assertEqual(result.out, "")
        self.assertRegex(result.err, "8192 ranks of 1 GiB need about 3[0-9.]+ GiB of memory here, "
                         "and [0-9.]+ .iB are available; simulate fewer ranks, or fewer bytes")

    def test_what_cannot_be_is_refused(self):
        for words, text in REFUSED:
            with self.subTest(words=words):
                result = run(*words)
                self.assertEqual(result.code, 1)
                self.assertIn(text, result.err)


if __name__ == "__main__":
    unittest.main()
