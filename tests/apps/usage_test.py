#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong use of a program: one clear line for the job, exit code 1 on every rank, no hang."""

import gzip
import os
import re
import resource
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import programs

IMAGES = "train-images-idx3-ubyte.gz"

# Arguments -> what the line says.
REFUSED = [
    (["--epoch", "3"], "unrecognised option '--epoch', did you mean --epochs?; --help lists"),
    (["--limt", "3"], "unrecognised option '--limt', did you mean --limit?; --help lists"),
    (["--no-such-option"], "unrecognised option '--no-such-option'; --help lists"),
    (["extra"], "expected options only"),
    (["--epochs", "0"], "--epochs: expected at least 1"),
    (["--epochs", "many"], "'--epochs' is invalid"),
    (["--epochs"], "'--epochs' is missing"),
    (["--batch-size", "0"], "--batch-size: expected at least 1"),
    (["--batch-size", "1002"], "1002 is more than the 1000 training images"),
    (["--device", "tpu"], "--device: expected cpu or gpu, found 'tpu'"),
    (["--kvstore", "remote"], "--kvstore: expected dist, local or device, found 'remote'"),
    (["--optimizer", "magic"], "--optimizer: unknown optimizer 'magic', did you mean "),
    (["--optimizer", "sgd,momentun=0.5"], "optimizer sgd: unknown option 'momentun', did you mean "
                                          "momentum? There are: learning_rate, "),
    (["--optimizer", "sgd,momentum"], "optimizer sgd: expected option=value between commas"),
    (["--optimizer", "adam,beta1=2"], "beta1=2: expected a number from 0 to below 1"),
    (["--optimizer", "adam,max_update=9"], "'max_update' belongs to a schedule"),
    (["--optimizer", "adam", "--momentum", "0.9"], "optimizer adam: unknown option 'momentum'"),
    (["--optimizer", "sgd,momentum=0.5", "--momentum", "0.9"], "'momentum' is given twice"),
    (["--overlap", "--device", "gpu"],
     "--overlap is for gradients on the cpu; leave it out with --device gpu"),
    (["--compression", "3bit"], "--compression: unknown compression '3bit', did you mean 2bit? "),
    (["--compression", "2bit,threshold=0"], "--compression: compression 2bit: threshold=0: expect"),
    (["--learning-rate", "-1"], "learning_rate=-1: expected a number of at least 0"),
    (["--learning-rate", "nan"], "learning_rate=nan: expected a number of at least 0"),
    (["--learning-rate", "fast"], "learning_rate=fast: expected a number of at least 0"),
    (["--momentum", "1"], "momentum=1: expected a number from 0 to below 1"),
    (["--seed", "-1"], "--seed"),
    (["--limit", "-1"], "--limit"),
    (["--hidden", "256,,128"], "--hidden: expected widths from 1 to 65536"),
    (["--hidden", "0"], "--hidden: expected widths from 1 to 65536"),
    (["--hidden", "12x"], "--hidden: expected widths from 1 to 65536"),
    (["--hidden", ""], "--hidden"),
    (["--learning-rate", "1e30"], "the training diverged"),
    (["--checkpoint-every", "5"], "--checkpoint-every needs --checkpoint-dir"),
    (["--checkpoint-dir", "c", "--checkpoint-every", "-1"], "--checkpoint-every: expected at"),
    (["--resume", "must"], "--resume must needs --checkpoint-dir"),
    (["--resume", "yes"], "--resume: expected auto, never or must, found 'yes'"),
]


class Log(unittest.TestCase):
    def lines(self, level, ranks):
        command = programs.mpirun(ranks, [programs.program("kvstore-tour")])
        result = programs.run_command(["env", f"TUTTI_LOG={level}", *command])
        self.assertEqual(result.code, 0, result.err)
        return result.err.splitlines()

    def test_a_healthy_job_logs_nothing_unless_asked(self):
        self.assertEqual(self.lines("quiet", 2), [])
        self.assertEqual(self.lines("warning", 2), [])

    def test_info_says_what_was_chosen_once(self):
        lines = self.lines("info", 2)
        self.assertRegex(lines[0], r"^tutti: rank 0 \(host .+\): info: version .+, 2 ranks on")
        self.assertTrue(all(" rank 0 (host " in line for line in lines), lines)
        self.assertRegex(lines[1], r"info: created in [0-9.e-]+ s, with [0-9.]+ ms of this rank's "
                                   r"processor time$")

    def test_debug_has_every_call_of_every_rank(self):
        lines = self.lines("debug", 2)
        for rank in (0, 1):
            self.assertTrue(any(
                re.search(rf"^tutti: rank {rank} \(host .+\): debug: call \d+, push of key 3 "
                          r"\(2, 3\) float32.*: [0-9.]+ us, tiny: it fits ", line)
                for line in lines), lines)

    def test_another_level_is_refused(self):
        result = programs.run_command(["env", "TUTTI_LOG=loud", programs.program("kvstore-tour")])
        self.assertEqual(result.code, 1)
        self.assertIn("TUTTI_LOG=loud: expected quiet, warning, info or debug", result.err)


