#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of settings in a page is what the library's own help says.

    settings_test.py PROGRAM PAGE.md           compares
    settings_test.py PROGRAM PAGE.md --table   prints the table that should be there
"""

import re
import subprocess
import sys
from pathlib import Path

HEAD = ["| Variable | Values | Meaning |", "|---|---|---|"]
LINE = re.compile(r"^  (TUTTI_\w+)\s+(.*) \[([^\]]*)\]$")


def expected_table(program):
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True,
                          timeout=600).stdout
    rows = [LINE.match(line) for line in text.splitlines() if line.startswith("  TUTTI_")]
    if not rows or None in rows:
        sys.exit(f"{program} --help: cannot read its lines of TUTTI_ variables")
    return HEAD + [f"| `{name}` | {values} | {meaning} |" for name, meaning, values in
                   (row.groups() for row in rows)]


def main():
    program, page = sys.argv[1:3]
    expected = expected_table(program)
    if sys.argv[3:] == ["--table"]:
        print("\n".join(expected))
        return
    lines = Path(page).read_text(encoding="utf-8").splitlines()
    start = lines.index(HEAD[0]) if HEAD[0] in lines else len(lines)
    found = lines[start:start + len(expected)]
    rest = lines[start + len(expected):]
    if found == expected and not (rest and rest[0].startswith("|")):
        return
    print(f"{page}: the table of settings is not what --help says; it should be:")
    print("\n".join(expected))
    sys.exit(1)


if __name__ == "__main__":
    main()
