#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""network-probe measures what becomes a network of collective-simulator's, and says on what."""

import json
import os
import tempfile
import unittest
from pathlib import Path

import programs

REFUSED = [
    ([], "network-probe: got 1 ranks on 1 hosts; expected: a rank on each of two hosts or more"),
    (["--shared-cores", "-1"], "--shared-cores: expected 0 or more"),
    (["--base", "/nowhere"], "--base: /nowhere is no file of network-probe"),
    (["--outputs", "x"], "did you mean --output?"),
    (["--output", "/nowhere/x"], "/nowhere/x: cannot be written"),
]


class NetworkProbe(unittest.TestCase):
    def test_its_file_is_a_network(self):
        os.environ["TUTTI_RANKS_PER_NODE"] = "1"  # as if each rank had a host
        self.addCleanup(os.environ.pop, "TUTTI_RANKS_PER_NODE")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.json"
            words = [programs.program("network-probe"), "--output", str(path), "--name", "mine"]
            result = programs.run_command(programs.mpirun(3, [*words, "--shared-cores", "2"]))
            self.assertEqual((result.code, result.err), (0, ""))
            network = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual((network["name"], network["measured"]["hosts"]), ("mine", 3))
            self.assertEqual(network["cores"], 2)
            for number in ("overhead_us", "receive_us", "poll_us", "port_mbit_s", "eager_bytes",
                           "call_ns", "signal_ns", "core_gb_s", "memory_gb_s", "node_gb_s"):
                self.assertGreater(network[number], 0, number)
            self.assertGreaterEqual(network["node_gb_s"], network["core_gb_s"])
            more = [programs.program("network-probe"), "--base", str(path), "--output", str(path)]
            result = programs.run_command(programs.mpirun(4, [*more, "--shared-cores", "1"]))
            self.assertEqual((result.code, result.err), (0, ""))
            again = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual((again["cores"], again["measured"]["hosts"]), (1, 4))
            self.assertEqual(again["latency_us"], network["latency_us"])
            self.assertGreater(again["turn_us"], 0)
            said = programs.run("collective-simulator", "--network", str(path), "--nodes", "2,3",
                                "--size", "8,64K")
            self.assertEqual(said.code, 0)
            self.assertIn("on mine, ", said.out)

    def test_what_cannot_be_is_refused_once(self):
        for words, text in REFUSED:
            with self.subTest(words=words):
                result = programs.run("network-probe", *words)
                self.assertEqual(result.code, 1)
                self.assertEqual(result.err.count(text), 1, result.err)


if __name__ == "__main__":
    unittest.main()
