# SPDX-License-Identifier: Apache-2.0
"""What this installation consists of, for reports of faults and for those who wonder which MPI it
is that the library has found."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Iterator

from . import _core

_PACKAGES = ("numpy", "torch", "mpi4py", "ml_dtypes")


def _loaded_files(pattern: str) -> list[str]:
    """The libraries of this process whose names match."""
    with open("/proc/self/maps") as maps:
        files = {line.split(maxsplit=5)[5].rstrip() for line in maps if "/" in line}
    return sorted(file for file in files if re.match(pattern, os.path.basename(file)))


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _lines() -> Iterator[tuple[str, str]]:
    said = dict(line.split(": ", 1) for line in _core.build_info().splitlines() if ": " in line)
    library = next(iter(_loaded_files(r"libtutti\.so")), "unknown")
    plugins = sorted(file.name for file in Path(library).parent.glob("tutti-*/libtutti-mpi-*.so"))
    mpi = _loaded_files(r"libmpi(ch)?(_abi)?\.so")
    yield "tutti", f"{_core.version()}, in {Path(__file__).parent}"
    yield "library", library
    yield "plug-ins", ", ".join(plugins) or "none"
    yield "MPI", said["MPI"] + (f", {', '.join(mpi)}" if mpi else "")
    yield "launcher", _core.launcher() or "none: this process is a job of its own"
    yield "vector instructions", said["vector instructions"]
    yield "GPUs", said["GPUs"]
    yield "compiler", said["compiler"]
    yield "versions", _versions()


def show_config() -> None:
    """Prints which library this is, the MPI that it has found, and versions. Loads the MPI that a
    "dist" store would use, and initialises nothing."""
    text = "\n".join(f"{name}: {value}" for name, value in _lines())
    print(text, file=sys.stdout, flush=True)
