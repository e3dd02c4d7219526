#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Low-communication training: what theory says of it, its pushes, and its checkpoints."""

import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import unittest

import programs
from resume_test import WEIGHTS, newest

STEPS = 15  # of an epoch of 1000 images
PARAMETERS = (784 + 1) * 32 + (32 + 1) * 16 + (16 + 1) * 10
OUTER = re.compile(r"outer steps (\d+)  pushed (\d+\.\d\d) MB by each rank")
PLAIN = {"--momentum": 0}  # the inner optimizer keeps nothing between steps
AVERAGE = {"--outer-optimizer": "sgd"}  # the new weights are the mean of the ranks'


def floats(path):
    """All float32 elements of a safetensors file, by the names of its tensors."""
    content = path.read_bytes()
    length = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + length])
    body = content[8 + length:]
    found = {}
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] != "F32":
            continue
        first, last = tensor["data_offsets"]
        found[name] = struct.unpack(f"<{(last - first) // 4}f", body[first:last])
    return found


class Outer(programs.TrainingTest):
    runs = 0

    def command(self, changed, ranks):
        options = {"--data": self.root / "data", "--epochs": 3, "--batch-size": 64,
                   "--hidden": "32,16", **changed}
        program = [programs.program("train-fashion-mnist"),
                   *(str(word) for option in options.items() for word in option)]
        return program if ranks is None else programs.mpirun(ranks, program)

    def train(self, changed, ranks=2):
        result = programs.run_command(self.command(changed, ranks))
        self.assertEqual((result.code, result.err), (0, ""))
        return result.out.splitlines()

    def new_directory(self):
        Outer.runs += 1
        return self.root / f"run{Outer.runs}"

    def weights_after(self, changed, ranks=2):
        """What the checkpoint at the end has; all ranks had it alike, or saving would have failed.
        """
        directory = self.new_directory()
        self.train({"--checkpoint-dir": directory, **changed}, ranks)
        return floats(newest(directory)[1] / WEIGHTS[0])

    def bits(self, directory):
        return [hashlib.sha256((newest(directory)[1] / name).read_bytes()).hexdigest()
                for name in WEIGHTS]

    def check_close(self, first, second):
        self.assertEqual(sum(map(len, first.values())), PARAMETERS)
        self.assertEqual(first.keys(), second.keys())
        for name, values in first.items():
            worst = max(abs(one - other) for one, other in zip(values, second[name]))
            self.assertLess(worst, 2e-5, name)

    def test_the_mean_of_single_steps_is_the_step_of_the_mean(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                short = {**PLAIN, "--epochs": 1}  # rounding grows with the steps
                self.check_close(
                    self.weights_after({**short, **AVERAGE, "--outer-every": 1}, ranks),
                    self.weights_after(short, ranks))

    def test_one_rank_that_takes_its_own_weights_trains_as_without_outer_steps(self):
        # The momentum of the inner optimizer stays over an outer step.
        for every in (4, 15, 1000):
            with self.subTest(every=every):
                self.check_close(
                    self.weights_after({**AVERAGE, "--outer-every": every, "--epochs": 2}, None),
                    self.weights_after({"--epochs": 2}, None))

    def test_more_steps_alone_and_another_outer_optimizer_give_other_weights(self):
        each = self.weights_after({**PLAIN, **AVERAGE, "--outer-every": 1})
        for changed in ({"--outer-every": 5}, {"--outer-every": 1, "--outer-optimizer": "nag"}):
            self.assertNotEqual(self.weights_after({**PLAIN, **AVERAGE, **changed}), each)

    def test_pushes_are_steps_divided_by_the_interval_and_one_for_what_is_left(self):
        for every, pushes in ((1, 45), (5, 9), (20, 3), (45, 1), (1000, 1)):
            with self.subTest(every=every):
                last = OUTER.fullmatch(self.train({"--outer-every": every})[-1])
                self.assertEqual(int(last[1]), pushes)
                self.assertEqual(last[2], f"{pushes * PARAMETERS * 4 / 1e6:.2f}")

    def test_two_runs_have_the_same_bits(self):
        for changed in ({}, {"--compression": "2bit,threshold=0.01"}, {"--optimizer": "adam"}):
            with self.subTest(changed=changed):
                directories = [self.new_directory(), self.new_directory()]
                for directory in directories:
                    self.train({"--outer-every": 4, "--checkpoint-dir": directory, **changed}, 4)
                self.assertEqual(*map(self.bits, directories))

    def test_asynchronous_pushes_change_nothing(self):
        options = {"--outer-every": 5, **AVERAGE}
        expected, expected_line = self.weights_after(options), self.train(options)[-1]
        os.environ["TUTTI_ASYNC"] = "1"
        self.addCleanup(os.environ.pop, "TUTTI_ASYNC")
        self.assertEqual(self.weights_after(options), expected)
        self.assertEqual(self.train(options)[-1], expected_line)

    def test_it_learns_with_the_default_outer_optimizer_and_with_compression(self):
        for changed in ({"--optimizer": "adam"}, {"--optimizer": "adam", "--compression": "fp16"},
                        AVERAGE, {"--compression": "topk,ratio=0.2", **AVERAGE}):
            with self.subTest(changed=changed):
                lines = self.train({"--outer-every": 5, "--epochs": 20, **changed})
                self.assertIn("an outer step every 5 by ", lines[0])
                self.assertGreater(float(lines[-2].split()[2]), 0.9)

    def test_compression_is_of_the_outer_push(self):
        one = {**PLAIN, "--outer-every": 5}
        self.assertNotEqual(self.weights_after({**one, "--compression": "1bit"}),
                            self.weights_after(one))

    def test_accuracy_is_that_of_the_outer_weights(self):
        # Until the one outer step, at the end, they are the first ones.
        first = self.train({"--learning-rate": 0})[1].split("accuracy ")[1].split()[0]
        lines = self.train({"--outer-every": 1000, **AVERAGE})
        accuracies = [line.split("accuracy ")[1].split()[0] for line in lines[1:4]]
        self.assertEqual(accuracies[:2], [first, first])
        self.assertGreater(float(accuracies[2]), float(first) + 0.2)

    def test_the_learning_rate_is_the_inner_one(self):
        still = self.weights_after({"--learning-rate": 0, "--outer-every": 5})
        self.check_close(still, self.weights_after({"--learning-rate": 0}))
        self.assertNotEqual(self.weights_after({"--outer-every": 5}), still)

    def check_goes_on(self, ranks, number, code):
        """Signals a run again and again; each start goes on, and the end has a whole run's bits."""
        options = {**PLAIN, "--outer-every": 7, "--epochs": 300, "--checkpoint-every": 70}
        expected = self.new_directory()
        self.train({**options, "--checkpoint-dir": expected}, ranks)
        directory = self.new_directory()
        stops = 0
        for epochs in (20, 5, 10, 1, 20):
            command = self.command({**options, "--checkpoint-dir": directory}, ranks)
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  stdin=subprocess.DEVNULL, text=True) as process:
                lines = [process.stdout.readline() for _ in range(1 + epochs)]
                if process.poll() is None:
                    programs.send(programs.ranks_of(process)[-1:], number)
                text = "".join(lines) + process.stdout.read()
                process.wait(timeout=programs.TIMEOUT_S)
            if "\ntest accuracy" not in text:  # after that a signal may still kill it
                self.assertIn(process.returncode, (75,) if code == 75 else (code, 2), text)
                stops += process.returncode == code
            if stops == 0:  # the run was too fast, and is begun anew
                directory = self.new_directory()
            if code == 75 and process.returncode == 75:
                stopped = re.search(r"epoch (\d+), step (\d+) is saved", text)
                self.assertEqual(((int(stopped[1]) - 1) * STEPS + int(stopped[2])) % 7, 0, text)
        self.assertGreater(stops, 0)
        lines = self.train({**options, "--checkpoint-dir": directory}, ranks)
        self.assertRegex(lines[1], "^going on from generation [0-9]+ in .*(step \\d+|are done)$")
        self.assertEqual(self.bits(directory), self.bits(expected))

    def test_a_killed_run_ends_with_the_same_bits_if_its_optimizer_has_no_states(self):
        self.check_goes_on(2, signal.SIGKILL, 128 + signal.SIGKILL)

    def test_a_run_that_is_told_to_end_does_so_at_an_outer_step(self):
        self.check_goes_on(2, signal.SIGUSR1, 75)

    def test_a_checkpoint_at_the_end_of_an_epoch_waits_for_the_outer_step(self):
        # Epochs end at 15, 30, 45; outer steps are at 10, 20, 30, 40, 45.
        directory = self.new_directory()
        self.train({"--outer-every": 10, "--checkpoint-dir": directory})
        self.assertEqual(newest(directory)[0], 4)  # the beginning, and at 20, 30, 45
        steps = sorted((int(found[0]), int(found[1])) for path in directory.glob("generation-*")
                       if (found := self.position(path)))
        self.assertEqual(steps, [(2, 0), (3, 0)])  # two generations are kept

    def position(self, folder):
        text = b"".join(path.read_bytes() for path in folder.iterdir()).decode(errors="replace")
        return [re.search(rf'"{name}"\s*:\s*"(\d+)"', text)[1] for name in ("epoch", "step")]

    def test_a_run_that_goes_on_says_that_states_begin_anew(self):
        for options, words in (({}, "; the states of --optimizer begin anew"), (PLAIN, "")):
            directory = self.new_directory()
            command = self.command({**options, "--outer-every": 5, "--epochs": 1000,
                                    "--checkpoint-dir": directory}, None)
            for start in range(2):
                with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                      text=True) as process:
                    process.stdout.readline()
                    second = process.stdout.readline()
                    process.send_signal(signal.SIGUSR1)
                    process.stdout.read()
                    self.assertEqual(process.wait(timeout=programs.TIMEOUT_S), 75)
                if start == 1:
                    self.assertRegex(second, rf", step \d+{re.escape(words)}\n$")

    def test_a_run_with_other_outer_steps_is_not_gone_on_with(self):
        directory = self.new_directory()
        inner = {"--optimizer": "nag"}
        self.train({**inner, "--outer-every": 5, "--checkpoint-dir": directory})
        plain = self.new_directory()
        self.train({**PLAIN, "--checkpoint-dir": plain})
        for where, changed, words in (
                (directory, {**inner, "--outer-every": 3},
                 "a run with --outer-every 5, not 3; give the run's own options"),
                (directory, {**inner, "--outer-every": 5, "--outer-optimizer": "nag,momentum=0.5"},
                 "a run with --outer-optimizer nag, not nag,momentum=0.5; give the run's own"),
                (directory, inner,
                 "a run with --outer-every 5, not none; give the run's own options"),
                (plain, {**PLAIN, "--outer-every": 5, **AVERAGE},
                 "a run with --outer-every none, not 5; give the run's own options")):
            with self.subTest(changed=changed):
                result = programs.run_command(
                    self.command({**changed, "--checkpoint-dir": where}, 2))
                self.assertEqual(result.code, 1, result.err)
                self.assertEqual(len(result.err.splitlines()), 1, result.err)
                self.assertIn(words, result.err)


if __name__ == "__main__":
    unittest.main()
