#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When launch.sh starts a job again. Its mpirun ends with the codes of a list, one per start."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import launcher
import programs
import verdict
from launcher import launch

BODY = """
echo start >> {folder}/starts
code=$(sed -n "$(wc -l < {folder}/starts)p" {folder}/codes)
cat
{more}
exit ${{code:-99}}
"""


class Restarts(launcher.Folder):
    def prepare(self, *codes, more="", asked=":"):
        (self.folder / "codes").write_text("".join(f"{code}\n" for code in codes),
                                           encoding="utf-8")
        (self.folder / "starts").unlink(missing_ok=True)
        return self.fake_mpirun(body=BODY.format(folder=self.folder, more=more),
                                asked=asked)

    def starts(self):
        path = self.folder / "starts"
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

    def run_with(self, codes, *options):
        return launch(*options, "-np", 1, "true", MPIRUN=self.prepare(*codes))

    def test_a_failure_is_followed_by_a_start_until_it_succeeds(self):
        result = self.run_with([2, 137, 0, 2], "--max-restarts", 5)
        self.assertEqual((result.code, self.starts()), (0, 3))
        self.assertIn("launch.sh: the job ended with 2; restart 1 of 5.", result.err)
        self.assertIn("launch.sh: the job ended with 137; restart 2 of 5.", result.err)

    def test_the_last_failure_is_passed_on(self):
        result = self.run_with([4, 3, 134, 0], "--max-restarts", 2)
        self.assertEqual((result.code, self.starts()), (134, 3))
        self.assertIn("launch.sh: the job ended with 134; no restart is left of 2.", result.err)

    def test_without_the_option_there_is_one_start(self):
        self.assertEqual((self.run_with([2, 0]).code, self.starts()), (2, 1))

    # Makes the files that a node of a job leaves in memory; the number of the push is from a list.
    PUSHES = ("[ ! -e $TUTTI_SNAPSHOTS/h.0 ] || touch {folder}/kept; "
              "mkdir -p $TUTTI_SNAPSHOTS/h.0/d; push=$(sed -n \"$(wc -l < {folder}/starts)p\" "
              "{folder}/pushes); printf \"\\\\x$push\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\" "
              "> $TUTTI_SNAPSHOTS/h.0/d/progress; "
              "echo text of push $push >&2; echo $TUTTI_SNAPSHOTS $TUTTI_SNAPSHOT_EVERY "
              "> {folder}/named")

    def run_with_snapshots(self, codes, pushes):
        (self.folder / "pushes").write_text("".join(f"{push}\n" for push in pushes),
                                            encoding="utf-8")
        mpirun = self.prepare(*codes, more=self.PUSHES.format(folder=self.folder))
        result = launch("--max-restarts", 9, "--snapshot-every", "0.5", "-np", 1, "true",
                        MPIRUN=mpirun)
        named, every = (self.folder / "named").read_text(encoding="utf-8").split()
        self.assertRegex(named, "^/dev/shm/tutti-[0-9a-f]{32}$")
        self.assertEqual((every, Path(named).exists()), ("0.5", False))
        return result

    def test_three_ends_at_one_push_end_the_job_with_the_texts_of_all(self):
        result = self.run_with_snapshots([2, 4, 137, 0], ["07", "07", "07", "07"])
        self.assertEqual((result.code, self.starts()), (137, 3))
        self.assertIn("launch.sh: the job ended three times at push 7, so it is not started again.",
                      result.err)
        for end, code in enumerate((2, 4, 137), 1):
            self.assertIn(f"--- end {end}, with {code}:\ntext of push 07\n", result.err)

    def test_ends_at_other_pushes_are_started_again(self):
        result = self.run_with_snapshots([2, 2, 2, 2, 0], ["07", "07", "08", "08", "09"])
        self.assertEqual((result.code, self.starts()), (0, 5))

    def test_snapshots_of_replicas_that_differ_are_dropped(self):
        for code, is_kept in ((2, True), (3, False)):
            (self.folder / "kept").unlink(missing_ok=True)
            result = self.run_with_snapshots([code, 0], ["07", "08"])
            self.assertEqual((result.code, (self.folder / "kept").exists()), (0, is_kept))

    def test_what_a_killed_launcher_left_in_memory_is_removed_by_the_next(self):
        more = f'echo $TUTTI_SNAPSHOTS > {self.folder}/named; touch {self.folder}/ready; sleep 600'
        mpirun = self.prepare(2, more=more)
        options = ("--max-restarts", "1", "--snapshot-every", "1", "-np", "1", "true")
        with subprocess.Popen([launcher.LAUNCH, *options], stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True,
                              env=launcher.environment(MPIRUN=mpirun)) as process:
            deadline = time.monotonic() + launcher.TIMEOUT_S
            while not (self.folder / "ready").exists():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)
        left = Path((self.folder / "named").read_text(encoding="utf-8").strip())
        self.assertTrue(left.is_dir())
        self.assertEqual(launch(*options, MPIRUN=self.prepare(0)).code, 0)
        self.assertFalse(left.exists())

    def test_memory_that_was_being_made_or_removed_is_removed_by_the_next_start(self):
        options = ("--max-restarts", "1", "--snapshot-every", "1", "-np", "1", "true")
        for suffix in (".new", ".old"):
            left = Path(f"/dev/shm/tutti-{os.getpid()}{suffix}")
            left.mkdir()
            self.addCleanup(shutil.rmtree, left, ignore_errors=True)
            (left / "errors").touch()
            self.assertEqual(launch(*options, MPIRUN=self.prepare(0)).code, 0)
            self.assertFalse(left.exists())

    def test_snapshots_are_for_restarts(self):
        result = launch("--snapshot-every", "1", "-np", 1, "true", MPIRUN=self.prepare(0))
        self.assertEqual(result.code, 1)
        self.assertIn("--snapshot-every needs --max-restarts", result.err)

    def test_what_another_start_would_not_change_is_passed_on(self):
        for code in (0, 1, 75):
            result = self.run_with([code, 0], "--max-restarts", 3)
            self.assertEqual((result.code, self.starts()), (code, 1))

    def test_1_may_be_a_host_that_was_lost_while_ranks_started(self):
        hosts = ("--host", "localhost:1")
        for codes, options, expected in (
                ([137, 1, 1, 0], (), (0, 4)), ([2, 1], (), (1, 2)),
                ([1, 0], hosts, (0, 2)), ([1, 1, 0], hosts, (1, 2)), ([1, 2, 1, 0], hosts, (0, 4)),
                ([1, 0], (), (1, 1))):
            with self.subTest(codes=codes, options=options):
                result = self.run_with(codes, "--max-restarts", len(codes) - 1, *options)
                self.assertEqual((result.code, self.starts()), expected, result.err)

    def test_a_launcher_that_waits_for_its_own_lock_without_ranks_is_ended(self):
        """As PMIx does at its end where a rank was killed while it connected."""
        lock = ("import subprocess, sys, threading\n"
                "rank = subprocess.Popen(['env', 'PMIX_RANK=0', 'sleep', sys.argv[1]])\n"
                "lock = threading.Lock()\n"
                "lock.acquire()\n"
                "lock.acquire(timeout=float(sys.argv[2]))\n")
        lock = self.script("lock", f'exec {sys.executable} -c "{lock}" "$@"\n')
        for times, restarts, options in (  # times of the rank, and of the launcher
                ("0 600", 1, ["--max-restarts", 1]), ("5 4", 0, ["--max-restarts", 1]),
                ("0 600", 1, []), ("5 4", 0, [])):
            with self.subTest(times=times, options=options):
                once = f"[ $(wc -l < {self.folder}/starts) != 1 ] || exec {lock} {times}"
                result = launch(*options, "-np", 1, "true", TUTTI_GRACE="2",
                                MPIRUN=self.prepare(0, 0, more=once))
                code = 0 if options or not restarts else -signal.SIGKILL
                starts = 1 + restarts if options else 1
                self.assertEqual((result.code, self.starts()), (code, starts), result.err)
                said = re.findall("the launcher has waited for a lock of its own for [2-9] s",
                                  result.err)
                self.assertEqual(len(said), restarts, result.err)

    def test_the_watch_does_not_outlive_its_launcher(self):
        begin = time.monotonic()
        result = launch("-np", 1, "true", MPIRUN=self.prepare(5, more="sleep 0.2; pgrep -P $$ >&2"))
        self.assertEqual((result.code, len(result.err.split())), (5, 1), result.err)
        self.assertLess(time.monotonic() - begin, 60)  # it holds standard error
        programs.wait_for_ends([int(pid) for pid in result.err.split()])

    def test_a_checkpoint_on_a_signal_after_a_restart_ends_with_the_code_of_requeueing(self):
        for codes in ([2, 75], [75]):  # batch templates pass the option on, also as 0
            result = self.run_with(codes, "--max-restarts", 3 if len(codes) > 1 else 0)
            self.assertEqual((result.code, self.starts()), (75, len(codes)))
            self.assertIn("75 says that the job has saved itself and can go on; it is no failure",
                          result.err)
        result = self.run_with([75], "--requeue-exit", 99)
        self.assertEqual((result.code, self.starts()), (99, 1))

    def test_standard_input_reaches_the_job(self):
        done = subprocess.run([launcher.LAUNCH, "--max-restarts", "1", "-np", "1", "true"],
                              input="typed\n", capture_output=True, text=True, check=True,
                              timeout=launcher.TIMEOUT_S,
                              env=launcher.environment(MPIRUN=self.prepare(0)))
        self.assertEqual(done.stdout, "typed\n")

    def test_a_closed_stream_is_the_null_device(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            for options in ("", "--max-restarts 1"):
                with self.subTest(closed=closed, options=options):
                    command = f'"$0" {options} -np 1 true {closed}'
                    done = subprocess.run(
                        ["bash", "-c", command, launcher.LAUNCH], capture_output=True, text=True,
                        input="typed", check=False, timeout=launcher.TIMEOUT_S,
                        env=launcher.environment(MPIRUN=self.prepare(
                            0, more=f"exec 9> {self.folder}/streams\nfor stream in 0 1 2; do "
                                    "readlink /proc/$$/fd/$stream >&9; done")))
                    self.assertEqual((done.returncode, self.starts()), (0, 1), done.stderr)
                    streams = (self.folder / "streams").read_text(encoding="utf-8").splitlines()
                    for index, sign in enumerate(("<&-", " >&-", "2>&-")):
                        self.assertEqual(sign in " " + closed, streams[index] == "/dev/null")

    def test_what_nobody_can_read_does_not_end_the_job(self):
        for stderr in ("2> /dev/full", "2> >(exec 0<&-; touch closed; exec sleep 5)"):
            with self.subTest(stderr=stderr):
                until = "until [ -e closed ]; do sleep 0.02; done" if "closed" in stderr else ":"
                (self.folder / "closed").unlink(missing_ok=True)
                done = subprocess.run(
                    ["bash", "-c", f'"$0" --max-restarts 1 -np 1 true {stderr}', launcher.LAUNCH],
                    stdin=subprocess.DEVNULL, check=False, timeout=launcher.TIMEOUT_S,
                    cwd=self.folder, env=launcher.environment(MPIRUN=self.prepare(2, 0,
                                                                                  more=until)))
                self.assertEqual((done.returncode, self.starts()), (0, 2))

    def send(self, number, more="", asked=":", options=("--max-restarts", "3")):
        """(exit code, starts) of a job that gets the signal once there is a file `ready`."""
        mpirun = self.prepare("$code", more=more, asked=asked)
        with subprocess.Popen([launcher.LAUNCH, *options, "-np", "1", "true"],
                              env=launcher.environment(MPIRUN=mpirun), stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + launcher.TIMEOUT_S
            while not (self.folder / "ready").exists():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            process.send_signal(number)
            (self.folder / "sent").touch()
            return process.wait(timeout=launcher.TIMEOUT_S), self.starts()

    def test_a_signal_reaches_the_job_which_decides_how_it_ends(self):
        wait = 'trap "exit 75" {name}; touch {folder}/ready; while :; do sleep 0.02; done'
        for number, name in ((signal.SIGUSR1, "USR1"), (signal.SIGUSR2, "USR2"),
                             (signal.SIGTERM, "TERM")):
            (self.folder / "ready").unlink(missing_ok=True)
            more = wait.format(name=name, folder=self.folder)
            self.assertEqual(self.send(number, more), (75, 1))

    def test_a_signal_that_the_job_survives_does_not_end_the_waiting(self):
        for code in (0, 75):
            (self.folder / "ready").unlink(missing_ok=True)
            more = f'trap : USR1; touch {self.folder}/ready; sleep 0.3 & wait; wait; exit {code}'
            self.assertEqual(self.send(signal.SIGUSR1, more), (code, 1))

    def test_nothing_is_started_again_after_a_signal_to_end(self):
        more = f'trap "exit 143" TERM; touch {self.folder}/ready; while :; do sleep 0.02; done'
        self.assertEqual(self.send(signal.SIGTERM, more), (143, 1))

    def test_what_is_told_to_end_before_it_has_begun_is_not_begun(self):
        asked = (f'touch {self.folder}/ready; '
                 f'until [ -e {self.folder}/sent ]; do sleep 0.02; done')
        for options in ((), ("--max-restarts", "3"), ("--requeue-exit", "99")):
            requeue = 99 if "99" in options else 75
            for number, code in ((signal.SIGUSR1, requeue), (signal.SIGTERM, 143)):
                for name in ("ready", "sent"):
                    (self.folder / name).unlink(missing_ok=True)
                self.assertEqual(self.send(number, asked=asked, options=options), (code, 0))


if __name__ == "__main__":
    verdict.main()
