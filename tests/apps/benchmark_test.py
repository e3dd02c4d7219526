#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""collective-benchmark measures and checks every collective; no test depends on a speed."""

import csv
import itertools
import json
import os
import re
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import programs

NAME = "collective-benchmark"
COLLECTIVES = ["allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "barrier",
               "pushpull", "gather", "scatter", "alltoall", "alltoallv", "allgatherv", "sendrecv",
               "user_allreduce"]
OF_BLOCKS = ["reduce_scatter", "allgather", "gather", "scatter", "alltoall", "alltoallv",
             "allgatherv"]
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"]
OPS = ["sum", "prod", "min", "max"]
QUICK = ["-n", 3, "-w", 1]
SMALL = ["-b", 8, "-e", "32K", "-f", 16, *QUICK]
RESULT_KEYS = {"collective", "backend", "buffers", "in_place", "bytes", "count", "type", "redop",
               "root", "iterations", "time_us", "algbw_gbs", "busbw_gbs", "wrong"}

REFUSED = [
    (["--fast"], "unrecognised option '--fast'; --help lists"),
    (["--minbyte", "8"], "unrecognised option '--minbyte', did you mean --minbytes?; --help lists"),
    (["-b", "many"], "--minbytes: "),
    (["-d", "float8"], "--datatype: "),
    (["--collective", "gatherall"], "--collective: expected one of allreduce, reduce_scatter, "),
    (["-o", "avg", "-d", "int32"], "--op: there is no avg of int32"),
    (["-o", "max", "--collective", "user_allreduce"], "--op: user_allreduce is a sum"),
    (["--backend", "nccl"], "--backend nccl belongs to --device gpu"),
    (["--device", "gpu"], "--device gpu: none: "),
    (["--json", "/nowhere/a.json"], "/nowhere/a.json: cannot be written: No such file"),
    (["--plot", "/nowhere/a.svg"], "/nowhere/a.svg: cannot be written: No such file"),
    (["--baseline", "/nowhere/a.json"], "--baseline: /nowhere/a.json: No such file"),
    (["--collective", "pushpull", "--model", "/nowhere/a"], "--model: /nowhere/a: No such file"),
    (["--collective", "reduce", "-r", "9"],
     "--root: expected 0 to 0, the ranks of this job, found 9"),
    (["--compression", "2bit"], "--compression belongs to --collective pushpull of float32"),
    (["--compression", "2bit", "--collective", "pushpull", "-d", "float64"],
     "--compression belongs to --collective pushpull of float32"),
    (["--compression", "3bit", "--collective", "pushpull"],
     "--compression: unknown compression '3bit', did you mean 2bit? There are: none, 2bit, "),
    (["-e", "8", "-d", "float64", "--collective", "allgather", "--ranks-per-node", "x"],
     "--ranks-per-node: "),
]


def rows_of(out):
    """The lines of the table, as words."""
    return [line.split() for line in out.splitlines() if not line.startswith("#")]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="benchmark_test.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def measure(self, *arguments, ranks=None, code=0):
        """Standard output of a run that ends with `code`."""
        result = programs.run(NAME, *arguments, ranks=ranks)
        self.assertEqual((result.code, result.err), (code, ""), result.out)
        return result.out

    def check_all_right(self, out, columns):
        self.assertIn("# Out of bounds values : 0 OK\n", out)
        self.assertTrue(rows_of(out), out)
        for row in rows_of(out):
            self.assertEqual(len(row), columns, row)


