#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training run that is asked to stop saves itself, ends with 75, and goes on to the same bits."""

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

import programs

WEIGHTS = ("weights.safetensors", "optimizer.safetensors")
REQUEUE = 75
STOPPED = re.compile(r"^stopped by a signal: epoch (\d+), step (\d+) is saved in .*; start it again"
                     " to go on$")
EPOCHS = 30  # each has 15 steps
STOPS = 4


def newest(directory):
    """The folder of the newest complete checkpoint."""
    return max(Path(directory).glob("generation-*[0-9]"),
               key=lambda path: int(path.name.split("-")[1]))


class Preempt(programs.TrainingTest):
    def command(self, directory, ranks):
        # Checkpoints but at signals: the beginning and the end.
        program = [programs.program("train-fashion-mnist"), "--data", self.root / "data",
                   "--epochs", EPOCHS, "--batch-size", 64, "--checkpoint-dir", directory,
                   "--checkpoint-every", 10**6]
        program = [str(word) for word in program]
        return program if ranks is None else programs.mpirun(ranks, program)

    def start(self, directory, ranks=None):
        process = subprocess.Popen(self.command(directory, ranks), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.addCleanup(process.kill)
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=programs.TIMEOUT_S)
        return programs.Result(process.returncode, out, err)

    def weights(self, directory):
        return [hashlib.sha256((newest(directory) / name).read_bytes()).hexdigest()
                for name in WEIGHTS]

    def whole_run(self, ranks):
        directory = self.root / f"whole{ranks}"
        if not directory.exists():
            result = self.finish(self.start(directory, ranks))
            self.assertEqual((result.code, result.err), (0, ""))
        return self.weights(directory)

    def check_stops(self, ranks, send):
        """Signals a run at random moments, with one kill -9 between; each start goes on."""
        expected = self.whole_run(ranks)
        directory = self.root / f"{self.id()}.{ranks}"
        moments = random.Random(ranks)
        latest = 1.0  # seconds; halved until the signals come soon enough
        steps = [0]  # that the run was stopped at
        for start in range(30):
            process = self.start(directory, ranks)
            process.stdout.readline()  # handlers are there before the first line
            started = []
            if len(steps) < STOPS:
                time.sleep(moments.uniform(0, latest))
                started = [] if ranks is None else programs.ranks_of(process)
                send(process, signal.SIGKILL if start == 1 else moments.choice(
                    (signal.SIGTERM, signal.SIGUSR1)))
            result = self.finish(process)
            programs.wait_for_ends(started)  # which may go on for 2 s, to the end
            # The signal came too late, or in the last moment; or nothing was left to do.
            if "\ntest accuracy " in result.out or result.code == 0:
                self.assertEqual(self.weights(directory), expected)
                if len(steps) == STOPS:
                    return
                shutil.rmtree(directory)
                latest /= 2
                steps = [0]
            elif start != 1:
                self.assertEqual((result.code, result.err), (REQUEUE, ""), result.out)
                last = STOPPED.match(result.out.splitlines()[-1])
                self.assertTrue(last, result.out)
                steps.append((int(last[1]) - 1) * 15 + int(last[2]))
                self.assertGreater(steps[-1], steps[-2])
        self.fail(f"the run does not get on: {steps}")

    def test_a_signal_to_any_one_rank_stops_all_at_one_step_and_the_run_goes_on_to_the_same_bits(
            self):
        victims = random.Random(7)

        def to_a_rank(process, number):
            found = programs.ranks_of(process)  # none if the run has ended
            programs.send(found and [victims.choice(found)], number)
        self.check_stops(2, to_a_rank)
        self.check_stops(4, to_a_rank)

    def test_so_does_a_run_without_mpirun(self):
        self.check_stops(None, lambda process, number: process.send_signal(number))

    def test_sigusr1_to_mpirun_is_passed_on_and_its_status_is_that_of_the_ranks(self):
        self.check_stops(2, lambda process, number: process.send_signal(
            number if number == signal.SIGKILL else signal.SIGUSR1))

    def test_a_signal_to_all_ranks_and_twice_is_one_request(self):
        def to_all(process, number):
            for rank in programs.ranks_of(process):  # one may end soon after another one's signal
                programs.send([rank, rank], number)
        self.check_stops(2, to_all)

    def test_a_signal_that_comes_while_the_data_are_read_is_not_lost(self):
        images = self.root / "data" / "train-images-idx3-ubyte.gz"
        expected = self.whole_run(None)
        content = images.read_bytes()
        directory = self.root / "early"

        def restore():
            images.unlink()
            images.write_bytes(content)
        images.unlink()
        os.mkfifo(images)
        self.addCleanup(restore)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            process = self.start(directory)
            with open(images, "wb") as file:  # waits for the program to read
                process.send_signal(number)
                file.write(content)
            result = self.finish(process)
            self.assertEqual((result.code, result.err), (REQUEUE, ""))
            self.assertRegex(result.out.splitlines()[-1], STOPPED)
        restore()
        result = self.finish(self.start(directory))
        self.assertEqual((result.code, result.err), (0, ""))
        self.assertEqual(self.weights(directory), expected)

    def test_without_a_folder_to_save_in_a_signal_ends_the_run_as_ever(self):
        command = self.command("unused", None)
        del command[command.index("--checkpoint-dir"):]
        # With more lines than a pipe holds, which nobody reads, the run does not end by itself.
        command[command.index("--epochs") + 1] = str(10**6)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL)
        process.stdout.readline()
        process.terminate()
        process.communicate(timeout=programs.TIMEOUT_S)
        self.assertEqual(process.returncode, -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
