#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Joins sources for clang-tidy: tidy_units.py BUILD_FOLDER prints the files to check, a line each.

clang-tidy takes 5 s for what a source includes, and half a second for the source itself. So sources
of one part of the project are read as one, also those of different programs, where their names and
options allow it. CMake has joined the sources of each target. What is printed is in
BUILD_FOLDER/joined, with the compile_commands.json for it.
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
USED = re.compile(r"^using ((?:\w+::)+(\w+));", re.MULTILINE)
# The library's own namespace has no names that tests give to something else.
OPENED = re.compile(r"^ *using namespace (?!tutti;)([\w:]+);", re.MULTILINE)
WRITTEN_OR_WARNED = re.compile(r"-(W|O|f(?!no-exceptions|no-rtti))")
MOST = 60  # sources of a unit: one of all tests would be at work when all others are done


class Options:
    """What the compiler is told, without what only matters for what it writes, or warns of."""

    def __init__(self, command):
        self.definitions = {}  # words by the names that they define
        self.folders = []  # a pair of words each
        self.others = []
        words = iter(shlex.split(command))
        for word in words:
            if word in ("-o", "-c"):
                next(words)
            elif word in ("-I", "-isystem"):
                self.folders.append((word, next(words)))
            elif word.startswith("-I"):
                self.folders.append(("-I", word[2:]))
            elif word.startswith("-D"):
                self.definitions[word[2:].partition("=")[0]] = word
            elif not WRITTEN_OR_WARNED.match(word):
                self.others.append(word)

    def takes(self, other):
        return self.others == other.others and all(
            self.definitions.get(name, word) == word for name, word in other.definitions.items())

    def add(self, other):
        self.definitions |= other.definitions
        self.folders += [folder for folder in other.folders if folder not in self.folders]

    def words(self):
        return [*self.others, *self.definitions.values(),
                *(word for folder in self.folders for word in folder)]


def is_checked(source, root, build):
    """Not what CMake writes, the examples of pages, and C, which has rules of its own."""
    return (build not in source.parents and root / "tests/docs" not in source.parents
            and source.suffix != ".c")


class Unit:
    """Sources that are read as one: of one target, or of several without a name in common."""

    def __init__(self, sources, options):
        self.sources = sources
        self.options = options
        texts = [source.read_text(encoding="utf-8") for source in sources]
        self.entries = [ENTRY.findall(text) for text in texts]
        # By name what it stands for: a thing of the source's own, or one that others may use, too.
        self.names = {name: source for source, text in zip(sources, texts)
                      for name in DECLARED.findall(text)}
        self.names |= {name: whole for text in texts for whole, name in USED.findall(text)}
        self.opened = {name for text in texts for name in OPENED.findall(text)}
        for name in {name for entries in self.entries for name in entries}:
            self.names.pop(name, None)

    def takes(self, other):
        return (len(self.sources) + len(other.sources) <= MOST
                and self.options.takes(other.options) and self.opened == other.opened
                and all(self.names.get(name, what) == what for name, what in other.names.items()))

    def add(self, other):
        self.sources += other.sources
        self.options.add(other.options)
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
    """The unit of each file to check; a source of several targets is in the first."""
    targets = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    targets.sort(key=lambda target: "/Unity/" in target["file"])  # those that are kept apart first
    seen = set()
    parts = {}
    for target in targets:
        new = [source for source in sources_of(target, root, build) if source not in seen]
        if not new:
            continue
        seen.update(new)
        part = parts.setdefault(new[0].relative_to(root).parts[0], [])
        unit = Unit(new, Options(target["command"]))
        with_room = next((other for other in part if other.takes(unit)), None)
        if with_room and "/Unity/" in target["file"]:
            with_room.add(unit)
        else:
            part.append(unit)
    return [unit for part in parts.values() for unit in part]


def main():
    build = Path(sys.argv[1]).resolve()
    root = build.parent
    database = []
    # The largest first: none is alone at work at the end.
    for unit in sorted(units(root, build), key=lambda unit: -len(unit.sources)):
        name = unit.sources[0].relative_to(root).with_suffix(".cpp")
        file = build / "joined" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(unit.text(), encoding="utf-8")
        database.append({"directory": str(build), "file": str(file),
                         "arguments": [*unit.options.words(), "-c", str(file)]})
        print(file.relative_to(root))
    (build / "joined/compile_commands.json").write_text(json.dumps(database), encoding="utf-8")


if __name__ == "__main__":
    main()
