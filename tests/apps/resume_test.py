#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training run that is killed and started again ends with the weights of one that is not."""

import random
import re
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

import programs

GENERATION = re.compile(r"generation-(\d+)$")
WEIGHTS = ("weights.safetensors", "optimizer.safetensors")
EPOCHS = 4
STEPS = 15  # of an epoch
STEPS_OF_CHECKPOINT = 4
GENERATIONS = 1 + EPOCHS * STEPS // STEPS_OF_CHECKPOINT  # the first one at the beginning
TRIES = 10  # a run that was too fast to be killed in time is begun anew


def newest(directory):
    """(number, folder) of the newest complete checkpoint; (0, None) if there is none."""
    found = [(int(match[1]), path) for path in Path(directory).glob("generation-*")
             if (match := GENERATION.search(path.name))]
    return max(found, default=(0, None))


class Resume(programs.TrainingTest):
    def arguments(self, directory, changed=None):
        options = {"--data": self.root / "data", "--epochs": EPOCHS, "--batch-size": 64,
                   "--hidden": "32,16", "--checkpoint-dir": directory,
                   "--checkpoint-every": STEPS_OF_CHECKPOINT, **(changed or {})}
        return [str(word) for option in options.items() if option[1] is not None
                for word in option]

    def train(self, directory, changed=None, ranks=None):
        result = programs.run("train-fashion-mnist", *self.arguments(directory, changed),
                              ranks=ranks)
        self.assertEqual((result.code, result.err), (0, ""))
        return result.out.splitlines()

    def weights(self, directory):
        folder = newest(directory)[1]
        return [(folder / name).read_bytes() for name in WEIGHTS]

    def kill_after(self, directory, changed, ranks, generation):
        """Starts a run and kills a process of it, its last rank, once that generation is there."""
        program = [programs.program("train-fashion-mnist"), *self.arguments(directory, changed)]
        command = program if ranks is None else programs.mpirun(ranks, program)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + programs.TIMEOUT_S
            while newest(directory)[0] < generation and process.poll() is None:
                self.assertLess(time.monotonic(), deadline)
            if process.poll() is not None:
                self.assertEqual(process.returncode, 0, "it failed before it was killed")
            else:
                started = [process.pid] if ranks is None else programs.ranks_of(process)
                programs.send(started[-1:], signal.SIGKILL)
            process.wait(timeout=programs.TIMEOUT_S)

    def kill_midway(self, directory, changed, ranks, generation):
        """Kills a run as kill_after() does, but none that has come to its end."""
        for _ in range(TRIES):
            self.kill_after(directory, changed, ranks, generation)
            if newest(directory)[0] < GENERATIONS:
                return
            shutil.rmtree(directory)
        self.fail("every run had ended before it was killed")

    def kill_again_and_again(self, directory, changed, ranks, moments):
        """Kills and starts a run until it is near its end; how often."""
        starts = 0
        while newest(directory)[0] < GENERATIONS - 2:
            self.kill_after(directory, changed, ranks,
                            newest(directory)[0] + moments.randrange(1, 5))
            starts += 1
            self.assertLess(starts, 20)
        return starts

    def check_killed_run(self, changed, ranks):
        """Kills a run again and again; each start goes on, and the end is that of a whole run."""
        name = "".join(changed.values()) + str(ranks)
        expected = self.train(self.root / f"whole.{name}", changed, ranks)
        directory = self.root / f"killed.{name}"
        moments = random.Random(ranks or 0)
        for _ in range(TRIES):
            starts = self.kill_again_and_again(directory, changed, ranks, moments)
            if starts > 2:
                break
            shutil.rmtree(directory)
        self.assertGreater(starts, 2)
        lines = self.train(directory, changed, ranks)
        self.assertRegex(lines[1], "^going on from generation [0-9]+ in ")
        self.assertEqual(self.weights(directory), self.weights(self.root / f"whole.{name}"))

        def losses(text):
            return [line.split("  ")[:3] for line in text if line.startswith("epoch 4/4 ")]
        if losses(lines):  # else only the last line was lost
            self.assertEqual(losses(lines), losses(expected))

    def test_a_run_killed_and_started_again_ends_with_the_same_bits(self):
        self.check_killed_run({}, None)

    def test_so_does_one_of_two_ranks(self):
        self.check_killed_run({}, 2)

    def test_so_does_one_with_adam_in_a_local_store(self):
        self.check_killed_run({"--optimizer": "adam", "--kvstore": "local"}, None)

    def test_so_does_one_with_compressed_gradients(self):
        self.check_killed_run({"--compression": "2bit,threshold=2"}, 2)

    def test_residuals_of_another_number_of_ranks_are_dropped_with_one_warning(self):
        directory = self.root / "residuals"
        compressed = {"--compression": "2bit,threshold=2"}
        self.kill_midway(directory, compressed, 2, 6)
        result = programs.run("train-fashion-mnist", *self.arguments(directory, compressed),
                              ranks=4)
        self.assertEqual(result.code, 0)
        self.assertRegex(result.err, r"^tutti: rank 0 \(host .+\): warning: loaded generation "
                                     r"\d+ of \S+, of push \d+ \(step \d+\); its "
                                     r"residuals of gradient compression are of "
                                     r"2bit,threshold=2,leg=all on 2 ranks, this store's would be "
                                     r"of 2bit,threshold=2,leg=all on 4 ranks: they begin at "
                                     r"zero\n$")

    def test_checkpoints_change_nothing_and_come_at_the_end_of_epochs_by_default(self):
        self.train(self.root / "steps")
        lines = self.train(self.root / "epochs", {"--checkpoint-every": None})
        self.assertEqual(newest(self.root / "epochs")[0], 5)  # the beginning and four epochs
        self.assertEqual(newest(self.root / "steps")[0], GENERATIONS)
        self.assertEqual(self.weights(self.root / "steps"), self.weights(self.root / "epochs"))
        without = programs.run("train-fashion-mnist", *self.arguments(
            None, {"--checkpoint-dir": None, "--checkpoint-every": None}))
        self.assertEqual([line.split("  ")[:3] for line in without.out.splitlines()[1:-1]],
                         [line.split("  ")[:3] for line in lines[1:-1]])

    def test_another_number_of_ranks_goes_on(self):
        directory = self.root / "more"
        self.kill_midway(directory, {}, None, 6)
        epoch, step = divmod((newest(directory)[0] - 1) * STEPS_OF_CHECKPOINT, STEPS)
        lines = self.train(directory, ranks=4)
        self.assertRegex(lines[1], f"saved by 1 rank: epoch {epoch + 1}, step {step}$")

    def test_a_finished_run_has_nothing_left_to_train(self):
        first = self.train(self.root / "done")
        again = self.train(self.root / "done")
        self.assertRegex(again[1], "all epochs are done$")
        self.assertRegex(again[2], r"^test accuracy 0\.\d{4}  nothing was left to train$")
        self.assertEqual(again[2].split("  ")[0], first[-1].split("  ")[0])

    def test_never_starts_anew(self):
        self.train(self.root / "anew")
        lines = self.train(self.root / "anew", {"--resume": "never"})
        self.assertRegex(lines[1], "^epoch 1/4 ")

    def test_must_refuses_to_start_without_a_checkpoint(self):
        for directory in (self.root / "nothing", self.root / "no" / "folder"):
            result = programs.run("train-fashion-mnist",
                                  *self.arguments(directory, {"--resume": "must"}), ranks=2)
            self.assertEqual(result.code, 1)
            self.assertRegex(result.err, "^train-fashion-mnist: error: .*--resume must: there is "
                                         f"no checkpoint in {directory}\n$")

    def test_another_run_is_not_gone_on_with(self):
        directory = self.root / "another"
        self.train(directory)
        for option, value in (("--seed", 2), ("--epochs", 5), ("--hidden", "32,16,8"),
                              ("--learning-rate", 0.01), ("--momentum", 0.5),
                              ("--limit", 900), ("--batch-size", 32), ("--optimizer", "adam"),
                              ("--compression", "1bit")):
            with self.subTest(option=option):
                result = programs.run("train-fashion-mnist",
                                      *self.arguments(directory, {option: value}))
                self.assertEqual(result.code, 1, result.err)
                self.assertEqual(len(result.err.splitlines()), 1, result.err)
        for option, value, words in (("--seed", 2, "--seed 1, not 2; .*--resume never"),
                                     ("--momentum", 0.5,
                                      "--optimizer sgd, not sgd,momentum=0.5; ")):
            self.assertRegex(programs.run("train-fashion-mnist",
                                          *self.arguments(directory, {option: value})).err, words)

    def test_a_folder_that_cannot_be_written_shows_before_the_training(self):
        result = programs.run("train-fashion-mnist", *self.arguments(self.root / "no" / "folder"),
                              ranks=2)
        self.assertEqual(result.code, 2)
        self.assertNotIn("epoch 1", result.out)
        self.assertRegex(result.err, r"rank 0 \(host .*cannot make the folder .*must exist")


if __name__ == "__main__":
    unittest.main()
