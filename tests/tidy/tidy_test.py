#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the tree that a program can check.

    tidy_test.py [ROOT]

Prints every finding as file:line: rule: text, and exits with 3 if there is one.
To add a rule: write a function that yields findings, list it in RULES, and give tidy_selftest.py a
tree that breaks it.
"""

import os
import posixpath
import re
import sys
from collections import namedtuple
from pathlib import Path

from classes import classes, definitions
from unmarked import unmarked

Finding = namedtuple("Finding", "path line rule text")
File = namedtuple("File", "path lines")  # path: relative to the root, with slashes

CPP = (".cpp", ".hpp", ".c", ".h", ".cu", ".cuh")
MEASURED = CPP + (".py", ".sh", ".cmake", "CMakeLists.txt", ".ci/run")
MAX_LINES = 500
MAX_PUBLIC_HEADER_LINES = 250
MAX_COLUMNS = 100
MAX_METHODS = 45
# Classes that may have more methods, or be in more than one source, and why.
LARGE_CLASSES = {
    # The public face of the collectives: a method or two for each, which the user looks for here.
    "Communicator": "one public call per collective",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]+>|"[^"]+")')
STANDARD = re.compile(r"^<[a-z_0-9]+>$")
C_HEADER = re.compile(r'^(<std(def|int)\.h>|"tutti/[\w/]+\.h")$')
INTRINSICS = re.compile(r"^<(\w*intrin\.h|arm_\w+\.h|cpuid\.h)>$")
MPI = re.compile(r'^[<"](mpi|mpi-ext)\.h[>"]$')
GPU = re.compile(r'^[<"](cuda|nccl|cublas|cudnn|nvtx|cooperative_groups)[\w/]*(\.h|\.hpp)?[>"]$')

# Layer -> folders whose headers it may include in quotes.
LAYERS = {
    "include": ("tutti/",),
    "collectives": ("tutti/", "collectives/"),
    "runtime": ("tutti/", "collectives/", "runtime/"),
    "apps": ("tutti/", "support/", "apps/"),
}
# Folders that may include more than their layer.
FOLDERS = {
    # The simulator runs the library on clusters that programs know nothing of.
    "apps/simulator": ("runtime/simulated/",),
}
# The page with the picture of the folders below runtime/ and collectives/, and a line of it: the
# number of a floor, its folders as paths below runtime/ or as collectives/..., and a remark.
PICTURE = "runtime/README.md"
FLOOR = re.compile(r"^ *(\d+) \| ([^|]+)")
# The one header that shows a user's program <mpi.h>.
MPI_HEADER = "include/tutti/mpi.hpp"
# What a single file may include beyond its layer.
SYSTEM_HEADERS = {
    MPI_HEADER: {"<mpi.h>"},
    # Peers' rings are mapped before they are used.
    "collectives/wait/slot_ring.cpp": {"<sys/mman.h>", "<unistd.h>"},
    # Who waits yields, and sleeps in the kernel.
    "collectives/wait/wait.cpp": {"<sched.h>"},
    "collectives/job/futex.hpp": {"<linux/futex.h>", "<sys/syscall.h>", "<unistd.h>"},
    "collectives/job/processor_mask.hpp": {"<pthread.h>"},
    # The helpers of a rank: threads with names and without signals, which a fork leaves behind.
    "collectives/job/workers.cpp": {"<pthread.h>", "<unistd.h>"},
}
MARKS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")  # split, so that this line has none
VARIABLE = re.compile(r"\bTUTTI_[A-Z0-9_]*[A-Z0-9]\b")
MACRO = re.compile(r"^\s*#\s*define\s+(TUTTI_\w+)")
ENUMERATOR = re.compile(r"\b(TUTTI_\w+) = \d")  # of the C API
LINK = re.compile(r"\]\(([^()\s]*)\)")  # of a page


def read_tree(root):
    """All text files, but for build folders and hidden folders other than .ci/."""
    files = []
    for folder, subfolders, names in os.walk(root):
        top = Path(folder) == Path(root)
        subfolders[:] = sorted(
            name for name in subfolders
            if name == ".ci" or not (top and name.startswith((".", "build"))))
        for name in sorted(names):
            path = Path(folder) / name
            try:
                text = path.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue
            files.append(File(path.relative_to(root).as_posix(), text.splitlines()))
    return files


def of_kind(files, suffixes):
    return (file for file in files if file.path.endswith(suffixes))


def layer_of(file):
    return file.path.split("/")[0]


def matches(file, pattern):
    """(line number, match) for each line of the file that the pattern is found in."""
    for number, line in enumerate(file.lines, 1):
        found = pattern.search(line)
        if found:
            yield number, found


def includes(file):
    return ((number, found.group(1)) for number, found in matches(file, INCLUDE))


# --- rules ----------------------------------------------------------------------------------------


def quoted_includes(files):
    """include <- collectives <- runtime <- apps: an include in quotes names a folder below."""
    for file in of_kind(files, CPP):
        allowed = LAYERS.get(layer_of(file))
        if allowed:
            allowed += FOLDERS.get(str(Path(file.path).parent), ())
        for number, header in includes(file):
            if allowed and header[0] == '"' and not header[1:].startswith(allowed):
                yield Finding(file.path, number, "quoted_includes",
                              f"{header}: {layer_of(file)}/ may include {', '.join(allowed)}")


def drawn_floors(page):
    """Folder -> (floor, line number), as the picture has them."""
    def path(name):
        return name if name.split("/")[0] == "collectives" else f"runtime/{name}".rstrip("/.")

    return {path(name): (int(found.group(1)), number)
            for number, found in matches(page, FLOOR) for name in found.group(2).split()}


def floors(files):
    """A folder of runtime/ or collectives/ includes folders on lower floors of the picture alone,
    so that no two include each other. The picture has every folder, and no other."""
    page = next((file for file in files if file.path == PICTURE), File(PICTURE, []))
    drawn = drawn_floors(page)
    sources = [file for file in of_kind(files, CPP) if layer_of(file) in ("runtime", "collectives")]
    folders = {str(Path(file.path).parent) for file in sources}
    for folder in sorted(folders - set(drawn)):
        yield Finding(PICTURE, 1, "floors", f"{folder}/ is on no floor of the picture")
    for folder in sorted(set(drawn) - folders):
        yield Finding(PICTURE, drawn[folder][1], "floors", f"{folder}/ has no sources")
    for file in sources:
        own = str(Path(file.path).parent)
        for number, header in includes(file):
            other = str(Path(header[1:-1]).parent)
            if header[0] != '"' or other == own or not {own, other} <= set(drawn):
                continue
            if header[1:].startswith("runtime/") and layer_of(file) == "collectives":
                continue  # quoted_includes tells
            if drawn[other][0] >= drawn[own][0]:
                yield Finding(file.path, number, "floors",
                              f"{header}: {own}/ is on floor {drawn[own][0]} of {PICTURE} and "
                              f"includes lower ones alone; {other}/ is on {drawn[other][0]}")


def standard_only(files):
    """include/ and collectives/ see the standard library; collectives/ also the processor's."""
    for file in of_kind(files, CPP):
        layer = layer_of(file)
        if layer not in ("include", "collectives") or is_public_c(file):
            continue
        for number, header in includes(file):
            if header[0] == '"' or STANDARD.match(header):
                continue
            if layer == "collectives" and INTRINSICS.match(header):
                continue
            if header not in SYSTEM_HEADERS.get(file.path, ()):
                yield Finding(file.path, number, "standard_only",
                              f"{header}: {layer}/ includes the standard library and tutti/ alone")


