#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that launch.sh starts with the real mpirun: here, and on several hosts."""

import re
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

import launcher
import programs
import verdict
from launcher import launch, newest, weights

TRAIN = programs.program("train-fashion-mnist")


def training(folder, directory, epochs=4, checkpoint_every=4):
    data = folder / "data"
    if not data.exists():
        data.mkdir()
        programs.write_data(data)
    return [TRAIN, "--data", str(data), "--epochs", str(epochs), "--batch-size", "64", "--hidden",
            "32,16", "--checkpoint-every", str(checkpoint_every), "--resume", "auto",
            "--checkpoint-dir", str(directory)]


class Job(launcher.Folder):
    def test_programs_run_on_the_ranks_that_were_asked_for(self):
        for ranks in (1, 2, 4):
            result = launch("-np", ranks, programs.program("kvstore-tour"))
            self.assertEqual(result.code, 0, result.err)
            self.assertRegex(result.out, f"checks right on {ranks} ranks?\n$")

    def test_the_exit_code_is_the_programs(self):
        for code in (1, 2, 3, 4, 75):
            self.assertEqual(launch("-np", 2, "sh", "-c", f"exit {code}").code, code)
            self.assertEqual(launch("--max-restarts", 1, "-np", 2, "sh", "-c",
                                    f"exit {code}").code, code)

    def test_a_process_that_never_calls_mpi_init_ends_the_job_at_the_deadline(self):
        for other in (["sleep", "600"], ["sh", "-c", "sleep 600"]):
            result = launch("-np", 1, programs.program("kvstore-tour"), ":", "-np", 1, *other,
                            TUTTI_TIMEOUT="4")
            self.assertEqual(result.code, 4, result.err)
            for level in ("warning", "error"):
                self.assertEqual(len(re.findall(
                    rf"^tutti: {level}: rank 0 \(host \S+, pid \d+\) has been in MPI_Init for "
                    r"\d\.\d s, which returns when all processes of the job have called it, and "
                    "not all have", result.err, re.MULTILINE)), 1, result.err)

    def test_the_dry_run_is_what_is_run(self):
        line = launch("--dry-run", "-np", 3, "sh", "-c", 'echo "a  b" $OMPI_COMM_WORLD_SIZE').out
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True,
                              env=launcher.environment())
        self.assertEqual(done.stdout, "a  b 3\n" * 3)

    def test_each_rank_gets_its_gpu(self):
        for index in range(2):
            (self.folder / f"nvidia{index}").touch()
        result = launch("-np", 3, "sh", "-c", "echo $OMPI_COMM_WORLD_RANK:$CUDA_VISIBLE_DEVICES",
                        LAUNCH_DEVICES=str(self.folder / "nvidia"))
        self.assertEqual(sorted(result.out.split()), ["0:0", "1:1", "2:0"])

    def train(self, directory):
        return ["-np", "2", *training(self.folder, directory)]

    def test_a_rank_that_outlives_its_launcher_is_ended_before_the_next_start(self):
        script = self.script("outlive", f'cd {self.folder}\n' + """
            if [ -e again ]; then ! grep -qs . /proc/$(cat old)/environ; exit; fi
            if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then
              trap "" HUP  # which comes to a stopped process whose parent ends
              echo $$ >new; mv new old
              kill -STOP $$
              exec sleep 600
            fi
            until [ -e old ]; do sleep 0.02; done
            touch again
            kill -KILL $PPID
            """)
        result = launch("--max-restarts", 1, "-np", 2, script)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("launch.sh: the job ended with 137; restart 1 of 1.", result.err)

    def test_a_job_with_a_killed_rank_is_started_again_and_ends_with_the_same_bits(self):
        whole, killed = self.folder / "whole", self.folder / "killed"
        result = launch(*self.train(whole))
        self.assertEqual(result.code, 0, result.err)
        # Where mpirun takes 2 s to see that a rank is gone, the other one says so, with code 2.
        restart = re.compile("^launch.sh: the job ended with (137|2); restart ", re.MULTILINE)
        for _ in range(10):
            out, err = self.kill_twice(killed)
            if restart.search(err):
                break
            shutil.rmtree(killed)  # it had ended before it was killed
        self.assertRegex(err, restart)
        self.assertRegex(out, "going on from generation [0-9]+ in ")
        self.assertEqual(weights(killed), weights(whole))

    def test_a_job_goes_on_from_the_memory_of_the_node_with_the_same_bits_and_leaves_none(self):
        whole = self.folder / "whole"
        self.assertEqual(launch(*self.train_without_saves(whole)).code, 0)
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(fault=fault):
                self.go_on_from_memory(fault, self.folder / fault.name, whole)

    def go_on_from_memory(self, fault, faulty, whole):
        for _ in range(10):
            out, err, memory, ranks = self.send_after_snapshots(fault, faulty)
            if "going on from snapshot" in out:
                break
            shutil.rmtree(faulty)  # it had ended before the signal
        self.assertRegex(out, "going on from snapshot [0-9]+ in the nodes' memory for ")
        self.assertRegex(err, "loaded snapshot [0-9]+ of the nodes' memory for .*, of push [0-9]+ ")
        self.assertEqual(weights(faulty), weights(whole))
        self.assertFalse(memory.exists())
        self.assertFalse(any(map(programs.runs, ranks)))

    def train_without_saves(self, directory):
        """So long that it is hit before its end, also on a loaded machine."""
        return ["-np", "2", *training(self.folder, directory, epochs=40, checkpoint_every=0)]

    def send_after_snapshots(self, fault, directory):
        """Output and errors of a job of which a rank gets a signal, its memory, and that rank."""
        with subprocess.Popen([launcher.LAUNCH, "--max-restarts", "9", "--snapshot-every", "0.001",
                               *self.train_without_saves(directory)],
                              env=launcher.environment(TUTTI_TIMEOUT="5"), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            memory = None
            while memory is None and process.poll() is None:
                memory = next((Path(named) for mpirun in children(process.pid)
                               for named in re.findall("TUTTI_SNAPSHOTS=([^\0]*)", environment_of(
                                   mpirun))), None)
            while process.poll() is None and newest(memory / "*" / "*") < 5:
                pass
            ranks = ranks_of(process.pid)
            programs.send(ranks[-1:], fault)
            out, err = process.communicate(timeout=launcher.TIMEOUT_S)
        self.assertEqual(process.returncode, 0, err)
        return out, err, memory, ranks[-1:]

    def kill_twice(self, directory):
        """Standard output and error of a job of which ranks are killed, unless it is too fast."""
        with subprocess.Popen([launcher.LAUNCH, "--max-restarts", "9", *self.train(directory)],
                              env=launcher.environment(), stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            for generation in (3, 8):
                self.kill_a_rank_after(process, directory, generation)
            out, err = process.communicate(timeout=launcher.TIMEOUT_S)
        self.assertEqual(process.returncode, 0, err)
        return out, err

    def kill_a_rank_after(self, process, directory, generation):
        deadline = time.monotonic() + launcher.TIMEOUT_S
        while newest(directory) < generation and process.poll() is None:
            self.assertLess(time.monotonic(), deadline)
        programs.send(ranks_of(process.pid)[-1:], signal.SIGKILL)


def children(process):
    try:
        path = Path(f"/proc/{process}/task/{process}/children")
        return [int(child) for child in path.read_text(encoding="ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def ranks_of(launch_sh):
    """Process ids. launch.sh and mpirun have other children as well."""
    return [rank for child in children(launch_sh) for rank in children(child)
            if "OMPI_COMM_WORLD_RANK=" in environment_of(rank)]


def environment_of(process):
    try:
        return Path(f"/proc/{process}/environ").read_text(encoding="utf-8")
    except OSError:
        return ""


class Hosts(launcher.Folder):
    """On two hosts with two ranks each, which are network namespaces."""

    def run_hosts(self, *arguments, **changed):
        done = subprocess.run([str(launcher.SCRIPTS / "hosts.sh"), *map(str, arguments)],
                              capture_output=True, text=True, timeout=launcher.TIMEOUT_S,
                              check=False, env=launcher.environment(**changed))
        if done.returncode == 77:
            raise unittest.SkipTest(done.stderr)
        return done

    def on_hosts(self, *arguments, **changed):
        done = self.run_hosts("2", "--slots", "2", "--", launcher.LAUNCH, *arguments, **changed)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_ranks_fill_the_hosts_and_have_the_settings(self):
        script = 'echo "$OMPI_COMM_WORLD_RANK $(hostname) $TUTTI_TIMEOUT $NCCL_DEBUG"'
        lines = self.on_hosts("sh", "-c", script, TUTTI_TIMEOUT="a b", NCCL_DEBUG="INFO")
        self.assertEqual(sorted(lines.splitlines()),
                         ["0 h0 a b INFO", "1 h0 a b INFO", "2 h1 a b INFO", "3 h1 a b INFO"])

    def test_each_rank_gets_a_gpu_of_its_host(self):
        for index in range(2):
            (self.folder / f"nvidia{index}").touch()
        script = 'echo "$OMPI_COMM_WORLD_RANK $CUDA_VISIBLE_DEVICES"'
        lines = self.on_hosts("--gpus", "yes", "-x", "LAUNCH_DEVICES", "sh", "-c", script,
                              LAUNCH_DEVICES=str(self.folder / "nvidia"))
        self.assertEqual(sorted(lines.splitlines()), ["0 0", "1 1", "2 0", "3 1"])

    def test_a_program_of_ours_runs_on_four_ranks_of_two_hosts(self):
        self.assertRegex(self.on_hosts(programs.program("kvstore-tour")), "right on 4 ranks\n$")

    def test_a_host_that_is_cut_off_for_good_does_not_hold_the_launcher(self):
        """Its link is down. mpirun would wait for it until TCP gives up, in 8 minutes or more."""
        script = self.script("cut", '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec sleep 600\nsleep 3\n'
                                    'ip -n "$HOSTS_PREFIX-switch" link set port1 down\nexit 4\n')
        done = self.run_hosts("2", "--", launcher.LAUNCH, "--max-restarts", "0", "-np", "2",
                              "-x", "HOSTS_PREFIX", script, TUTTI_GRACE="5")
        self.assertEqual(done.returncode, 205, done.stderr)
        self.assertRegex(done.stderr, "another host has not answered it for [5-9] s")

    def test_a_host_whose_processes_are_all_stopped_is_started_on_again(self):
        """Its kernel still answers mpirun, which waits for the processes that it wants to end."""
        script = self.script("freeze", f'cd {self.folder}\n' + """
            if [ -e again ]; then ! grep -qs . /proc/$(cat old)/environ; exit; fi
            [ "$OMPI_COMM_WORLD_RANK" = 0 ] || { echo $$ >new; mv new old; exec sleep 600; }
            until [ -e old ]; do sleep 0.02; done
            touch again
            sleep 2
            kill -STOP $(ip netns pids "$HOSTS_PREFIX-h1")
            exit 4
            """)
        done = self.run_hosts("2", "--", launcher.LAUNCH, "--max-restarts", 1, "-x",
                              "HOSTS_PREFIX", script, TUTTI_GRACE="3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("those of other hosts have been stopped for 3 s", done.stderr)

    def test_a_job_goes_on_without_a_host_that_is_lost(self):
        """It loses its link, its processes and its memory. With a spare the bits are the same.

        Files are written so rarely that what the nodes' memory has is always newer.
        """
        lose = self.script("lose", """
            newest() {  # of the generations in memory, which come and go
              local file found=0
              for file in "$TUTTI_SNAPSHOTS"/*/*/generation-*; do
                if [ "${file##*-}" -gt "$found" ]; then found=${file##*-}; fi
              done
              [ "$found" -ge 5 ]
            }
            lose() {
              until newest; do [ $SECONDS -lt 60 ] || return; done
              touch $0.lost
              ip -n "$HOSTS_PREFIX-switch" link set port1 down
              kill -KILL $(ip netns pids "$HOSTS_PREFIX-h1" | grep -vx $BASHPID)
              rm -rf /dev/shm/*
            } >/dev/null 2>&1
            if [ "$(hostname)" = h1 ] && [ ! -e $0.lost ]; then lose & fi
            exec "$@"
            """)
        whole = self.folder / "whole"
        settings = {"TUTTI_REPRODUCIBLE": "1", "TUTTI_TIMEOUT": "10"}
        long = {"epochs": 200, "checkpoint_every": 400}
        result = launch("-np", 2, *training(self.folder, whole, **long), **settings)
        self.assertEqual(result.code, 0, result.err)
        for hosts, option, said in (("3", "--spares", "2 of 2 ranks start on .*:1,.*:1"),
                                    ("2", "--min-ranks", "1 of 2 ranks start on .*:1")):
            with self.subTest(option=option):
                directory = self.folder / option
                Path(f"{lose}.lost").unlink(missing_ok=True)
                done = self.run_hosts(hosts, "--", launcher.LAUNCH, "--max-restarts", 1,
                                      "--snapshot-every", "0.001", option, 1, "-x", "HOSTS_PREFIX",
                                      lose, *training(self.folder, directory, **long),
                                      **settings)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, rf"[\d.]+ did not answer: {said}\.\n")
                self.assertRegex(done.stdout, "going on from snapshot [0-9]+ in the nodes' memory")
                if option == "--spares":
                    self.assertEqual(weights(directory), weights(whole))

    def test_fast_links_let_more_through_at_once(self):
        for rate, kib in [("100mbit", 32), ("1gbit", 32), ("10gbit", 122)]:
            with self.subTest(rate=rate):
                done = self.run_hosts("1", "--rate", rate, "--", "tc", "qdisc", "show")
                self.assertEqual(done.returncode, 0, done.stderr)
                burst = re.search(r"burst (\d+)(K?)b ", done.stdout)
                self.assertIsNotNone(burst, done.stdout)
                let_through = int(burst[1]) * (1024 if burst[2] else 1)
                self.assertAlmostEqual(let_through / 1024, kib, delta=2)  # tc counts in ticks

    def test_a_rate_that_is_none_is_refused(self):
        for rate in ["fast", "1.5gbit", "100"]:
            with self.subTest(rate=rate):
                done = self.run_hosts("1", "--rate", rate, "--", "true")
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr,
                                 f"error: hosts.sh: --rate {rate}: expected a whole number of "
                                 "kbit, mbit or gbit, such as 10gbit\n")


if __name__ == "__main__":
    verdict.main()
