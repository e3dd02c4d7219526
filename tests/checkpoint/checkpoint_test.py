#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of whole jobs: other numbers of ranks, jobs that are killed, disks that are full.

Environment: CHECKPOINT_WORKER, the program; CHECKPOINT_MPIRUN, the launcher and its flags.
"""

import json
import os
import random
import re
import shlex
import signal
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import verdict

WORKER = os.environ["CHECKPOINT_WORKER"]
MPIRUN = shlex.split(os.environ["CHECKPOINT_MPIRUN"])
TIMEOUT_S = 600
KILLS = 200
KILLED_JOBS = 12


def command(ranks, *arguments):
    launcher = [] if ranks is None else [*MPIRUN, "--quiet", "-np", str(ranks)]
    return [*launcher, WORKER, *map(str, arguments)]


def run(ranks, *arguments):
    return subprocess.run(command(ranks, *arguments), capture_output=True, text=True,
                          timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)


def children(process):
    """The process ids of the ranks that a launcher has started."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(child) for child in path.read_text(encoding="ascii").split()]


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="checkpoint_test.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def succeed(self, ranks, *arguments):
        result = run(ranks, *arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout


class Ranks(Folder):
    def test_what_n_ranks_saved_m_ranks_load_and_train_on_alike(self):
        files = {}
        for saved_by in (1, 2, 3, 4):
            directory = self.folder / f"by{saved_by}"
            expected = self.succeed(saved_by, "save", directory)
            self.assertRegex(expected, r"^digest \d+\n$")
            for path in sorted(directory.rglob("*")):
                if path.is_file():
                    name = path.relative_to(directory)
                    content = path.read_bytes()
                    if path.name == "manifest.json":
                        content = json.loads(content)
                        del content["writer"], content["xxh3"]  # who wrote, and when
                    self.assertEqual(files.setdefault(name, content), content,
                                     f"{name} depends on the number of ranks")
            for loaded_by in (1, 2, 3, 4):
                with self.subTest(saved_by=saved_by, loaded_by=loaded_by):
                    self.assertEqual(self.succeed(loaded_by, "go-on", directory), expected)
        self.assertEqual(len(files), 4)

    def test_optimizer_states_alone_load_with_any_number_of_ranks(self):
        expected = self.succeed(2, "save", self.folder / "c")
        for ranks in (1, 3, 4):
            self.assertEqual(self.succeed(ranks, "go-on-states", self.folder / "c"), expected)

    def test_a_file_can_be_read_by_the_rules_of_its_format(self):
        self.succeed(1, "save", self.folder / "c")
        data = (self.folder / "c" / "generation-1" / "weights.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        import json
        header = json.loads(data[8:8 + length])
        metadata = header.pop("__metadata__")
        self.assertTrue(all(isinstance(text, str) for text in metadata.values()))
        self.assertEqual(list(header), [f"key{i}" for i in range(5)])
        end = 0
        for tensor in sorted(header.values(), key=lambda tensor: tensor["data_offsets"]):
            self.assertEqual(tensor["dtype"], "F32")
            self.assertEqual(tensor["data_offsets"][0], end)
            end = tensor["data_offsets"][1]
        self.assertEqual(8 + length + end, len(data))


class Damage(Folder):
    def test_a_damaged_generation_is_passed_over_aloud_and_once(self):
        directory = self.folder / "c"
        self.succeed(2, "save", directory)
        older = directory / "generation-1"
        newer = directory / "generation-2"
        newer.mkdir()
        for path in older.iterdir():
            (newer / path.name).write_bytes(path.read_bytes())
        with open(newer / "weights.safetensors", "r+b") as file:
            file.seek(-1000, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1000, os.SEEK_END)
            file.write(bytes([byte[0] ^ 0x80]))
        result = run(3, "load", directory)
        self.assertEqual((result.returncode, result.stdout), (0, "generation 1\n"))
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for words in (r"^tutti: rank 0 \(host .*\): warning: loaded generation 1 of ",
                      "generation 2 is damaged", "weights.safetensors", "key4", "checksum"):
            self.assertRegex(result.stderr, words)


class Full(Folder):
    """Needs a file system of its own that can be full, and so the right to mount one."""

    def setUp(self):
        super().setUp()
        mount = ["mount", "-t", "tmpfs", "-o", "size=14m", "tmpfs", str(self.folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            raise unittest.SkipTest("no right to mount a small tmpfs")
        self.addCleanup(subprocess.run, ["umount", str(self.folder)], check=True)

    def test_a_full_disk_is_one_error_with_a_remedy_and_frees_what_it_took(self):
        # 6.3 MiB of weights and twice that of states: the second file does not fit.
        result = run(2, "save", self.folder / "c")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for words in (r"ranks? 0 .*\(host .*\)", "optimizer.safetensors", "No space left on device",
                      "free some space"):
            self.assertRegex(result.stderr, words)
        self.assertEqual(list((self.folder / "c").iterdir()), [])


class Killed(Folder):
    """kill -9 at random moments; the next start loads what was reported as saved, or later."""

    def start(self, ranks, elements):
        kind = "local" if ranks is None else "dist"
        return subprocess.Popen(command(ranks, "loop", self.folder / "c", elements, kind),
                                stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, start_new_session=True)

    def check(self, process, output, least):
        """The last step that was reported as saved, after a job that began no earlier."""
        self.assertNotEqual(process.returncode, 3, "a checkpoint is not whole")
        lines = output.splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
        self.assertTrue(lines, f"it ended with {process.returncode} before it was killed")
        loaded = re.fullmatch(r"loaded (\d+)\n", lines[0])
        self.assertTrue(loaded, output)
        self.assertGreaterEqual(int(loaded[1]), least)
        return max([int(loaded[1])] + [int(line.split()[1]) for line in lines[1:]])

    def wait_into_a_save(self, process, moments):
        """Waits for one whole save, and then for a part of the time that it took; what was said."""
        said = process.stdout.readline()  # a kill before it has loaded would say nothing
        begin = time.monotonic()
        said += process.stdout.readline()
        time.sleep(moments.uniform(0, time.monotonic() - begin))
        return said

    def test_a_process_killed_at_any_moment_leaves_a_checkpoint_that_is_whole(self):
        moments = random.Random(3)
        step = 0
        partial = 0
        for _ in range(KILLS):
            process = self.start(None, 1_200_000)
            said = self.wait_into_a_save(process, moments)
            process.kill()
            step = self.check(process, said + process.communicate()[0], step)
            partial += bool(list((self.folder / "c").glob("*.partial")))
        self.assertGreaterEqual(step, KILLS)
        self.assertGreater(partial, KILLS / 10, "the kills hit no save that was under way")

    def test_a_rank_killed_at_any_moment_leaves_a_checkpoint_that_is_whole(self):
        moments = random.Random(4)
        step = 0
        for job in range(KILLED_JOBS):
            ranks = 2 + job % 3
            process = self.start(ranks, 3_000_000)
            said = self.wait_into_a_save(process, moments)
            victims = children(process)
            self.assertEqual(len(victims), ranks)
            os.kill(moments.choice(victims), signal.SIGKILL)
            step = self.check(process, said + process.communicate(timeout=TIMEOUT_S)[0], step)
        self.assertGreaterEqual(step, KILLED_JOBS)


if __name__ == "__main__":
    verdict.main()
