#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Joins sources for clang-tidy: tidy_units.py BUILD_FOLDER prints the files to check, a line each.

clang-tidy takes 5 s for what a source includes, and half a second for the source itself. So sources
of one part of the project that are compiled with the same options are read as one, also those of
different programs. CMake has joined the sources of each target; those that it keeps apart stay
alone. What is printed is in BUILD_FOLDER/joined, with the compile_commands.json for it.
"""

import json
import re
import shlex
import sys
from pathlib import Path

INCLUDED = re.compile(r'^#include "(.*)"$', re.MULTILINE)
FUZZED = "LLVMFuzzerTestOneInput"
ENTRY = re.compile(rf"^int (main|{FUZZED})\(", re.MULTILINE)
ALLOWED = "NOLINT(readability-identifier-naming): no macro of a source"
# What a source declares: at the beginning of a line, the name before the first of these.
DECLARED = re.compile(r"^(?!TEST_CASE|using namespace|namespace)\w[^(={;\[]*?(?<!::)\b(\w+)"
                      r"(?: : \w+(?:::\w+)*)? ?[({;=\[]", re.MULTILINE)
MOST = 60  # sources of a unit: one of all tests would be at work when all others are done


def options(command):
    """The compiler and its options, without the names of files."""
    words = shlex.split(command)
    for flag in ("-o", "-c"):
        position = words.index(flag)
        del words[position:position + 2]
    return tuple(words)


def part_of(source):
    """The part of the project that a source belongs to: each folder of tests is one."""
    return source.parts[:2 if source.parts[0] == "tests" else 1]


def is_checked(source, root, build):
    """Not what CMake writes, the examples of pages, and C, which has rules of its own."""
    return (build not in source.parents and root / "tests/docs" not in source.parents
            and source.suffix != ".c")


class Unit:
    """Sources that are read as one: of one target, or of several without a name in common."""

    def __init__(self, sources):
        self.sources = sources
        texts = [source.read_text(encoding="utf-8") for source in sources]
        self.entries = [ENTRY.findall(text) for text in texts]
        self.names = {name for text in texts for name in DECLARED.findall(text)}
        self.names -= {name for entries in self.entries for name in entries}

    def takes(self, other):
        return (len(self.sources) + len(other.sources) <= MOST
                and self.names.isdisjoint(other.names))

    def add(self, other):
        self.sources += other.sources
        self.entries += other.entries
        self.names |= other.names

    def text(self):
        """Programs of one unit have a main function each. A fuzz target's is declared by the main
        function that calls it, which is read first."""
        lines = []
        for source, entries in sorted(zip(self.sources, self.entries),
                                      key=lambda pair: FUZZED in pair[1]):
            stem = re.sub(r"\W", "_", source.stem)
            lines += [f"#define {name} {name}_of_{stem}  // {ALLOWED}" for name in entries]
            lines += [f'#include "{source}"']
            lines += [f"#undef {name}" for name in entries]
        return "\n".join(lines) + "\n"


def sources_of(target, root, build):
    """The sources of an entry of CMake's compile_commands.json: one, or those that are joined."""
    file = Path(target["file"])
    found = [file]
    if file.parent.name == "Unity":
        found = map(Path, INCLUDED.findall(file.read_text(encoding="utf-8")))
    return [source for source in found if is_checked(source, root, build)]


def units(root, build):
    """(options, unit) of each file to check; a source of several targets is in the first."""
    targets = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    targets.sort(key=lambda target: "/Unity/" in target["file"])  # those that are kept apart first
    seen = set()
    found = {}
    for target in targets:
        new = [source for source in sources_of(target, root, build) if source not in seen]
        if not new:
            continue
        seen.update(new)
        words = options(target["command"])
        like = found.setdefault((part_of(new[0].relative_to(root)), words), [])
        unit = Unit(new)
        with_room = next((other for other in like if other.takes(unit)), None)
        if with_room and "/Unity/" in target["file"]:
            with_room.add(unit)
        else:
            like.append(unit)
    return [(words, unit) for (_, words), like in found.items() for unit in like]


def main():
    build = Path(sys.argv[1]).resolve()
    root = build.parent
    database = []
    # The largest first: none is alone at work at the end.
    for words, unit in sorted(units(root, build), key=lambda item: -len(item[1].sources)):
        name = unit.sources[0].relative_to(root).with_suffix(".cpp")
        file = build / "joined" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(unit.text(), encoding="utf-8")
        database.append({"directory": str(build), "file": str(file),
                         "arguments": [*words, "-c", str(file)]})
        print(file.relative_to(root))
    (build / "joined/compile_commands.json").write_text(json.dumps(database), encoding="utf-8")


if __name__ == "__main__":
    main()
