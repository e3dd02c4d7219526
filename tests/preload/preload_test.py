#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that know MPI alone, as they are and with the preloaded library: the same results.

    preload_test.py [-v] [TestCase.test]

Environment: see jobs.py.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from collections import Counter, defaultdict
from pathlib import Path

from jobs import (HAS_FORTRAN, IS_OPEN_MPI, IS_PART, LAUNCHER, LIBRARY, LIMIT_S, MPIRUN, PROGRAMS,
                  ROOT, run)

CLOCK_US = 1  # of the ranks of one machine, whose ticks become nanoseconds by each itself
DRIVER = ":".join(filter(None, [str(PROGRAMS / "preload_driver"),
                                os.environ.get("LD_LIBRARY_PATH")]))


def calls_in(statistics):
    """Call -> how often the library carried it out, from the table of TUTTI_STATISTICS."""
    rows = re.findall(r"^ +(\d+) .*  (\w.*)$", statistics, re.MULTILINE)
    return {name: int(count) for count, name in rows}


class Results(unittest.TestCase):
    def check(self, ranks, **variables):
        status, output, errors = run([PROGRAMS / "preload_program"], ranks, **variables)
        self.assertIn(" 0 wrong", output, errors)
        self.assertEqual(status, 0, errors)
        return errors

    def test_a_program_gets_what_mpi_promises(self):
        for ranks in (1, 3):
            self.check(ranks)
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "table.txt"
            self.check(2, TUTTI_STATISTICS=table)
            calls = calls_in(table.read_text(encoding="utf-8"))
        self.assertLessEqual({"allgather", "allreduce", "alltoall", "barrier", "broadcast",
                              "gather", "reduce", "reduce_scatter", "scatter"}, set(calls))
        self.assertGreaterEqual(calls["allreduce"], 17)
        self.assertEqual(calls["MPI_Alltoallv"], 1)
        self.assertGreater(calls["allreduce on communicators of 2 ranks"], 100)
        self.assertEqual(calls["allreduce on twins"], 2)

    def test_and_on_several_nodes(self):
        if not IS_PART:
            self.check(4, TUTTI_RANKS_PER_NODE="2")
            self.check(3, TUTTI_RANKS_PER_NODE="1")
        self.check(2, TUTTI_RANKS_PER_NODE="1")

    def test_what_goes_on_beside_collectives(self):
        by_requests = {"TUTTI_RANKS_PER_NODE": "1", "TUTTI_TIMEOUT": "60"}
        for ranks, variables in ((1, {}), (2, {}), (3, {"TUTTI_TIMEOUT": "60"}), (3, by_requests),
                                 (4, {"TUTTI_RANKS_PER_NODE": "2"})):
            status, output, errors = run([PROGRAMS / "preload_beside"], ranks, **variables)
            self.assertIn("7 cases, 0 wrong\n", output, errors)
            self.assertEqual(status, 0, errors)

    def test_a_program_that_calls_no_collective(self):
        status, output, errors = run([PROGRAMS / "preload_beside", "quiet"], 3)
        self.assertEqual((status, output, errors), (0, "0 cases, 0 wrong\n", ""))

    def test_a_process_that_no_launcher_started(self):
        done = subprocess.run([PROGRAMS / "preload_program"], capture_output=True, text=True,
                              env={**os.environ, "LD_PRELOAD": LIBRARY}, timeout=LIMIT_S,
                              check=False)
        self.assertIn(" 0 wrong", done.stdout, done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_threads_have_a_communicator_each(self):
        for variables in ({}, {"TUTTI_RANKS_PER_NODE": "1"}):
            status, output, errors = run([PROGRAMS / "preload_threads"], 2, **variables)
            self.assertEqual((status, output), (0, "3 threads, 0 wrong\n"), errors)

    def test_a_thread_that_has_not_called_init_may_make_all_calls(self):
        status, output, errors = run([PROGRAMS / "preload_threads", "serialized"], 2)
        self.assertEqual((status, output), (0, "1 threads, 0 wrong\n"), errors)

    def test_communicators_that_come_and_go_leave_nothing_behind(self):
        by_mpi = {"TUTTI_RANKS_PER_NODE": "1", "TUTTI_ALGORITHMS": "exchange=mpi"}
        # Of three ranks of MPICH's on two cores each loop takes a hundred times as long.
        three = (2, 11520) if IS_PART else (3, 3840)
        for ranks, loops, variables in ((2, 11520, {}), (*three, {"TUTTI_RANKS_PER_NODE": "1"}),
                                        (2, 3840, by_mpi)):
            status, output, errors = run([PROGRAMS / "preload_churn", str(loops)], ranks,
                                         **variables)
            self.assertEqual((status, errors), (0, ""))
            grown = re.fullmatch(r"\d+ loops, 0 wrong, grown by (-?\d+) KiB, (-?\d+) descriptors, "
                                 r"(-?\d+) mappings, (-?\d+) files\n", output)
            self.assertIsNotNone(grown, output)
            kib, descriptors, mappings, files = (int(number) for number in grown.groups())
            # The least that malloc hands out is 32 bytes: 600 KiB, if each loop loses them once.
            self.assertLess(kib, 200)
            self.assertEqual((descriptors, mappings, files), (0, 0, 0))

    def test_a_communicator_is_small(self):
        """The most that a rank maps, with its peer's part."""
        status, output, errors = run([PROGRAMS / "preload_churn", "costs", "100"], 2)
        self.assertEqual((status, errors), (0, ""))
        kib = re.search(r"([\d.]+) KiB made; .* ([\d.]+) KiB in the first barrier", output)
        self.assertIsNotNone(kib, output)
        self.assertLess(float(kib[1]), 32)
        self.assertLess(float(kib[2]), 200)

    def test_the_library_for_another_mpi_leaves_the_program_alone(self):
        others = set(Path(LIBRARY).parent.glob("libtutti_mpi_*.so")) - {Path(LIBRARY)}
        if not others:
            self.skipTest("this build is for one MPI")
        for other in others:
            status, output, errors = run([PROGRAMS / "preload_program"], 2, preload=False,
                                         LD_PRELOAD=other)
            self.assertIn("that is another kind of MPI than", errors)
            self.assertIn(" 0 wrong", output, errors)
            self.assertEqual(status, 0, errors)

    def test_a_copy_of_the_mpi_under_another_name_is_known(self):
        needed = subprocess.run(["ldd", PROGRAMS / "preload_program"], capture_output=True,
                                text=True, check=True).stdout
        beside = {str(Path(file).parent) for file in re.findall(r"=> (/\S+)", needed)
                  if not file.startswith(("/lib", "/usr/lib"))}  # it has lost its RUNPATH
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(re.search(r"=> (\S+/libmpi\S*)", needed)[1], f"{folder}/libmpi.so")
            status, output, errors = run([PROGRAMS / "preload_program"], 2, preload=False,
                                         LD_PRELOAD=f"{LIBRARY} {copy}", TUTTI_STATISTICS="1",
                                         LD_LIBRARY_PATH=":".join(sorted(beside)))
        self.assertNotIn("warning", errors)
        self.assertIn("allreduce on twins", errors)
        self.assertIn(" 0 wrong", output, errors)
        self.assertEqual(status, 0, errors)

    def test_the_launcher_puts_the_library_in_front_of_the_program(self):
        command = [LAUNCHER, "--mpi-program", "-np", "2", PROGRAMS / "preload_program"]
        shown = subprocess.run([*command[:1], "--dry-run", *command[1:]], capture_output=True,
                               text=True, env={**os.environ, "LD_PRELOAD": ""}, check=False)
        if Path(LIBRARY).parent == ROOT / "build/runtime":
            self.assertIn(f" env LD_PRELOAD={LIBRARY} {PROGRAMS}/preload_program", shown.stdout)
        else:
            self.assertIn("error: there is no libtutti_mpi_", shown.stderr)

    def test_memory_of_a_gpu_on_any_rank_is_left_to_mpi_on_all(self):
        for gpus in (0, 1, 3):
            for variables in ({}, {"TUTTI_RANKS_PER_NODE": "2"}, {"TUTTI_RANKS_PER_NODE": "1"},
                              {"TUTTI_TIMEOUT": "60"}, {"TUTTI_REPRODUCIBLE": "1"}):
                with self.subTest(gpus=gpus, **variables):
                    status, output, errors = run([PROGRAMS / "preload_gpu", gpus], 3,
                                                 LD_LIBRARY_PATH=DRIVER, **variables)
                    by_mpi = 96 if gpus > 0 else 0  # 12 before there is a driver are not
                    self.assertEqual(output, f"108 cases, {by_mpi} by MPI, 0 wrong\n", errors)
                    self.assertEqual(status, 0, errors)

    def test_a_job_on_several_nodes_ends_without_a_word(self):
        """UCX warns on standard output of messages that nobody has received."""
        status, output, errors = run([PROGRAMS / "preload_fault"], 4, TUTTI_RANKS_PER_NODE="1")
        self.assertEqual((status, output, errors), (0, "", ""))

    def test_launchers_may_load_it_too(self):
        done = subprocess.run([*MPIRUN, "-np", "2", PROGRAMS / "preload_program"], text=True,
                              env={**os.environ, "LD_PRELOAD": LIBRARY, "TUTTI_STATISTICS": "1"},
                              capture_output=True, timeout=LIMIT_S, check=False)
        self.assertIn(" 0 wrong", done.stdout, done.stderr)
        self.assertIn("allreduce on twins", done.stderr)

    @unittest.skipUnless(Path("/sbin/ldconfig").exists(), "no program is known to be static")
    def test_the_launcher_says_that_a_static_program_loads_nothing(self):
        command = [LAUNCHER, "--dry-run", "--mpi-program", "-np", "2"]
        for program, is_static in (("/sbin/ldconfig", True), ("true", False)):
            shown = subprocess.run([*command, program], capture_output=True, text=True,
                                   check=False)
            self.assertEqual("is linked statically" in shown.stderr, is_static, shown.stderr)

    def test_a_process_without_mpi_is_as_it_was(self):
        done = subprocess.run(["sh", "-c", "echo one"], env={**os.environ, "LD_PRELOAD": LIBRARY},
                              capture_output=True, text=True, check=True)
        self.assertEqual((done.stdout, done.stderr), ("one\n", ""))


@unittest.skipUnless(HAS_FORTRAN, "there is no compiler of Fortran for this MPI")
class Fortran(unittest.TestCase):
    def residuals(self, ranks, **variables):
        status, output, errors = run([PROGRAMS / "preload_solver"], ranks, **variables)
        self.assertEqual(status, 0, errors)
        lines = re.findall(r"^ +\d+ [0-9A-F]{16} .*", output, re.MULTILINE)
        self.assertEqual(len(lines), 25, output)
        return lines

    def require_module(self, program):
        """That of MPICH 4.0.2 for mpi_f08 has another MPI_IN_PLACE than its library. By the module
        mpi its own MPI_Reduce in place ends in a segmentation fault, that of the library does not.
        """
        if "f08" in program and run([PROGRAMS / program], 2, preload=False)[0] != 0:
            self.skipTest(f"{program} fails with this MPI's module, without the library")

    def test_a_program_gets_what_mpi_promises(self):
        for program in ("preload_results", "preload_results_f08"):
            with self.subTest(program):
                self.require_module(program)
                nodes = (2, "1") if IS_PART else (4, "2")
                by_requests = {"TUTTI_RANKS_PER_NODE": "1", "TUTTI_TIMEOUT": "60"}
                for ranks, variables in ((1, {}), (2, {}), (3, {}), (2, by_requests),
                                         (nodes[0], {"TUTTI_RANKS_PER_NODE": nodes[1]})):
                    status, output, errors = run([PROGRAMS / program], ranks, **variables)
                    self.assertIn("34 cases, 0 wrong\n", output, errors)
                    self.assertEqual(status, 0, errors)

    def test_a_part_of_a_program_may_come_late(self):
        program = [PROGRAMS / "preload_late", PROGRAMS / "preload_late_part"]
        for variables in ({}, {"TUTTI_TIMEOUT": "60"}, {"TUTTI_STATISTICS": "1"}):
            with self.subTest(**variables):
                status, output, errors = run(program, 2, **variables)
                self.assertEqual((status, output), (0, "1 cases, 0 wrong\n"), errors)
        taken = calls_in(errors)
        self.assertEqual((taken["MPI_COMM_DUP" if IS_OPEN_MPI else "MPI_Comm_dup"],
                          taken["allreduce on communicators of 2 ranks"]), (1, 1), errors)

    def test_calls_of_both_modules_are_taken(self):
        taken = {"allgather", "allreduce", "alltoall", "broadcast", "gather", "reduce",
                 "reduce_scatter", "scatter"}
        for program in ("preload_results", "preload_results_f08"):
            with self.subTest(program):
                self.require_module(program)
                _, _, errors = run([PROGRAMS / program], 2, TUTTI_STATISTICS="1")
                self.assertLessEqual(taken, set(calls_in(errors)), errors)

    def test_a_solver_has_the_same_bits_in_each_layout_if_it_asks(self):
        """Otherwise nodes of three ranks sum in another order than one node of six. Open MPI alone
        has one order for all layouts, unless it is asked for coll_han, which sums by nodes."""
        first = self.residuals(6)
        for per_node in ("1", "3", "4", "5"):
            self.assertEqual(first, self.residuals(6, TUTTI_REPRODUCIBLE="1",
                                                   TUTTI_RANKS_PER_NODE=per_node))
        self.assertNotEqual(first, self.residuals(6, TUTTI_RANKS_PER_NODE="3"))


def parts_of_trace(path):
    """Rank -> name; and (group, line's name) -> rank -> calls: (name, begin, end)."""
    events = json.loads(Path(path).read_text(encoding="utf-8"))
    names = {event["pid"] - 1: event["args"]["name"] for event in events
             if event["name"] == "process_name"}
    lines = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
             if event["name"] == "thread_name"}
    calls = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event["ph"] == "X" and "bytes" in event.get("args", {}):
            line = event["pid"], event["tid"]
            calls[line[1] // 1_000_000, lines[line]][line[0] - 1].append(
                (event["name"], event["ts"], event["ts"] + event["dur"]))
    return names, calls


