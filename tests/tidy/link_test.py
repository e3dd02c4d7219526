#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of the folders at link level: no object needs a symbol of a folder above its own.

    link_test.py ROOT BUILD NM

BUILD is one that compiles each source by itself. Prints every finding, and exits with 3 if there is
one.
"""

import re
import subprocess
import sys
from pathlib import Path

from tidy_test import PICTURE, File, drawn_floors

SYMBOL = re.compile(r"^[0-9a-f ]{16} ([TDBRU]) (.*\btutti::.*)$")


def objects(root, build):
    """(source, object) of what the library is made of."""
    for layer in ("collectives", "runtime"):
        for file in (build / layer).rglob("*.o"):
            folder, _, rest = file.relative_to(build).as_posix().partition("/CMakeFiles/")
            source = f"{folder}/{rest.partition('.dir/')[2]}".removesuffix(".o")
            if (root / source).is_file():
                yield source, file


def main():
    root, build, nm = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    picture = File(PICTURE, (root / PICTURE).read_text(encoding="utf-8").splitlines())
    floors = {folder: floor for folder, (floor, _) in drawn_floors(picture).items()}
    home, needed = {}, set()  # of a symbol; (source, symbol)
    for source, file in objects(root, build):
        listed = subprocess.run([nm, "-C", str(file)], capture_output=True, text=True, check=True)
        for kind, symbol in re.findall(SYMBOL.pattern, listed.stdout, re.MULTILINE):
            if kind == "U":
                needed.add((source, symbol))
            else:
                home[symbol] = source

    def floor_of(source):
        return floors.get(str(Path(source).parent), 0)

    found = [f"{source}: needs {symbol}, of {home[symbol]}" for source, symbol in sorted(needed)
             if symbol in home and floor_of(home[symbol]) > floor_of(source)]
    print("\n".join(found + [f"links: {len(home)} symbols, {len(found)} findings"]))
    return 3 if found or not home else 0


if __name__ == "__main__":
    sys.exit(main())