class Benchmark(Case):
    def test_every_collective_is_right_on_one_two_and_three_ranks(self):
        for collective in COLLECTIVES:
            for ranks in (1, 2, 3):
                with self.subTest(collective=collective, ranks=ranks):
                    out = self.measure("--collective", collective, *SMALL, ranks=ranks)
                    self.check_all_right(out, 15)
                    # 8 B, 128 B, 2 KiB and 32 KiB; three ranks cannot share two elements.
                    shared = collective in OF_BLOCKS
                    sizes = 1 if collective == "barrier" else 3 if shared and ranks == 3 else 4
                    self.assertEqual(len(rows_of(out)), sizes)

    def test_every_collective_is_right_between_nodes(self):
        for collective in COLLECTIVES:
            with self.subTest(collective=collective):
                out = self.measure("--collective", collective, "--ranks-per-node", 1, *SMALL,
                                   ranks=2)
                self.assertIn("# ranks: 2 on 2 nodes; ", out)
                self.check_all_right(out, 15)

    def test_every_collective_is_right_in_ordinary_memory_whatever_the_caches_hold(self):
        caches = ("hot", "cold", "fresh")
        in_turn = zip(COLLECTIVES, itertools.cycle(caches))
        of_all = itertools.product(["allreduce", "alltoall"], caches)
        for collective, cache in sorted({*in_turn, *of_all}):
            with self.subTest(collective=collective, cache=cache):
                out = self.measure("--collective", collective, "--buffers", "user", "--cache",
                                   cache, "-b", "4K", "-e", "4K", *QUICK, ranks=2)
                self.check_all_right(out, 15)
                self.assertIn(f" memory; {cache}: inputs ", out)

    def test_every_type_and_operation_is_right(self):
        floats = [dtype for dtype in DTYPES if "int" not in dtype]
        for dtypes, ops, expected in (
                ("all", "all", itertools.product(DTYPES, OPS)),
                (",".join(floats), "avg", itertools.product(floats, ["avg"]))):
            out = self.measure("-d", dtypes, "-o", ops, "-b", 4096, "-e", 4096, *QUICK, ranks=2)
            self.check_all_right(out, 15)
            self.assertEqual({tuple(row[2:4]) for row in rows_of(out)}, set(expected))
            for row in rows_of(out):
                half = row[2] in ("float16", "bfloat16")
                self.assertEqual(row[9:].count("n/a"), 6 if half else 0, row)

    def test_roots_follow_each_other_and_are_right(self):
        one_size = ["-b", 96, "-e", 96, *QUICK]
        for collective in ("broadcast", "reduce"):
            out = self.measure("--collective", collective, "-r", "all", *one_size, ranks=3)
            self.check_all_right(out, 15)
            self.assertEqual(re.findall(r"(?m)^# root (\d)$", out), ["0", "1", "2"])
            self.check_all_right(self.measure("--collective", collective, "-r", 2, *one_size,
                                              ranks=3), 15)

    def test_results_over_their_inputs_are_right(self):
        for arguments in (["allreduce"], ["reduce", "-r", "all"]):
            out = self.measure("--collective", *arguments, "--place", "out,in", "--buffers",
                               "store,user", "-b", 4, "-e", "64K", "-f", 64, *QUICK, ranks=3)
            self.check_all_right(out, 4 + 6 * 5 + 4)
            self.assertIn(" mpi/user,in\n", out)
        self.check_all_right(self.measure("--place", "in", "--cache", "cold", "-b", "4K", "-e",
                                          "4K", *QUICK, ranks=2), 15)

    def test_calls_in_a_row_are_right(self):
        for collective in COLLECTIVES:
            out = self.measure("--collective", collective, "-m", 4, *SMALL, ranks=2)
            self.assertIn(", 4 calls in each; every element is checked", out)
            self.check_all_right(out, 15)

    def test_a_process_alone_needs_no_launcher(self):
        self.check_all_right(self.measure(*SMALL), 15)

    def test_one_backend_has_its_columns_alone(self):
        for backend in ("tutti", "mpi"):
            self.check_all_right(self.measure("--backend", backend, *SMALL), 9)

    def test_sizes_and_counts_are_those_of_nccl_tests(self):
        def sizes(collective):
            out = self.measure("--collective", collective, "-b", 32, "-e", 64, *QUICK, ranks=3)
            return [(int(row[0]), int(row[1])) for row in rows_of(out)]

        self.assertEqual(sizes("allreduce"), [(32, 8), (64, 16)])
        self.assertEqual(sizes("allgather"), [(24, 2), (60, 5)])

    def test_the_memory_is_measured_for_large_tensors_alone(self):
        large = self.measure("-b", "1M", "-e", "1M", *QUICK, ranks=2)
        self.assertRegex(large, r"# Memory : \d+\.\d GB/s per rank, \d+\.\d GB/s in all")
        self.assertRegex(large, r"#   as busbw : at most [\d.]+ GB/s")
        self.assertNotIn("# Memory", self.measure(*SMALL, ranks=2))

    def test_without_check_nothing_is_said_about_results(self):
        out = self.measure("-c", 0, *SMALL)
        self.assertIn("# Out of bounds values : not checked\n", out)
        self.assertEqual(rows_of(out)[0][8], "N/A")

    def test_models_are_one_call_of_all_their_tensors(self):
        for model, parameters in (("resnet50", 25557032), (self.shapes("3x4\n# none\n5, 2\n"), 22)):
            with self.subTest(model=model):
                out = self.measure("--collective", "pushpull", "--model", model, "-d", "int8",
                                   "-n", 1, "-w", 0, ranks=2)
                self.check_all_right(out, 15)
                self.assertEqual([row[:2] for row in rows_of(out)], [[str(parameters)] * 2])

    def test_a_compressed_push_says_what_is_on_the_wire(self):
        pushpull = ["--collective", "pushpull", *SMALL, "--compression"]
        out = self.measure(*pushpull, "2bit,threshold=2", ranks=2)
        self.assertIn("# Out of bounds values : not checked\n", out)
        self.assertEqual(re.findall(r"# +(\d+)  B on the wire .* \((.*)\)", out),
                         [(str(size // 16 or 1), "2bit,threshold=2,leg=all")
                          for size in (8, 128, 2048, 32768)])
        self.check_all_right(self.measure(*pushpull, "bf16,leg=between", ranks=2), 15)

    def shapes(self, text):
        path = self.folder / "shapes.txt"
        path.write_text(text, encoding="utf-8")
        return path


class BenchmarkFiles(Case):
    def setUp(self):
        super().setUp()
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        programs.let_plot()

    def run_with_files(self, *arguments, ranks=2, sizes=SMALL):
        """The three files' paths."""
        paths = [self.folder / name for name in ("out.json", "out.csv", "out.svg")]
        self.measure("--json", paths[0], "--csv", paths[1], "--plot", paths[2], *arguments, *sizes,
                     ranks=ranks)
        return paths

    def test_json_has_config_environment_and_results(self):
        path, _, _ = self.run_with_files()
        whole = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(set(whole), {"config", "environment", "results"})
        self.assertEqual(whole["config"]["iterations"], 3)
        self.assertEqual(whole["config"]["cache"], "fresh")
        self.assertEqual(whole["environment"]["ranks"], 2)
        self.assertEqual(sum(host["ranks"] for host in whole["environment"]["hosts"]), 2)
        self.assertEqual([(result["bytes"], result["backend"]) for result in whole["results"]],
                         [(size, backend) for size in (8, 128, 2048, 32768)
                          for backend in ("tutti", "mpi")])
        for result in whole["results"]:
            self.assertEqual(set(result), RESULT_KEYS)
            time = result["time_us"]
            self.assertEqual(set(time), {"p50", "avg", "min", "p99", "max"})
            self.assertTrue(0 < time["min"] <= time["p50"] <= time["p99"] <= time["max"])
            self.assertTrue(time["min"] <= time["avg"] <= time["max"])
            self.assertEqual((result["wrong"], result["iterations"]), (0, 3))
            self.assertAlmostEqual(result["algbw_gbs"], result["bytes"] / time["p50"] / 1e3)
            self.assertAlmostEqual(result["busbw_gbs"], result["algbw_gbs"])  # 2 ranks: factor 1

    def test_csv_has_the_same_results(self):
        json_path, csv_path, _ = self.run_with_files()
        results = json.loads(json_path.read_text(encoding="utf-8"))["results"]
        with open(csv_path, encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([(line["backend"], int(line["bytes"]), line["wrong"]) for line in lines],
                         [(result["backend"], result["bytes"], "0") for result in results])

    def test_the_plot_is_well_formed_for_several_sizes_one_size_and_one_rank(self):
        one_size = ["-b", 8, "-e", 8, *QUICK]
        one_backend = [*SMALL, "--backend", "mpi"]
        for sizes, ranks in ((SMALL, 2), (one_size, 2), (SMALL, 1), (one_backend, 2)):
            with self.subTest(sizes=sizes, ranks=ranks):
                _, _, path = self.run_with_files(ranks=ranks, sizes=sizes)
                text = path.read_text(encoding="utf-8")
                xml.etree.ElementTree.fromstring(text)
                self.assertIn("microseconds, median (lower is better)", text)
                if sizes is not one_size:
                    self.assertIn("series-mpi", text)
                self.assertIsNone(re.search(r'"-?(nan|inf)|[ML]-?(nan|inf)', text))
                self.assertFalse(Path(f"{path}.json").exists())

    def test_without_matplotlib_nothing_is_measured_and_one_line_says_how_to_get_it(self):
        (self.folder / "matplotlib.py").write_text("raise ImportError", encoding="utf-8")
        os.environ["PYTHONPATH"] = str(self.folder)
        result = programs.run(NAME, *SMALL, "--plot", self.folder / "a.svg", ranks=2)
        self.assertEqual((result.code, result.out), (1, ""), result.err)
        self.assertIn("--plot: plot.py: matplotlib is missing: apt-get install "
                      "python3-matplotlib", result.err)

    def test_a_script_that_fails_leaves_the_results_beside_the_picture(self):
        (self.folder / "matplotlib").mkdir()
        (self.folder / "matplotlib/__init__.py").write_text(
            "rcParams = {}\ndef use(name): pass\n", encoding="utf-8")
        (self.folder / "matplotlib/pyplot.py").write_text(
            "import sys\nif len(sys.argv) == 3: raise SystemExit('no fonts')\n",
            encoding="utf-8")
        os.environ["PYTHONPATH"] = str(self.folder)
        result = programs.run(NAME, *SMALL, "--plot", self.folder / "a.svg", ranks=2)
        self.assertEqual(result.code, 2, result.err)
        self.assertIn("no fonts; the results are in ", result.err)
        whole = json.loads((self.folder / "a.svg.json").read_text(encoding="utf-8"))
        self.assertEqual(len(whole["results"]), 8)


class BenchmarkVerdicts(Case):
    def test_a_bandwidth_that_nothing_has_is_exit_code_3_on_all_ranks(self):
        script = programs.program(NAME) + ' "$@"'
        codes, err = programs.exit_codes(2, script, *SMALL, "--min-busbw", "1e9")
        self.assertEqual((codes, err), ([3, 3], ""))
        out = self.measure(*SMALL, "--min-busbw", "1e9", ranks=2, code=3)
        self.assertIn("GB/s, below --min-busbw 1e+09", out)
        self.measure(*SMALL, "--min-busbw", "1e-9", ranks=2)

    def baseline(self, factor):
        """A run's JSON whose times are multiplied."""
        path = self.folder / "baseline.json"
        self.measure(*SMALL, "--json", path, ranks=2)
        whole = json.loads(path.read_text(encoding="utf-8"))
        for result in whole["results"]:
            result["time_us"]["p50"] *= factor
        path.write_text(json.dumps(whole), encoding="utf-8")
        return path

    def test_a_run_slower_than_the_baseline_is_exit_code_3_with_every_result_named(self):
        path = self.baseline(1e-6)
        out = self.measure(*SMALL, "--baseline", path, ranks=2, code=3)
        self.assertEqual(out.count("# FAILED: slower than the baseline: "), 8)
        self.measure(*SMALL, "--baseline", path, "--tolerance", "1e15", ranks=2)

    def test_a_run_faster_than_the_baseline_is_exit_code_0(self):
        self.measure(*SMALL, "--baseline", self.baseline(1e6), ranks=2)

    def test_a_baseline_of_other_sizes_or_ranks_is_no_baseline(self):
        path = self.baseline(1.0)
        self.measure("-b", 64, "-e", 64, *QUICK, "--baseline", path, ranks=2, code=3)
        result = programs.run(NAME, *SMALL, "--baseline", path, ranks=1)
        self.assertEqual(result.code, 1)
        self.assertIn("measured with ranks 2, this run has 1", result.err)

    def test_wrong_use_is_one_line_and_exit_code_1_before_anything_is_measured(self):
        for arguments, expected in REFUSED:
            with self.subTest(arguments=arguments):
                result = programs.run(NAME, *arguments)
                self.assertEqual((result.code, result.out), (1, ""), result.err)
                self.assertEqual(len(result.err.splitlines()), 1, result.err)
                self.assertTrue(result.err.startswith(NAME + ": error: "), result.err)
                self.assertIn(expected, result.err)

    def test_two_ranks_report_wrong_use_once_and_both_end_with_1(self):
        script = programs.program(NAME) + ' "$@"'
        for arguments, expected in (REFUSED[0], REFUSED[7], REFUSED[10]):
            with self.subTest(arguments=arguments):
                codes, err = programs.exit_codes(2, script, *arguments)
                self.assertEqual(codes, [1, 1], err)
                self.assertEqual(len(err.splitlines()), 1, err)
                self.assertIn(expected, err)

    def test_a_file_that_is_there_survives_a_run_that_is_refused(self):
        path = self.folder / "kept.json"
        path.write_text("kept", encoding="utf-8")
        result = programs.run(NAME, "--json", path, "--csv", "/nowhere/a.csv")
        self.assertEqual(result.code, 1)
        self.assertEqual(path.read_text(encoding="utf-8"), "kept")

    def test_more_memory_than_there_is_is_one_line_and_exit_code_2(self):
        script = programs.program(NAME) + ' "$@"'
        codes, err = programs.exit_codes(2, script, "-b", "8192G", "-e", "8192G", "--backend",
                                         "tutti", *QUICK)
        self.assertEqual(codes, [2, 2], err)
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_help_and_version_print_once(self):
        for ranks in (None, 2):
            out = self.measure("--help", ranks=ranks)
            self.assertEqual((out.count("--minbytes"), out.count("TUTTI_TIMEOUT")), (1, 1))
            self.assertEqual(self.measure("--version", ranks=ranks).count("vector instructions"), 1)


if __name__ == "__main__":
    unittest.main()