class LostOutput(unittest.TestCase):
    """Nothing that a program prints is lost without a word: on a full disk it ends with 2."""

    RUNS = (["kvstore-tour"], ["collective-benchmark", "-b", "8", "-e", "8", "-n", "1"],
            ["tutti-doctor"])

    def check(self, name, *arguments):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([programs.program(name), *arguments], stdout=full,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                  timeout=programs.TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"{name}: error: what was printed could not be written", done.stderr)

    def test_a_file_that_may_not_grow_says_so_and_no_signal_ends_a_program(self):
        def allow_no_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

        with tempfile.TemporaryFile() as file:
            done = subprocess.run([programs.program("collective-simulator"), "--help"], stdout=file,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                  timeout=programs.TIMEOUT_S, check=False,
                                  preexec_fn=allow_no_files)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("could not be written to standard output: File too large", done.stderr)
        self.assertIn("ulimit -f", done.stderr)

    def test_every_program_that_prints_says_so(self):
        names = [path.name for path in sorted(Path(programs.program("")).iterdir())
                 if os.access(path, os.X_OK) and path.is_file() and not path.suffix]
        self.assertIn("collective-benchmark", names)
        for name in names:
            for option in ("--help", "--version"):
                with self.subTest(program=name, option=option):
                    self.check(name, option)

    def test_results_that_are_lost_are_no_success(self):
        for name, *arguments in self.RUNS:
            with self.subTest(program=name):
                self.check(name, *arguments)


class Usage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="usage_test.")
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        cls.data = cls.root / "data"
        cls.data.mkdir()
        programs.write_data(cls.data)

    def check_line(self, text, expected):
        self.assertEqual(len(text.splitlines()), 1, text)
        self.assertTrue(text.startswith("train-fashion-mnist: "), text)
        self.assertIn(expected, text)

    def check_refused_alone(self, arguments, expected):
        result = programs.run("train-fashion-mnist", *arguments)
        self.assertEqual(result.code, 1, result.err)
        self.check_line(result.err, expected)

    def check_refused_by_two(self, arguments, expected):
        script = programs.program("train-fashion-mnist") + ' "$@"'
        codes, err = programs.exit_codes(2, script, *arguments)
        self.assertEqual(codes, [1, 1], err)
        self.check_line(err, expected)

    def copy_of_data(self, name):
        folder = self.root / name
        shutil.copytree(self.data, folder)
        return folder

    def test_every_wrong_argument_is_one_line_and_exit_code_1(self):
        for arguments, expected in REFUSED:
            with self.subTest(arguments=arguments):
                self.check_refused_alone(["--data", self.data, *arguments], expected)

    def test_two_ranks_report_a_wrong_argument_once_and_both_end_with_1(self):
        for arguments, expected in [REFUSED[0], REFUSED[7], REFUSED[-1],
                                    (["--batch-size", "129"], "129 images are not divisible by 2"),
                                    (["--kvstore", "local"], "this job has 2 ranks: use dist"),
                                    (["--kvstore", "device"], "this job has 2 ranks: use dist")]:
            with self.subTest(arguments=arguments):
                self.check_refused_by_two(["--data", self.data, *arguments], expected)

    def test_a_missing_folder_is_named_with_the_package_that_has_the_data(self):
        for check in (self.check_refused_alone, self.check_refused_by_two):
            check(["--data", "/nowhere"], "/nowhere/" + IMAGES)
            check(["--data", "/nowhere"], "apt-get install dataset-fashion-mnist")

    def test_a_file_that_one_rank_alone_misses_ends_all_ranks(self):
        script = (programs.program("train-fashion-mnist") + " --batch-size 96 --data "
                  '$(test "$OMPI_COMM_WORLD_RANK" = 1 && echo /nowhere || echo "$1")')
        codes, err = programs.exit_codes(3, script, self.data)
        self.assertEqual(codes, [1, 1, 1], err)
        self.check_line(err, "/nowhere/" + IMAGES)

    def test_a_truncated_file_is_named(self):
        folder = self.copy_of_data("truncated")
        path = folder / "t10k-images-idx3-ubyte.gz"
        path.write_bytes(path.read_bytes()[:-100])
        self.check_refused_alone(["--data", folder], f"{path}: the gzip data is cut off")

    def test_a_file_with_too_few_images_is_named(self):
        folder = self.copy_of_data("short")
        whole = gzip.decompress((folder / IMAGES).read_bytes())
        (folder / IMAGES).write_bytes(gzip.compress(whole[:-1], compresslevel=1))
        self.check_refused_by_two(["--data", folder], f"{folder / IMAGES}: ends early")

    def test_help_and_version_print_once_and_end_with_0(self):
        for name in ("train-fashion-mnist", "kvstore-tour"):
            for ranks in (None, 2):
                with self.subTest(name=name, ranks=ranks):
                    shown = programs.run(name, "--help", ranks=ranks)
                    self.assertEqual((shown.code, shown.err), (0, ""))
                    self.assertEqual(shown.out.count("--version"), 1)
                    self.assertEqual(shown.out.count("TUTTI_TIMEOUT"), 1)
                    if name == "train-fashion-mnist":
                        self.assertIn("\n  adam,learning_rate=0.001,beta1=0.9,", shown.out)
                    shown = programs.run(name, "--version", ranks=ranks)
                    self.assertEqual((shown.code, shown.err), (0, ""))
                    self.assertGreater(len(shown.out.strip()), 0)

    def test_the_tour_refuses_options_that_it_does_not_have(self):
        codes, err = programs.exit_codes(2, programs.program("kvstore-tour") + " --fast")
        self.assertEqual(codes, [1, 1])
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("unrecognised option '--fast'", err)


if __name__ == "__main__":
    unittest.main()
