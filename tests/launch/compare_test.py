#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py: its launches, its table, and what it says of those that fail."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path

import launcher
import programs
import verdict
from job_test import children

COMPARE = str(launcher.SCRIPTS / "compare.py")
SHORT = ["-np", 2, "--rounds", 1, "-b", 8, "-e", "2K", "-f", 16]
QUICK = ["--", "-n", 2, "-w", 1]
END_S = 60  # the stand-in for mpirun that is to be ended sleeps longer
REFUSED = [
    (["--round", "1"], "unrecognized arguments: --round 1"),
    (["extra"], "unrecognized arguments: extra"),
    (["--rounds", "0"], "--rounds: takes a number from 1 on, not '0'"),
    (["-np", "two"], "-np/--np: takes a number from 1 on, not 'two'"),
    (["--limit", "-1"], "--limit: "),
    (["--busy", "-1"], "--busy"),
    (["--cache"], "--cache: expected one argument"),
    (["--configurations", "default,fast"], "found 'fast' in 'default,fast'"),
    (["--configurations", "ob1,ob1"], "--configurations: ob1 is there twice"),
    (["--collective", "barrier"], "--collective barrier moves no data"),
    (["--imb"], "--imb needs --cache hot"),
]


def is_running(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] != "Z"


class Compare(launcher.Folder):
    def command(self, *arguments):
        return [sys.executable, "-B", COMPARE, "--bin", os.environ["APPS_BIN"],
                "--output", str(self.folder / "out"), *map(str, arguments)]

    def compare(self, *arguments, one_core=False, **changed):
        first = min(os.sched_getaffinity(0))
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False,
            timeout=launcher.TIMEOUT_S, stdin=subprocess.DEVNULL,
            env=launcher.environment(**changed),
            preexec_fn=lambda: os.sched_setaffinity(0, {first}) if one_core else None)
        return launcher.Result(done.returncode, done.stdout, done.stderr)

    def read(self, name):
        return (self.folder / "out" / name).read_text(encoding="utf-8")

    def setUp(self):
        super().setUp()
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        programs.let_plot()

    def unlike_mpirun(self, body):
        """A launcher that is the real one after `body`, in which $real runs it."""
        return self.fake_mpirun(body=f'real={os.environ["LAUNCH_MPIRUN"]}\n{body}\n'
                                     'exec "$real" "$@"')

    def test_two_configurations_become_a_table_json_and_a_picture(self):
        result = self.compare(*SHORT, "--configurations", "default,ob1", "--cache", "hot", *QUICK)
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual(result.out, self.read("table.md"))
        self.assertIn("### allreduce, float32 sum, hot inputs: ", result.out)
        self.assertIn("- Configurations (launches): default (1), ob1 (1)\n"
                      "- ob1: --mca pml ob1\n", result.out)
        self.assertIn("Wrong elements: 0.\n", result.out)
        self.assertIn("launch 1 of 2: default, round 1\n", result.err)
        self.assertRegex(result.err, r"launch 2 of 2: ob1, round 1, 0:\d\d left\n")
        whole = json.loads(self.read("results.json"))
        self.assertEqual([line["bytes"] for line in whole["results"]], [8, 128, 2048])
        for line in whole["results"]:
            self.assertEqual(set(line["other_us"]), {"default", "ob1"})
            self.assertEqual(line["best"], min(line["other_us"], key=line["other_us"].get))
            self.assertGreater(line["store_ratio"], 0)
            self.assertGreater(line["user_ratio"], 0)
        xml.etree.ElementTree.fromstring(self.read("compare.svg"))

    def test_configurations_take_turns_with_the_options_that_the_help_says(self):
        record = self.folder / "record"
        fake = self.fake_mpirun(body=f'echo "$@" >>{record}; exit 7')
        result = self.compare("-np", 1, "--rounds", 2, MPIRUN=fake, PATH="/usr/bin:/bin")
        self.assertEqual(result.code, 2, result.err)
        self.assertIn("error: no launch has results", result.err)
        tuned = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm"
        expected = ["", "--mca pml ob1 ", "--mca coll_sm_priority 100 ",
                    "--mca coll_han_priority 100 ", *(f"{tuned} {i} " for i in range(3, 7))]
        found = [line.partition("--bind-to none ")[2].partition(os.environ["APPS_BIN"])[0]
                 for line in record.read_text(encoding="utf-8").splitlines()]
        self.assertEqual(found, expected * 2)
        record.unlink()
        self.compare("-np", 1, "--rounds", 1, "--collective", "broadcast", MPIRUN=fake)
        self.assertEqual(len(record.read_text(encoding="utf-8").splitlines()), 4)

    def test_ranks_that_take_turns_leave_the_cores_to_each_other(self):
        record = self.folder / "record"
        fake = self.unlike_mpirun(f'echo "$@" >>{record}')
        result = self.compare(*SHORT, "--configurations", "default", *QUICK, one_core=True,
                              MPIRUN=fake)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("--mca mpi_yield_when_idle 1", record.read_text(encoding="utf-8"))
        self.assertIn("- 2 ranks on 1 cores: mpi_yield_when_idle 1 in every configuration "
                      "of Open MPI\n", result.out)

    def test_a_configuration_that_fails_is_named_and_the_others_are_compared(self):
        fake = self.unlike_mpirun('if [[ "$*" == *"pml ob1"* ]]; then\n'
                                  '  echo "no such pml" >&2; exit 7\n'
                                  'fi')
        result = self.compare(*SHORT, "--configurations", "default,ob1", *QUICK, MPIRUN=fake)
        self.assertEqual(result.code, 2, result.err)
        self.assertIn("compare.py: ob1, round 1: exit code 7: no such pml (log: ", result.err)
        self.assertIn("**Missing:** ob1, round 1: exit code 7: no such pml\n", result.out)
        self.assertIn("- Configurations (launches): default (1)\n", result.out)

    def test_a_component_that_open_mpi_lacks_is_not_taken_for_another_configuration(self):
        self.script("ompi_info", '[ "$1" != --version ] || echo "Open MPI v4"\n'
                                 'echo mca:coll:sm:version\n')
        result = self.compare(*SHORT, "--configurations", "default,han", *QUICK,
                              PATH=f"{self.folder}:{os.environ['PATH']}",
                              MPIRUN=os.environ["LAUNCH_MPIRUN"])
        self.assertEqual(result.code, 2, result.err)
        self.assertIn("**Missing:** han: this Open MPI has no component coll:han\n", result.out)

    def test_wrong_elements_are_exit_code_3_and_said(self):
        fake = self.unlike_mpirun('"$real" "$@" || exit\n'
                                  'while [ "$1" != --json ]; do shift; done\n'
                                  'sed -i "0,/\\"wrong\\": 0/s//\\"wrong\\": 5/" "$2"\n'
                                  'echo "# FAILED: 5 elements are wrong"; exit 3')
        result = self.compare(*SHORT, "--configurations", "default", *QUICK, MPIRUN=fake)
        self.assertEqual(result.code, 3, result.err)
        self.assertIn("compare.py: default, round 1: 5 elements are wrong\n", result.err)
        self.assertIn("Wrong elements: 5, FAILED.\n", result.out)

    def test_a_launch_that_hangs_ends_at_the_limit(self):
        result = self.compare(*SHORT, "--configurations", "default", "--limit", 1,
                              MPIRUN=self.fake_mpirun(body="exec sleep 60"))
        self.assertEqual(result.code, 2, result.err)
        self.assertIn("default, round 1: exit code 124: it did not end within 1 s", result.err)

    def test_wrong_use_of_the_benchmark_ends_at_once_in_its_words(self):
        result = self.compare(*SHORT, "--", "--datatype", "float8")
        self.assertEqual((result.code, result.out), (1, ""), result.err)
        self.assertIn("error: collective-benchmark: ", result.err)
        self.assertIn("--datatype: unknown element type 'float8'", result.err)
        self.assertNotIn("launch 2", result.err)

    def test_wrong_use_is_said_in_one_line_before_anything_is_launched(self):
        fake = self.fake_mpirun(body=f"touch {self.folder}/launched")
        for arguments, expected in REFUSED:
            with self.subTest(arguments=arguments):
                result = self.compare(*arguments, MPIRUN=fake)
                self.assertEqual((result.code, result.out), (1, ""), result.err)
                self.assertIn(expected, result.err.splitlines()[0])
        result = self.compare("--output", "/proc/nowhere", MPIRUN=fake)
        self.assertEqual(result.code, 1)
        self.assertIn("cannot write in /proc/nowhere", result.err)
        self.assertFalse((self.folder / "launched").exists())

    def test_a_library_that_is_not_installed_is_named_and_the_others_are_compared(self):
        result = self.compare(*SHORT, "--configurations", "default,mpich5,gloo", "--environments",
                              self.folder / "none", *QUICK)
        self.assertEqual(result.code, 2, result.err)
        for name in ("mpich5", "gloo"):
            self.assertIn(f"**Missing:** {name}: not installed in {self.folder}/none/{name}: "
                          "--install does that\n", result.out)
        self.assertIn("- Configurations (launches): default (1)\n", result.out)

    def test_what_is_installed_is_built_again_from_the_sources_of_now(self):
        home = self.folder / "environments/openmpi5"
        (home / "bin").mkdir(parents=True)
        (home / "installed").touch()
        self.script("cmake", f'echo "$1" >> {self.folder}/built\n')
        result = self.compare(*SHORT, "--install", "--configurations", "openmpi5",
                              "--environments", home.parent, *QUICK,
                              PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertEqual(result.code, 2, result.err)  # there is nothing to launch
        built = (self.folder / "built").read_text(encoding="utf-8").split()
        self.assertEqual(built[-2:], ["-S", "--build"])
        self.assertNotIn("not installed", result.out)

    def test_a_collective_that_a_library_lacks_is_said(self):
        result = self.compare(*SHORT, "--collective", "broadcast", "--configurations",
                              "default,deepspeed", *QUICK)
        self.assertEqual(result.code, 2, result.err)
        self.assertIn("**Missing:** deepspeed: it has no broadcast to compare\n", result.out)

    def test_programs_that_compute_run_beside_each_launch_and_end_with_it(self):
        fake = self.unlike_mpirun(f'pgrep -fc "while os.getppid" >{self.folder}/beside')
        result = self.compare(*SHORT, "--configurations", "default", "--busy", 2, *QUICK,
                              MPIRUN=fake)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("- beside 2 programs that compute\n", result.out)
        beside = (self.folder / "beside").read_text(encoding="utf-8")
        self.assertGreaterEqual(int(beside), 2)

    def test_a_signal_ends_the_launch_too(self):
        started = self.folder / "started"
        fake = self.fake_mpirun(body=f"echo $$ >{started}.part; mv {started}.part {started}\n"
                                     "exec sleep 100")
        process = subprocess.Popen(self.command("-np", 1, "--busy", 2), stderr=subprocess.PIPE,
                                   text=True, env=launcher.environment(MPIRUN=fake))
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + launcher.TIMEOUT_S
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        started_here = children(process.pid)
        self.assertGreaterEqual(len(started_here), 3)  # the launcher, and two that compute
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=END_S)
        self.assertEqual(process.returncode, 143, err)
        self.assertIn("compare.py: stopped", err)
        while any(map(is_running, started_here)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(list(filter(is_running, started_here)))
        with self.assertRaises(ProcessLookupError):
            os.kill(int(started.read_text(encoding="utf-8")), 0)


class Results(launcher.Folder):
    """--results: the table of files that are there already."""

    def test_wrong_use_is_one_line_and_exit_code_1(self):
        (self.folder / "empty.json").touch()
        for arguments, expected in (
                (["--results"], "--results: expected at least one argument"),
                (["--results", "/nowhere/a.json"], "--results: /nowhere/a.json: No such file"),
                (["--results", self.folder / "empty.json"], "not the --json of collective-bench")):
            with self.subTest(arguments=arguments):
                done = subprocess.run([sys.executable, "-B", COMPARE, *map(str, arguments)],
                                      capture_output=True, text=True, check=False,
                                      timeout=launcher.TIMEOUT_S)
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertIn(expected, done.stderr.splitlines()[0])


if __name__ == "__main__":
    verdict.main()