def is_public_c(file):
    return file.path.startswith("include/") and file.path.endswith(".h")


def c_headers(files):
    """A .h in include/ is C: it includes others like it and, of the standard library, two."""
    for file in filter(is_public_c, files):
        for number, header in includes(file):
            if not C_HEADER.match(header):
                yield Finding(file.path, number, "c_headers", f"{header}: a C header includes "
                              "tutti/...h, <stddef.h> and <stdint.h> alone")


def layer_in_brackets(files):
    """Brackets do not get round the layers; <tutti/...> is for programs, as a user writes it."""
    for file in of_kind(files, CPP):
        layer = layer_of(file)
        if layer not in LAYERS:
            continue
        for number, header in includes(file):
            inside = header.startswith(("<collectives/", "<runtime/", "<apps/", "<tests/"))
            if inside or (header.startswith("<tutti/") and layer != "apps"):
                yield Finding(file.path, number, "layer_in_brackets",
                              f"{header}: write it in quotes, from a layer that may include it")


def vendor_headers(files):
    """MPI, CUDA and NCCL are seen in a folder each; tests see all. A program that computes on GPUs
    does so in files of CUDA."""
    for file in of_kind(files, CPP):
        for number, header in includes(file):
            if MPI.match(header) and not file.path.startswith(
                    ("runtime/mpi/plugin/", "runtime/preload/", "tests/", MPI_HEADER)):
                yield Finding(file.path, number, "vendor_headers",
                              f"{header}: only runtime/mpi/plugin/ and runtime/preload/ include it")
            computes_on_gpus = file.path.startswith("apps/") and file.path.endswith(".cu")
            if GPU.match(header) and not computes_on_gpus and not file.path.startswith(
                    ("runtime/cuda/", "runtime/nccl/", "tests/")):
                yield Finding(file.path, number, "vendor_headers",
                              f"{header}: only runtime/cuda/ and runtime/nccl/ include it")


