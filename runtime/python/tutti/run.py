# SPDX-License-Identifier: Apache-2.0
"""Starts a job, as launch.sh does, for those who have the package alone:

    python -m tutti.run -np 2 train.py --epochs 3

The options before the program are those of launch.sh: python -m tutti.run --help lists them. A file
of Python is run by this interpreter.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(words: list[str]) -> list[str]:
    """launch.sh with these words. The first of them that is a file of Python is the program."""
    script = Path(__file__).with_name("launch") / "launch.sh"
    for index, word in enumerate(words):
        if word.endswith(".py") and Path(word).is_file():
            is_named = index > 0 and Path(words[index - 1]).name.startswith("python")
            interpreter = [] if is_named else [sys.executable]
            return ["bash", str(script), *words[:index], *interpreter, *words[index:]]
    return ["bash", str(script), *words]


if __name__ == "__main__":
    os.execvp("bash", command(sys.argv[1:]))
