#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reports of a job: its trace, its statistics, its metrics.

Environment: OBSERVE_WORKER, the program; OBSERVE_MPIRUN, the launcher and its flags; OBSERVE_HOSTS,
the script that makes hosts.
"""

import json
import os
import re
import shlex
import stat
import subprocess
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

import verdict

WORKER = os.environ["OBSERVE_WORKER"]
MPIRUN = shlex.split(os.environ["OBSERVE_MPIRUN"])
HOSTS = os.environ["OBSERVE_HOSTS"]
LIMIT_S = 600
SLEEP_US = 50e3
# A round trip is cut in half, and on a loaded machine the shortest takes milliseconds.
HOSTS_ERROR_US = 0.4 * SLEEP_US
STEPS = 10
# One of so many shows the rank that sleeps: on a busy machine another may wait longer for a core.
RUNS = 3
NOT_HERE = 77
PHASES = {"prepare", "wait for ranks", "wait for nodes", "copy in", "reduce", "reduce and update",
          "wait for shares", "network", "copy out", "update", "store"}
PUSH = "push of 2 keys: weight, bias"
LAYOUTS = ((1, ""), (2, ""), (4, ""), (2, "1"), (4, "2"))  # ranks, ranks per node


class Trace:
    """The slices of a trace: .calls and .phases by rank, each (name, begin, end, args)."""

    def __init__(self, path):
        events = json.loads(Path(path).read_text(encoding="utf-8"))
        self.names = {event["pid"] - 1: event["args"]["name"] for event in events
                      if event["name"] == "process_name"}
        self.calls, self.phases = defaultdict(list), defaultdict(list)
        for event in events:
            if event["ph"] != "X":
                continue
            kind = self.phases if event["name"] in PHASES else self.calls
            kind[event["pid"] - 1].append((event["name"], event["ts"], event["ts"] + event["dur"],
                                           event.get("args", {})))

    def inside(self, rank, call):
        return [phase for phase in self.phases[rank]
                if phase[1] >= call[1] - 0.002 and phase[2] <= call[2] + 0.002]


def asynchronous_calls(path):
    """By rank, each call with its stages: lists of (name, begin, end, args)."""
    lives, open_ends = defaultdict(dict), defaultdict(list)
    for event in json.loads(Path(path).read_text(encoding="utf-8")):
        if event["ph"] not in "be":
            continue
        place = event["pid"] - 1, event["id2"]["local"]
        if event["ph"] == "b":
            stage = [event["name"], event["ts"], None, event.get("args", {})]
            lives[place[0]].setdefault(place[1], []).append(stage)
            open_ends[place].append(stage)
        else:
            stage = open_ends[place].pop()
            assert stage[0] == event["name"], (stage, event)
            stage[2] = event["ts"]
    assert not any(open_ends.values()), "some stage has no end"
    return {rank: list(of_rank.values()) for rank, of_rank in lives.items()}


class Reports(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def run_on_hosts(self, file, *before):
        """Two hosts with two ranks each; `before` starts the program there."""
        done = self.run_job(4, "sleepy", "3", TRACE=file, may_fail=True, before=before,
                            launcher=(HOSTS, "2", "--slots", "2", "--"))
        if done.returncode == NOT_HERE:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def run_job(self, ranks, *words, may_fail=False, launcher=(), before=(), **environment):
        given = {f"TUTTI_{name}": str(value) for name, value in environment.items() if value}
        exported = [word for name in given for word in ("-x", name)]
        done = subprocess.run([*launcher, *MPIRUN, *exported, "-np", str(ranks), *before, WORKER,
                               *words],
                              capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              stdin=subprocess.DEVNULL, env={**os.environ, **given})
        if not may_fail:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def check_nesting(self, trace):
        """Phases lie in calls, one after the other and without gaps; calls do not overlap."""
        for rank, calls in trace.calls.items():
            self.assertEqual(calls, sorted(calls, key=lambda call: call[1]))
            for one, following in zip(calls, calls[1:]):
                self.assertLessEqual(one[2], following[1] + 0.002)
            found = 0
            for call in calls:
                phases = trace.inside(rank, call)
                found += len(phases)
                for one, following in zip(phases, phases[1:]):
                    self.assertAlmostEqual(one[2], following[1], delta=0.002)
                if phases:
                    self.assertAlmostEqual(phases[0][1], call[1], delta=0.002)
                    self.assertAlmostEqual(phases[-1][2], call[2], delta=0.002)
            self.assertEqual(found, len(trace.phases[rank]))

    def test_the_trace_shows_every_rank_and_who_was_waited_for(self):
        for ranks, per_node in LAYOUTS:
            with self.subTest(ranks=ranks, per_node=per_node):
                file = self.folder / "trace.json"
                late = ranks - 1
                for _ in range(RUNS):
                    self.run_job(ranks, "sleepy", str(late), TRACE=file, RANKS_PER_NODE=per_node)
                    trace = Trace(file)
                    self.assertEqual(sorted(trace.names), list(range(ranks)))
                    for rank, name in trace.names.items():
                        self.assertRegex(name, rf"^rank {rank}, host \S+$")
                    self.check_nesting(trace)
                    self.check_one_clock(trace, ranks)
                    waited = [self.waits_of_pushes(trace, rank) for rank in range(ranks)]
                    shortest = [step.index(min(step)) for step in zip(*waited)]
                    if shortest.count(late) > STEPS / 2:
                        break
                else:
                    self.fail(f"the late rank waited as long as others: {waited}")

    def waits_of_pushes(self, trace, rank):
        """How long a rank waited in each of its pushes."""
        pushes = [call for call in trace.calls[rank] if call[0] == PUSH]
        self.assertEqual(len(pushes), STEPS)
        self.assertEqual({call[3]["bytes"] for call in pushes}, {8000})
        self.assertLessEqual({call[3]["route"] for call in pushes},
                             {"alone", "small", "announced", "halved", "by path"})
        pulls = [call for call in trace.calls[rank] if call[0] == "pull of key weight"]
        self.assertEqual(len(pulls), STEPS)
        self.assertFalse(any("route" in call[3] for call in pulls))
        return [sum(end - begin for name, begin, end, _ in trace.inside(rank, call)
                    if name in ("wait for ranks", "wait for nodes")) for call in pushes]

    def test_the_trace_shows_the_life_of_each_asynchronous_push(self):
        for ranks, per_node in ((1, ""), (2, ""), (4, ""), (4, "2")):
            with self.subTest(ranks=ranks, per_node=per_node):
                file = self.folder / "trace.json"
                late = ranks - 1
                for _ in range(RUNS):
                    self.run_job(ranks, "async", str(late), TRACE=file, RANKS_PER_NODE=per_node)
                    lives = asynchronous_calls(file)
                    for rank in range(ranks):
                        named = [life[0][0] for life in lives[rank]]
                        self.assertEqual(named.count("push_async of key weight"), 5)
                        self.assertEqual(named.count("push_async of key bias"), 5)
                        self.assertEqual(named.count("allreduce_async"), 5)
                        for life in lives[rank]:
                            self.check_life(life)
                    waits = [[self.wait_of_push(life) for life in lives[rank]
                              if "push" in life[0][0]] for rank in range(ranks) if rank != late]
                    if all(self.is_mostly_for(late, of_rank) for of_rank in waits):
                        break
                else:
                    self.fail(f"ranks did not wait for rank {late} in most pushes: {waits}")

    def is_mostly_for(self, late, waits):
        """True if most pushes waited for the late rank, most of its sleep."""
        return sum(who == [late] and wait > SLEEP_US / 2 for who, wait in waits) > len(waits) / 2

    def wait_of_push(self, life):
        """The ranks that a push waited for, each the last of a wait, and how long it did."""
        waits = [stage for stage in life if stage[0] == "wait for ranks"]
        return [wait[3]["last rank"] for wait in waits], sum(wait[2] - wait[1] for wait in waits)

    def check_life(self, life):
        """A call, and without gaps in it what it waited for, for whom, and what moved it."""
        name, begin, end, args = life[0]
        self.assertLessEqual(begin, end)
        if name == "asynchronous calls":
            self.assertEqual(len(life), 1)
            self.assertIn(args["hidden %"], range(101))
            self.assertIn(args["calls"], range(1, 4))
            self.assertGreaterEqual(end - begin, args["busy us"] - 1)
            return
        stages = [stage[0] for stage in life[1:]]
        self.assertEqual(stages[-3:-1] if stages[-1] == "update" else stages[-2:],
                         ["queued", "move"])
        self.assertEqual(life[1][1], begin)
        self.assertEqual(life[-1][2], end)
        for one, following in zip(life[1:], life[2:]):
            self.assertEqual(one[2], following[1])
        if "push" in name:
            self.assertEqual(args["bytes"], 4000)

    def check_one_clock(self, trace, ranks, error_us=0):
        """A push ends on a rank only after it began on all: in every step, on one clock."""
        pushes = [[call for call in trace.calls[rank] if call[0] == PUSH] for rank in range(ranks)]
        for step in zip(*pushes):
            last_begin = max(call[1] for call in step)
            for call in step:
                self.assertGreater(call[2], last_begin - error_us)

    def test_the_trace_has_the_phases_of_large_pushes(self):
        for ranks, per_node in LAYOUTS:
            with self.subTest(ranks=ranks, per_node=per_node):
                file = self.folder / "trace.json"
                self.run_job(ranks, "large", TRACE=file, RANKS_PER_NODE=per_node)
                trace = Trace(file)
                self.check_nesting(trace)
                for rank in range(ranks):
                    call = next(call for call in trace.calls[rank] if call[0] == "push of key 7")
                    names = {phase[0] for phase in trace.inside(rank, call)}
                    self.assertTrue(names & {"reduce", "reduce and update"}, names)
                    self.assertTrue(names & {"update", "reduce and update"}, names)
                    self.assertEqual("network" in names, bool(per_node), names)
                    self.assertIn("push of key 9", {call[0] for call in trace.calls[rank]})

    def test_two_stores_have_two_traces(self):
        self.run_job(2, "two", TRACE=self.folder / "trace.json")
        for name, key in (("trace.json", 0), ("trace.1.json", 1)):
            trace = Trace(self.folder / name)
            for rank in range(2):
                self.assertEqual([call[0] for call in trace.calls[rank]],
                                 ["init", f"push of key {key}"])

    def test_what_does_not_fit_into_a_trace_is_said_aloud(self):
        file = self.folder / "trace.json"
        done = self.run_job(1, "many", TRACE=file)
        self.assertRegex(done.stderr, r"warning: TUTTI_TRACE: \S+/trace.json has this rank's first "
                         r"1048576 stretches of time; 100\d more did not fit into memory")
        with file.open("rb") as trace:
            trace.seek(-3, os.SEEK_END)
            self.assertEqual(trace.read(), b"\n]\n")

    def test_a_trace_can_be_read_after_a_rank_was_killed_or_has_thrown(self):
        for what in ("killed", "throws"):
            with self.subTest(what):
                file = self.folder / "trace.json"
                done = self.run_job(2, what, "1", may_fail=True, TRACE=file, TIMEOUT=5)
                self.assertNotEqual(done.returncode, 0)
                trace = Trace(file)
                if what == "throws":  # its stack is unwound, so it writes what it has
                    self.assertEqual(len([call for call in trace.calls[1] if call[0] == PUSH]),
                                     STEPS - 1)

    def test_a_trace_that_cannot_be_made_is_an_error_before_the_first_call(self):
        file = self.folder / "nowhere" / "trace.json"
        done = self.run_job(2, "sleepy", "0", may_fail=True, TRACE=file)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{file}: cannot be written: No such file or directory", done.stderr)

    def test_hosts_that_share_a_file_have_one_clock(self):
        file = self.folder / "trace.json"
        self.run_on_hosts(file)
        trace = Trace(file)
        self.assertEqual(len({name.split("host ")[1] for name in trace.names.values()}), 2)
        self.check_nesting(trace)
        self.check_one_clock(trace, 4, error_us=HOSTS_ERROR_US)

    def test_hosts_without_a_common_folder_have_a_file_each(self):
        """The file's name is relative, and every host has a working folder of its own."""
        script = 'mkdir -p "$0/$(uname -n)" && cd "$0/$(uname -n)" && exec "$@"'
        done = self.run_on_hosts("trace.json", "sh", "-c", script, str(self.folder))
        files = sorted(self.folder.glob("*/*"))
        self.assertEqual(len(files), 2, files)
        names = {file.name for file in files}
        self.assertIn("trace.json", names)
        other = next(file for file in files if file.name != "trace.json")
        self.assertEqual(other.name, f"trace.{other.parent.name}.json")
        self.assertIn(f"its ranks write {other} here, on the same clock", done.stderr)
        both = [Trace(file) for file in files]
        self.assertEqual(sorted(rank for trace in both for rank in trace.names), [0, 1, 2, 3])
        for trace in both:
            self.check_nesting(trace)
            both[0].calls.update(trace.calls)
        self.check_one_clock(both[0], 4, error_us=HOSTS_ERROR_US)

    def statistics(self, ranks, what, call, per_node=""):
        """What a job prints of which the last rank sleeps, and the row of a call."""
        late = ranks - 1
        for _ in range(RUNS):
            done = self.run_job(ranks, what, str(late), STATISTICS=1, RANKS_PER_NODE=per_node)
            row = next(line for line in done.stderr.splitlines() if line.endswith(call))
            if ranks == 1 or re.search(rf"rank {late} \(\d+ %\)", row):
                break
        return done, row

    def test_statistics_are_one_table_of_all_ranks(self):
        for ranks, per_node in LAYOUTS:
            with self.subTest(ranks=ranks, per_node=per_node):
                late = ranks - 1
                done, row = self.statistics(ranks, "sleepy", PUSH, per_node)
                head = f"tutti: statistics of {ranks} rank" + ("s, " if ranks > 1 else ", ")
                self.assertEqual(done.stderr.count("tutti: statistics of"), 1, done.stderr)
                self.assertIn(head, done.stderr)
                self.assertRegex(row, r"^ +10     80.0 kB ")
                if ranks > 1:
                    self.assertRegex(row, rf"rank {late} \(\d+ %\)")
                    self.assertRegex(done.stderr, rf"rank {late} \(host \S+\) came last in "
                                     r"\d+ calls; each rank waited \S+ m?s for it")
                self.assertRegex(done.stderr, r"\n +10     40.0 kB .* pull of key weight\n")

    def test_statistics_name_who_was_late_with_a_key_and_what_was_hidden(self):
        done, row = self.statistics(3, "async", "push_async of key weight")
        self.assertRegex(row, r"^ +5     20.0 kB .*rank 2 \(\d+ %\)")
        self.assertRegex(done.stderr, r"on rank 0, asynchronous calls took \S+ m?s, of which \d+ % "
                         "was hidden behind the program's own work")

    def test_statistics_go_to_a_file(self):
        file = self.folder / "statistics.txt"
        done = self.run_job(2, "two", STATISTICS=file)
        self.assertNotIn("statistics", done.stderr)
        self.assertIn("push of key 0\n", file.read_text(encoding="utf-8"))
        self.assertIn("push of key 1\n",
                      (self.folder / "statistics.1.txt").read_text(encoding="utf-8"))

    def test_metrics_are_a_file_of_each_rank(self):
        for _ in range(RUNS):
            waited = self.waits_of_metrics()
            if waited[0] > waited[1]:  # rank 1 sleeps before each push
                return
        self.fail(f"rank 0 waited no longer than rank 1: {waited}")

    def waits_of_metrics(self):
        """How long each of two ranks waited in pushes, of which rank 1 sleeps before each."""
        self.run_job(2, "sleepy", "1", PROMETHEUS=self.folder / "tutti.prom")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["tutti.0.prom", "tutti.1.prom"])
        waited = []
        for rank in range(2):
            text = (self.folder / f"tutti.{rank}.prom").read_text(encoding="utf-8")
            metrics = self.check_format(text)
            self.assertEqual(metrics["tutti_push_total"], 10)
            self.assertEqual(metrics["tutti_push_bytes_total"], 80000)
            self.assertEqual(metrics["tutti_pull_total"], 10)
            waited.append(metrics["tutti_push_waiting_seconds_total"])
            self.assertIn(f'tutti_push_total{{rank="{rank}",host=', text)
            self.assertRegex(text, r'tutti_call_total\{rank="\d",host="\S+",call="barrier"\} 1\n')
        self.assertRegex(text, r'tutti_last_total\{.*last="1"\} \d+\n')
        return waited

    def check_format(self, text):
        """Prometheus's text format: every family has its help and type before its values."""
        values, types = {}, {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                self.assertNotIn(name, types)
                types[name] = kind
            elif not line.startswith("# HELP "):
                match = re.fullmatch(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)+)\} (\S+)', line)
                self.assertTrue(match, line)
                self.assertIn(match[1], types)
                self.assertEqual(types[match[1]] == "counter", match[1].endswith("_total"), line)
                values[match[1]] = float(match[3])
        return values

    def test_a_report_that_cannot_be_written_is_one_error_before_the_first_call(self):
        for name in ("STATISTICS", "PROMETHEUS"):
            with self.subTest(name=name):
                done = self.run_job(2, "two", may_fail=True,
                                    **{name: self.folder / "nowhere" / "report.txt"})
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(done.stderr.count(f"rank 0: TUTTI_{name}: "), 1, done.stderr)
                self.assertIn("name a file in a folder that this rank may write to", done.stderr)

    def test_a_bad_value_is_one_error_of_the_job(self):
        text = "TUTTI_TIMEOUT=abc: expected a number of seconds"
        done = self.run_job(3, "two", may_fail=True, TIMEOUT="abc")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count(text), 1, done.stderr)

    def test_a_bad_value_of_one_rank_is_told(self):
        only_rank_1 = ("sh", "-c", 'test "$OMPI_COMM_WORLD_RANK$PMI_RANK" = 1 && '
                       'export TUTTI_TIMEOUT=abc; exec "$@"', "sh")
        done = self.run_job(2, "two", may_fail=True, before=only_rank_1)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("rank 1: TUTTI_TIMEOUT=abc: expected "), 1, done.stderr)

    def test_relative_names_stay_in_the_folder_that_the_job_began_in(self):
        (self.folder / "begin").mkdir()
        (self.folder / "later").mkdir()
        self.run_job(2, "moves", str(self.folder / "later"), TRACE="t.json", STATISTICS="s.txt",
                     PROMETHEUS="m.prom",
                     before=("sh", "-c", 'cd "$0" && exec "$@"', str(self.folder / "begin")))
        self.assertEqual(sorted(path.name for path in (self.folder / "begin").iterdir()),
                         ["m.0.prom", "m.1.prom", "s.txt", "t.json"])
        self.assertEqual(list((self.folder / "later").iterdir()), [])
        self.assertEqual(len(Trace(self.folder / "begin" / "t.json").names), 2)

    def test_a_device_stays_a_device_and_a_link_a_link(self):
        null, link = self.folder / "null", self.folder / "link"
        link.symlink_to("file")
        self.run_job(2, "moves", str(self.folder), TRACE=link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(len(Trace(self.folder / "file").names), 2)
        try:  # a node of the test's own: a fault here destroys nothing of the machine's
            os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            self.skipTest("no right to make a device")
        before = sorted(self.folder.iterdir())
        self.run_job(2, "two", TRACE=null, STATISTICS=null, PROMETHEUS=null)
        self.assertTrue(null.is_char_device())
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_metrics_that_cannot_be_written_later_are_a_warning_and_the_job_goes_on(self):
        folder = self.folder / "removed"
        folder.mkdir()
        done = self.run_job(2, "remove", str(folder), PROMETHEUS=folder / "tutti.prom")
        self.assertIn("warning: TUTTI_PROMETHEUS: ", done.stderr)
        self.assertIn("name a file in a folder that this rank may write to", done.stderr)


if __name__ == "__main__":
    verdict.main()
