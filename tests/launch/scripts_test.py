#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What can be said of the scripts without running them."""

import shutil
import subprocess
import unittest

import launcher
import verdict


class Shellcheck(unittest.TestCase):
    def setUp(self):
        if not shutil.which("shellcheck"):
            raise unittest.SkipTest("no shellcheck in the PATH")

    def test_shellcheck_finds_nothing(self):
        root = launcher.SCRIPTS.parents[1]
        scripts = [*sorted(root.glob("scripts/**/*.sh")), root / ".ci/run"]
        self.assertGreater(len(scripts), 5)
        done = subprocess.run(["shellcheck", "-x", *map(str, scripts)], capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    verdict.main()
