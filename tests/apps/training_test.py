#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train-fashion-mnist learns, and learns the same with any number of ranks."""

import itertools
import os
import pty
import re
import shutil
import subprocess
import tempfile
import unittest

import programs
from resume_test import WEIGHTS, newest

EPOCH = re.compile(r"epoch (\d+)/(\d+)  loss (\d+\.\d{4})  test accuracy (0\.\d{4}|1\.0000)  "
                   r"\d+ images/s  store \d+\.\d %")
SUMMARY = re.compile(r"test accuracy (\d\.\d{4})  \d+ images/s  store \d+\.\d\d s \(\d+\.\d %\)")
BAR = re.compile(r"\repoch 1/3 \[[#-]+\]  +\d+ %  \d+ images/s  loss [\d.]+  ETA \d+:\d\d")
SMALL = {"--epochs": 3, "--batch-size": 64, "--hidden": "32,16"}


def on_a_terminal(command):
    """Runs a command with a pseudo-terminal as its output; (exit code, what it wrote)."""
    reader, writer = pty.openpty()
    with subprocess.Popen(command, stdout=writer, stderr=writer, stdin=subprocess.DEVNULL,
                          env={**os.environ, "TERM": "xterm"}) as process:
        os.close(writer)
        text = b""
        while True:
            try:
                piece = os.read(reader, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            text += piece
    os.close(reader)
    return process.returncode, text.decode()


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="training_test.")
        cls.addClassCleanup(folder.cleanup)
        cls.data = folder.name
        programs.write_data(cls.data)

    def arguments(self, changed=None):
        options = {"--data": self.data, **SMALL, **(changed or {})}
        return [str(word) for option in options.items() for word in option]

    def train(self, changed=None, ranks=None):
        """(losses, accuracies) by epoch."""
        result = programs.run("train-fashion-mnist", *self.arguments(changed), ranks=ranks)
        self.assertEqual((result.code, result.err), (0, ""))
        lines = result.out.splitlines()
        epochs = [EPOCH.fullmatch(line) for line in lines[1:-1]]
        self.assertTrue(all(epochs) and SUMMARY.fullmatch(lines[-1]), result.out)
        self.assertEqual([int(epoch[1]) for epoch in epochs], list(range(1, len(epochs) + 1)))
        self.assertEqual(SUMMARY.fullmatch(lines[-1])[1], epochs[-1][4])
        return [float(epoch[3]) for epoch in epochs], [float(epoch[4]) for epoch in epochs]

    def check_equal(self, first, second):
        self.assertEqual(len(first[0]), 3)
        for one, other in zip(first[0], second[0]):
            self.assertAlmostEqual(one, other, delta=3e-4)
        for one, other in zip(first[1], second[1]):
            self.assertAlmostEqual(one, other, delta=0.011)  # two of 200 images

    def test_the_loss_falls_and_the_test_images_are_recognised(self):
        losses, accuracies = self.train({"--epochs": 10})
        self.assertLess(losses[-1], losses[0] / 3)
        self.assertGreater(accuracies[-1], 0.9)

    def test_one_two_and_four_ranks_give_the_same_loss_within_rounding(self):
        alone = self.train()
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.check_equal(self.train(ranks=ranks), alone)

    def test_two_ranks_give_the_loss_of_one_with_any_optimizer(self):
        for text in ("adam", "lamb,learning_rate=0.01",
                     "rmsprop,centered=true,schedule=cosine,max_update=45,warmup_steps=5"):
            with self.subTest(optimizer=text):
                self.check_equal(self.train({"--optimizer": text}, ranks=2),
                                 self.train({"--optimizer": text}))

    def test_compressed_gradients_learn(self):
        # What is sent in one or two bits is larger than most gradients: smaller steps.
        rates = {"2bit,threshold=1": 0.005, "2bit,threshold=1,leg=between": 0.005,
                 "1bit,threshold=0": 0.005, "fp16": 0.05, "bf16": 0.05, "topk,ratio=0.05": 0.05}
        self.addCleanup(os.environ.pop, "TUTTI_RANKS_PER_NODE")
        for (text, rate), ranks_per_node in itertools.product(rates.items(), ("1", "2")):
            with self.subTest(compression=text, ranks_per_node=ranks_per_node):
                os.environ["TUTTI_RANKS_PER_NODE"] = ranks_per_node
                losses, accuracies = self.train({"--epochs": 20, "--compression": text,
                                                 "--learning-rate": rate}, ranks=2)
                self.assertLess(losses[-1], losses[0] / 4)
                self.assertGreater(accuracies[-1], 0.9)

    def test_nothing_is_lost_by_compression_between_nodes_where_there_is_one(self):
        plain = self.train(ranks=2)
        self.assertEqual(self.train({"--compression": "1bit,leg=between"}, ranks=2), plain)
        self.assertNotEqual(self.train({"--compression": "1bit"}, ranks=2), plain)

    def test_a_schedule_of_the_optimizer_takes_the_place_of_the_decay_by_epoch(self):
        constant = self.train({"--optimizer": "sgd,schedule=factor,step=1"})
        self.assertNotEqual(constant, self.train())
        # Nothing moves after the first update.
        _, accuracies = self.train(
            {"--optimizer": "sgd,momentum=0,schedule=multifactor,steps=1,factor=1e-30"})
        self.assertEqual(set(accuracies), {accuracies[0]})

    def test_two_virtual_nodes_give_the_loss_of_one_process(self):
        os.environ["TUTTI_RANKS_PER_NODE"] = "1"
        self.addCleanup(os.environ.pop, "TUTTI_RANKS_PER_NODE")
        self.check_equal(self.train(ranks=2), self.train())

    def test_local_and_device_stores_give_the_loss_of_dist(self):
        dist = self.train()
        for kind in ("local", "device"):
            with self.subTest(kind=kind):
                self.assertEqual(self.train({"--kvstore": kind}), dist)

    def test_the_same_seed_gives_the_same_run_and_another_seed_another(self):
        first = self.train({"--seed": 7})
        self.assertEqual(self.train({"--seed": 7}), first)
        self.assertNotEqual(self.train({"--seed": 8}), first)

    def test_momentum_and_learning_rate_reach_the_store(self):
        default = self.train()
        self.assertNotEqual(self.train({"--momentum": 0}), default)
        self.assertNotEqual(self.train({"--learning-rate": 0.01}), default)
        self.assertEqual(self.train({"--learning-rate": 0.05, "--momentum": 0.9}), default)
        self.assertEqual(self.train({"--optimizer": "sgd,momentum=0.9,learning_rate=0.05"}),
                         default)
        self.assertEqual(self.train({"--optimizer": "sgd,momentum=0.5"}),
                         self.train({"--optimizer": "sgd", "--momentum": 0.5}))

    def weights_after(self, ranks, environment, *words):
        """The bits of the last checkpoint of a run."""
        with tempfile.TemporaryDirectory(prefix="training_test.") as folder:
            command = programs.mpirun(ranks, [
                programs.program("train-fashion-mnist"),
                *self.arguments({"--checkpoint-dir": folder}), *words])
            result = programs.run_command(["env", *environment, *command])
            self.assertEqual((result.code, result.err), (0, ""))
            return [(newest(folder)[1] / name).read_bytes() for name in WEIGHTS]

    def test_pushes_that_overlap_with_computing_give_the_same_bits(self):
        adam = ("--optimizer", "adam,learning_rate=0.003")
        for words, environment in (((), ()), (adam, ()), ((), ("TUTTI_RANKS_PER_NODE=1",)),
                                   (("--compression", "2bit,threshold=0.01"), ())):
            with self.subTest(words=words, environment=environment):
                usual = self.weights_after(2, environment, *words)
                self.assertEqual(self.weights_after(2, environment, *words, "--overlap"), usual)
        usual = self.weights_after(2, ())
        self.assertEqual(self.weights_after(2, ("TUTTI_ASYNC=1",)), usual)
        self.assertNotEqual(self.weights_after(2, (), "--seed", "2"), usual)

    def test_what_does_not_fill_a_batch_is_dropped(self):
        # 150 images are 2 batches of 64 and 22 that are left.
        with tempfile.TemporaryDirectory() as folder:
            result = programs.run("train-fashion-mnist",
                                  *self.arguments({"--limit": 150, "--checkpoint-dir": folder,
                                                   "--checkpoint-every": 1}))
            self.assertEqual((result.code, result.err), (0, ""))
            self.assertEqual(newest(folder)[0], 1 + 6)  # one of the beginning, and 3 epochs'

    def test_a_batch_log_has_no_control_characters(self):
        program = [programs.program("train-fashion-mnist"), *self.arguments()]
        behind_a_shell = ["sh", "-c", '"$@"; exit', "sh", *program]
        for command in (program, programs.mpirun(2, program), programs.mpirun(2, behind_a_shell)):
            with self.subTest(command=command):
                done = subprocess.run(command, capture_output=True, timeout=programs.TIMEOUT_S,
                                      check=True)
                self.assertNotRegex(done.stdout + done.stderr, rb"[\r\x1b]")

    def test_a_terminal_gets_a_bar_that_is_removed_at_the_end_of_an_epoch(self):
        alone = [programs.program("train-fashion-mnist"), *self.arguments()]
        for command in (alone, programs.mpirun(2, alone)):
            with self.subTest(command=command):
                code, text = on_a_terminal(command)
                self.assertEqual(code, 0, text)
                self.assertRegex(text, BAR)
                self.assertRegex(text, r"\r\x1b\[Kepoch 1/3  loss ")

    def test_the_bar_of_a_run_that_goes_on_has_the_loss_of_a_rank_and_not_of_all(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = self.arguments({"--epochs": 1, "--checkpoint-dir": folder,
                                        "--checkpoint-every": 10})
            result = programs.run("train-fashion-mnist", *arguments, ranks=4)
            self.assertEqual((result.code, result.err), (0, ""))
            shutil.rmtree(newest(folder)[1])  # the end, and not the one of step 10 of 15
            code, text = on_a_terminal(programs.mpirun(
                4, [programs.program("train-fashion-mnist"), *arguments]))
            self.assertEqual(code, 0, text)
            shown = float(re.search(r"\repoch 1/1 \[#+-+\] .* loss ([\d.]+)  ETA", text)[1])
            whole = float(EPOCH.search(text)[3])
            self.assertLess(shown, 1.5 * whole)
            self.assertGreater(shown, whole / 1.5)


if __name__ == "__main__":
    unittest.main()
