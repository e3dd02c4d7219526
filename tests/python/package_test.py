# SPDX-License-Identifier: Apache-2.0
"""What is packed for others."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SDIST = "from scikit_build_core.build import build_sdist; build_sdist('packed')"


def test_a_source_distribution_has_the_files_of_the_repository_and_no_others(tmp_path):
    """A clone that was worked in has build folders, by names that nothing ignores."""
    pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True,
                             check=False)
    if tracked.returncode != 0:
        pytest.skip(f"{ROOT} is no clone: {tracked.stderr}")
    files = {name for name in tracked.stdout.split() if (ROOT / name).exists()}
    strays = {"b/CMakeCache.txt", "venv-of-mine/bin/python", "trace.json"}
    for name in files | strays:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if name in files:
            shutil.copy(ROOT / name, tmp_path / name)
        else:
            (tmp_path / name).write_text("a stray file")
    (tmp_path / "packed").mkdir()
    subprocess.run([sys.executable, "-c", SDIST], cwd=tmp_path, check=True, capture_output=True)
    with tarfile.open(*(tmp_path / "packed").glob("*.tar.gz")) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert packed == {name for name in files if not name.startswith(".")} | {"PKG-INFO"}