def samples_of(path):
    """(Metric, labels) -> value, of a file in which all lines have Prometheus's format."""
    label = r'\w+="(?:[^"\\\n]|\\[\\n"])*"'
    kinds, samples = {}, {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if kind := re.fullmatch(r"# TYPE (\w+) (counter|gauge)", line):
            assert kind[1] not in kinds, line
            kinds[kind[1]] = kind[2]
        elif not re.fullmatch(r"# HELP \w+ \S.*", line):
            sample = re.fullmatch(rf"(\w+)\{{({label}(?:,{label})*)\}} (\S+)", line)
            assert sample and sample[1] in kinds, line
            labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', sample[2])))
            assert (sample[1], labels) not in samples, line
            samples[sample[1], labels] = float(sample[3])
    return samples


class Reported(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def calls_counted(self, rank):
        """Call -> how often, from a rank's metrics; on other communicators "allreduce on rows"."""
        samples = samples_of(self.folder / f"tutti.{rank}.prom")
        self.assertEqual({dict(labels)["rank"] for _, labels in samples}, {str(rank)})
        return {dict(labels)["call"]: int(value) for (metric, labels), value in samples.items()
                if metric == "tutti_call_total"}


# The calls of large.c on 2 ranks: 32 rounds with items, 2 with counts of 0, 40 times some beside
# small counts, and counts that are no ints. Of three operations the library has two.
LARGE_CALLS = {
    "allgather": 2 * 32, "MPI_Allgather": 2 * 2 + 1,
    "allreduce": 2 * 2 * 32 + 150, "MPI_Allreduce": 2 * 32 + 3 * 2 * 2,
    "alltoall": 32, "MPI_Alltoall": 32 + 2 * 2 + 1,
    "broadcast": 2 * 32 + 150, "MPI_Bcast": 2 * 2 + 150 + 2,
    "gather": 2 * 2 * 32, "MPI_Gather": 2 * 2 * 2 + 1,
    "reduce": 2 * 2 * 2 * 32, "MPI_Reduce": 2 * 2 * 32 + 3 * 2 * 2 * 2,
    "reduce_scatter": 2 * 2 * 32 + 2 * 2 * 34, "MPI_Reduce_scatter": 2 * 34,
    "MPI_Reduce_scatter_block": 2 * 32 + 3 * 2 * 2,
    "scatter": 2 * 2 * 32, "MPI_Scatter": 2 * 2 * 2 + 1,
    "MPI_Scan": 150, "MPI_Scan_c": 3 * 34, "MPI_Exscan_c": 3 * 34,
    **{f"MPI_{name}v_c": 34 for name in ("Allgather", "Alltoall", "Gather", "Scatter")},
    "MPI_Alltoallw_c": 34,
}


class Large(Reported):
    def check(self, ranks, **variables):
        status, output, errors = run([PROGRAMS / "preload_large"], ranks, **variables)
        self.assertIn(" 0 wrong\n", output, errors)
        self.assertEqual((status, errors), (0, ""))
        if output == "0 cases, 0 wrong\n" * ranks:
            self.skipTest("this MPI has no functions of large counts: they are MPI 4's")
        self.assertIn("206 cases", output)

    def test_functions_of_large_counts_do_what_mpi_promises(self):
        for ranks, per_node in ((1, ""), (2, ""), (3, "2")):
            self.check(ranks, TUTTI_RANKS_PER_NODE=per_node)

    def test_they_are_taken_like_the_others(self):
        self.check(2, TUTTI_PROMETHEUS=self.folder / "tutti.prom")
        self.assertEqual(self.calls_counted(0), LARGE_CALLS)


class Reports(Reported):
    """Calls of all of the program's communicators are in its reports."""

    def test_a_trace_and_metrics_have_the_calls_of_all_communicators_and_ranks(self):
        for ranks, per_node in ((2, ""), (2, "1")) if IS_PART else ((2, ""), (4, ""), (4, "2")):
            with self.subTest(ranks=ranks, per_node=per_node):
                file = self.folder / "trace.json"
                status, output, errors = run(
                    [PROGRAMS / "preload_program"], ranks, TUTTI_RANKS_PER_NODE=per_node,
                    TUTTI_TRACE=file, TUTTI_PROMETHEUS=self.folder / "tutti.prom")
                self.assertEqual((status, errors), (0, ""), output)
                names, calls = parts_of_trace(file)
                self.assertEqual(sorted(names), list(range(ranks)))
                for rank, name in names.items():
                    self.assertRegex(name, rf"^rank {rank}, host \S+$")
                self.assertGreater(len(calls), 150)  # so many communicators have several ranks
                self.check_lines(calls, ranks)
                named = [of_ranks for (_, line), of_ranks in calls.items() if "on twins" in line]
                self.assertEqual([sorted(of_ranks) for of_ranks in named], [list(range(ranks))])
                counted = [self.calls_counted(rank) for rank in range(ranks)]
                for rank in range(ranks):
                    self.check_counts(calls, counted[rank], rank)
                self.assertEqual({of_rank["allreduce on twins"] for of_rank in counted}, {2})
                self.assertEqual(len(list(self.folder.iterdir())), 1 + ranks)
                for report in self.folder.iterdir():
                    report.unlink()

    def check_lines(self, calls, ranks):
        """The ranks of a communicator, each with the same calls, on one clock: one of all ranks
        ends on each of them only after it began on all."""
        for (group, line), of_ranks in calls.items():
            if group == 0:
                self.assertEqual((line, sorted(of_ranks)), ("calls", list(range(ranks))))
            else:
                members = [int(rank) for rank in re.findall(r"\d+", line)]
                self.assertRegex(line, r"^calls( on twins)? of the group of ranks \d+.* of the "
                                       "job$")
                self.assertEqual(sorted(of_ranks), sorted(members))
            for same in zip(*of_ranks.values(), strict=True):
                self.assertEqual(len({name for name, _, _ in same}), 1)
                if same[0][0] in ("allreduce", "barrier", "allgather", "alltoall"):
                    last_begin = max(begin for _, begin, _ in same)
                    self.assertLessEqual(last_begin, min(end for _, _, end in same) + CLOCK_US)

    def check_counts(self, calls, counted, rank):
        """The metrics of a rank have as many calls as its lines of the trace."""
        of_world, of_others = Counter(), Counter()
        for (group, _), of_ranks in calls.items():
            for name, _, _ in of_ranks.get(rank, ()):
                (of_world if group == 0 else of_others)[name] += 1
        also = Counter()
        for name, times in counted.items():
            if " on " in name:
                also[name.split(" on ")[0]] += times
        self.assertEqual(of_others, also)
        self.assertEqual(of_world, {name: times for name, times in counted.items()
                                    if " on " not in name})


if __name__ == "__main__":
    unittest.main()
