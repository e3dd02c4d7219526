# SPDX-License-Identifier: Apache-2.0
"""Cases with a CMake project of their own, which includes a part of this one."""

import os
import tempfile
import unittest
from pathlib import Path


class ProjectCase(unittest.TestCase):
    """`folder` goes with the case, and has the project in `source`; `builds` counts its builds."""

    PROJECT = ""  # its CMakeLists.txt; {source} is the folder of these sources

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="project_case.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.builds = 0
        (self.folder / "source").mkdir()
        (self.folder / "source" / "CMakeLists.txt").write_text(
            self.PROJECT.format(source=os.environ["INSTALL_SOURCE"]), encoding="utf-8")