def file_length(files):
    for file in of_kind(files, MEASURED):
        limit = MAX_PUBLIC_HEADER_LINES if layer_of(file) == "include" else MAX_LINES
        if len(file.lines) > limit:
            yield Finding(file.path, limit + 1, "file_length",
                          f"{len(file.lines)} lines, at most {limit}: which part is its own idea?")


def line_length(files):
    for file in of_kind(files, MEASURED):
        for number, line in enumerate(file.lines, 1):
            if len(line) > MAX_COLUMNS:
                yield Finding(file.path, number, "line_length",
                              f"{len(line)} columns, at most {MAX_COLUMNS}")


def class_size(files):
    """A class has few methods, or a listed reason."""
    for file in of_kind(files, CPP):
        for number, name, methods in classes(file.lines) if layer_of(file) in LAYERS else ():
            if methods > MAX_METHODS and name not in LARGE_CLASSES:
                yield Finding(file.path, number, "class_size", f"{name} has {methods} methods, at "
                              f"most {MAX_METHODS}: which part is a class of its own?")


def class_in_one_source(files):
    """The methods of a class that a header declares are defined in one source, or there is a listed
    reason. Classes of one name in two headers cannot be told from each other."""
    sources = [file for file in of_kind(files, CPP) if layer_of(file) in LAYERS]
    declared = [name for file in of_kind(sources, (".hpp", ".h"))
                for _, name, _ in classes(file.lines)]
    first = {}  # class -> the first source with a method of it
    for file in of_kind(sources, (".cpp", ".cu")):
        for number, qualified in definitions(file.lines):
            parts = qualified.split("::")
            suffixes = ("::".join(parts[i:]) for i in range(len(parts)))
            name = next((suffix for suffix in suffixes if suffix in declared), None)
            if name is None or declared.count(name) > 1 or name in LARGE_CLASSES:
                continue
            if first.setdefault(name, file.path) != file.path:
                yield Finding(file.path, number, "class_in_one_source",
                              f"{name} has methods in {first[name]}, too")
                first[name] = file.path  # once per file


def tabs(files):
    for file in of_kind(files, MEASURED + (".md", ".json")):
        for number, _ in matches(file, re.compile(r"\t")):
            yield Finding(file.path, number, "tabs", "a tab")


def license_line(files):
    for file in of_kind(files, CPP):
        if not file.lines or file.lines[0] != "// SPDX-License-Identifier: Apache-2.0":
            yield Finding(file.path, 1, "license_line",
                          "the first line is // SPDX-License-Identifier: Apache-2.0")


def readme(files):
    """A top folder has a README.md; one that only holds folders may leave it to them."""
    paths = {file.path for file in files}
    folders = {str(Path(path).parent) for path in paths if "/" in path and path[0] != "."}
    for top in sorted({folder.split("/")[0] for folder in folders}):
        has_files = top in folders
        below = {"/".join(folder.split("/")[:2]) for folder in folders if "/" in folder
                 and folder.startswith(top + "/")}
        if f"{top}/README.md" in paths:
            continue
        if has_files or not all(f"{folder}/README.md" in paths for folder in below):
            yield Finding(top, 1, "readme", f"{top}/README.md is missing")


