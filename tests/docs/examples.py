#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the C++ examples of a page into a program of doctest cases.

    examples.py PAGE.md OUTPUT.cpp             every ```cpp block becomes one case, named after the
                                               heading above it
    examples.py PAGE.md OUTPUT.cpp --program   the page's one block is a program, taken as it is
"""

import sys
from pathlib import Path

HEAD = """// Made from {page} by examples.py.
#undef NDEBUG
#include <cassert>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

using namespace tutti;
"""


def blocks(text):
    """(heading, code, line of its first line) of every block."""
    heading, code, start = "", None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if code is None and line.startswith("#"):
            heading = line.lstrip("# ")
        elif code is None and line == "```cpp":
            code, start = [], number + 1
        elif code is not None and line == "```":
            yield heading, code, start
            code = None
        elif code is not None:
            code.append(line)


def main():
    page, output = sys.argv[1:3]
    if sys.argv[3:] == ["--program"]:
        (_, code, start), = blocks(Path(page).read_text(encoding="utf-8"))
        Path(output).write_text("\n".join([f'#line {start} "{page}"', *code, ""]), encoding="utf-8")
        return
    lines = [HEAD.format(page=Path(page).name)]
    count = 0
    for heading, code, start in blocks(Path(page).read_text(encoding="utf-8")):
        count += 1
        classes = code.index("};") + 1 if "};" in code and code[0].startswith("class") else 0
        lines += [f'#line {start} "{page}"', *(code[:classes])]
        lines += [f'TEST_CASE("{heading}, line {start}") {{', f'#line {start + classes} "{page}"',
                  *code[classes:], "}"]
    if count == 0:
        sys.exit(f"{page}: no examples found")
    Path(output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
