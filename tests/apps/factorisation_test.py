#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""matrix-factorisation learns through row-sparse keys, the same with any number of ranks."""

import re
import unittest

import programs

EPOCH = re.compile(r"epoch (\d+)/(\d+)  RMSE (\d\.\d{4})  test RMSE (\d\.\d{4})")
SMALL = {"--users": 500, "--items": 200, "--factors": 4, "--ratings": 40000, "--batch-size": 512,
         "--epochs": 5}

REFUSED = [
    (["--epoch", "3"], "unrecognised option '--epoch'"),
    (["--users", "0"], "--users: expected at least 1"),
    (["--items", "0"], "--items: expected at least 1"),
    (["--factors", "0"], "--factors: expected at least 1"),
    (["--epochs", "0"], "--epochs: expected at least 1"),
    (["--batch-size", "0"], "--batch-size: expected at least 1"),
    (["--ratings", "100"], "--batch-size 4096 is more than the 100 ratings"),
    (["--seed", "-1"], "--seed: expected at least 0"),
    (["--optimizer", "magic"], "--optimizer: unknown optimizer 'magic'"),
    (["--optimizer", "lamb"], "lamb: expected one that updates single rows: sgd, adam or adagrad"),
    (["--optimizer", "sgd,learning_rate=1e20"], "the training diverged: the error of epoch 1"),
]


class Factorisation(unittest.TestCase):
    def train(self, changed=None, ranks=None):
        """RMSEs by epoch: (of training, of the test)."""
        options = {**SMALL, **(changed or {})}
        result = programs.run("matrix-factorisation",
                              *[word for option in options.items() for word in option], ranks=ranks)
        self.assertEqual((result.code, result.err), (0, ""))
        epochs = [EPOCH.fullmatch(line) for line in result.out.splitlines()]
        self.assertTrue(all(epochs), result.out)
        self.assertEqual([int(epoch[1]) for epoch in epochs], list(range(1, 6)))
        return [(float(epoch[3]), float(epoch[4])) for epoch in epochs]

    def test_the_error_comes_down_to_nearly_the_noise(self):
        errors = self.train()
        self.assertGreater(errors[0][0], 0.4)  # the ratings' own deviation is 1
        self.assertLess(errors[-1][1], 0.14)   # and the noise's 0.1
        self.assertGreater(errors[-1][1], 0.1)

    def test_any_number_of_ranks_gives_the_same_errors(self):
        alone = self.train()
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                for one, other in zip(self.train(ranks=ranks), alone):
                    self.assertAlmostEqual(one[0], other[0], delta=2e-4)
                    self.assertAlmostEqual(one[1], other[1], delta=2e-4)

    def test_every_optimizer_of_rows_learns(self):
        for text in ("sgd,learning_rate=0.05", "sgd,learning_rate=0.01,momentum=0.9",
                     "adam,learning_rate=0.05"):
            with self.subTest(optimizer=text):
                errors = self.train({"--optimizer": text}, ranks=2)
                self.assertLess(errors[-1][1], errors[0][0] / 2)

    def test_another_seed_is_another_run(self):
        self.assertEqual(self.train({"--seed": 2}), self.train({"--seed": 2}))
        self.assertNotEqual(self.train({"--seed": 2}), self.train())

    def test_wrong_use_is_one_line_for_the_job(self):
        for arguments, expected in REFUSED:
            with self.subTest(arguments=arguments):
                result = programs.run("matrix-factorisation", *arguments)
                self.assertEqual((result.code, len(result.err.splitlines())), (1, 1), result.err)
                self.assertIn(expected, result.err)
        script = programs.program("matrix-factorisation") + ' "$@"'
        codes, err = programs.exit_codes(2, script, "--batch-size", "4097")
        self.assertEqual(codes, [1, 1], err)
        self.assertIn("4097 ratings are not divisible by 2 ranks", err)

    def test_help_and_version_print_once(self):
        for option in ("--help", "--version"):
            shown = programs.run("matrix-factorisation", option, ranks=2)
            self.assertEqual((shown.code, shown.err), (0, ""))
            self.assertGreater(len(shown.out.strip()), 0)
        self.assertEqual(programs.run("matrix-factorisation", "--help").out.count("--factors"), 1)


if __name__ == "__main__":
    unittest.main()