def anchors(page):
    """The names that links to the headings of a page have."""
    text = re.sub(r"^ *```.*?^ *```$", "", "\n".join(page.lines), flags=re.S | re.M)
    headings = re.findall(r"^#+ +(.*?) *$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(files):
    """A link from a page into the tree names a file or folder, and one of a page's headings."""
    there = {file.path for file in files}
    there.update(str(parent) for path in list(there) for parent in Path(path).parents)
    headings = {page.path: anchors(page) for page in of_kind(files, (".md",))}
    for page in of_kind(files, (".md",)):
        for number, link in ((number, link) for number, line in enumerate(page.lines, 1)
                             for link in LINK.findall(line) if "://" not in link):
            name, _, heading = link.partition("#")
            folder = posixpath.dirname(page.path)
            target = posixpath.normpath(posixpath.join(folder, name)) if name else page.path
            if target not in there:
                yield Finding(page.path, number, "links", f"{link}: there is no {target}")
            elif heading and heading not in headings.get(target, ()):
                yield Finding(page.path, number, "links", f"{link}: {target} has no such heading")


def unfinished_marks(files):
    for file in files:
        for number, found in matches(file, MARKS):
            yield Finding(file.path, number, "unfinished_marks", f"{found.group(1)} in the tree")


def names_source(text, path):
    """True if a CMakeLists.txt names the path, or its stem where a loop adds the suffix."""
    def has(name):
        return re.search(r"(?<![\w./-])" + re.escape(name) + r"(?![\w.])", text)

    beside = len(path.parts) == 1
    return has(path.as_posix()) or (beside and "}" + path.suffix in text and has(path.stem))


def built_sources(files):
    """Every source is named by a CMakeLists.txt, by its path from there or from the root; else
    nobody compiles it."""
    lists = {Path(file.path).parent: "\n".join(line.split("#")[0] for line in file.lines)
             for file in files if Path(file.path).name == "CMakeLists.txt"}
    from_root = "\n".join(lists.values()).replace("${PROJECT_SOURCE_DIR}/", "")
    for file in of_kind(files, (".cpp", ".c", ".cu")):
        path = Path(file.path)
        above = (folder for folder in path.parents if folder in lists)
        if names_source(from_root, path):
            continue
        if not any(names_source(lists[folder], path.relative_to(folder)) for folder in above):
            yield Finding(file.path, 1, "built_sources", "no CMakeLists.txt names this file")


def using_namespace_std(files):
    for file in of_kind(files, CPP):
        for number, _ in matches(file, re.compile(r"^\s*using\s+namespace\s+std\b")):
            yield Finding(file.path, number, "using_namespace_std", "using namespace std")


def old_doctest(files):
    """Ubuntu 22.04 has doctest 2.4.7."""
    for file in of_kind(files, CPP):
        for number, _ in matches(file, re.compile(r"\bdoctest::Contains\b")):
            yield Finding(file.path, number, "old_doctest",
                          "doctest::Contains, which doctest has from 2.4.9 on; see "
                          "test::expect_error")


def documented_variables(files):
    """What the tree calls TUTTI_... is a documented setting, a CMake variable, a macro or a number
    of the C API."""
    known = set()
    for file in files:
        if file.path == "include/tutti/settings.hpp" or file.path.endswith(
                (".cmake", ".cmake.in", "CMakeLists.txt", "CMakePresets.json")):
            known.update(VARIABLE.findall("\n".join(file.lines)))
        known.update(found.group(1) for _, found in matches(file, MACRO))
        if is_public_c(file):
            known.update(ENUMERATOR.findall("\n".join(file.lines)))
    for file in of_kind(files, CPP + (".sh", ".md")):
        if layer_of(file) == "tests":  # they use variables that do not exist, on purpose
            continue
        for number, line in enumerate(file.lines, 1):
            for name in sorted(set(VARIABLE.findall(line)) - known):
                yield Finding(file.path, number, "documented_variables",
                              f"{name} is documented neither in settings.hpp nor by CMake")


def exported_declarations(files):
    """What a public header declares is exported by the shared library."""
    for file in of_kind(files, (".hpp", ".h")):
        for number, name in unmarked(file.lines) if layer_of(file) == "include" else ():
            yield Finding(file.path, number, "exported_declarations",
                          f"{name}: neither inline nor marked TUTTI_API (tutti/export.h)")


RULES = (quoted_includes, floors, standard_only, c_headers, layer_in_brackets, vendor_headers,
         file_length, line_length, class_size, class_in_one_source, tabs, license_line, readme,
         links, unfinished_marks, built_sources, using_namespace_std, old_doctest,
         documented_variables, exported_declarations)


def findings(root):
    files = read_tree(root)
    return sorted(finding for rule in RULES for finding in rule(files))


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    if not (root / "CMakeLists.txt").is_file():
        print(f"tidy: {root} is not a source tree: it has no CMakeLists.txt", file=sys.stderr)
        return 1
    found = findings(root)
    for finding in found:
        print(f"{finding.path}:{finding.line}: {finding.rule}: {finding.text}")
    print(f"tidy: {len(found)} findings")
    return 3 if found else 0


if __name__ == "__main__":
    sys.exit(main())
