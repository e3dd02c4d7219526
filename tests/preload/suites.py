#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suites that others wrote for MPI: which tests pass as they are, and which with the preloaded
library, on one and on two virtual nodes.

    suites.py mpich FOLDER [--compilers .mpich] [--lists coll comm] [--most-ranks 8]
    suites.py mpi4py FOLDER [--ranks 2 4] [--only cco_buf]

FOLDER is that of a release's sources: MPICH's test/mpi, which is configured and built in --build
(mpicc and mpif77 with the suffix of --compilers), or mpi4py's (its package and numpy are those of
the Python that runs this). Prints a line for each test of MPICH and each run of mpi4py, and numbers
at the end. The exit status is 1 if a test fails with the library alone. One that fails is tried
once more: machines are busy.

Environment: PRELOAD_LIBRARY; MPIRUN, the launcher and its flags (mpirun --oversubscribe).
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

MPIRUN = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe"))
NOT_HERE = ("spawn", "dynproc")  # ranks of several jobs: their calls are left to MPI


def library(nodes, ranks):
    """The variables of a run with the library: its ranks are on that many virtual nodes."""
    variables = {"LD_PRELOAD": os.environ["PRELOAD_LIBRARY"]}
    if nodes > 1:
        variables["TUTTI_RANKS_PER_NODE"] = str(-(-ranks // nodes))
    return variables


def run(command, ranks, variables, limit, folder):
    """Exit status, standard output and standard error; the status of a job that does not end is
    None."""
    words = [*MPIRUN, "-np", str(ranks), "env",
             *(f"{name}={value}" for name, value in variables.items()), *map(str, command)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with subprocess.Popen(words, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=folder,
                              start_new_session=True) as job:
            try:
                status = job.wait(limit)
            except subprocess.TimeoutExpired:
                job.terminate()
                try:
                    job.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(job.pid, signal.SIGKILL)
                status = None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return (status, *texts)


# --- MPICH ---------------------------------------------------------------------------------------


@dataclass
class Line:
    """A line of a list of MPICH's tests: "program 4 arg=-x env=NAME=VALUE timeLimit=300"."""

    folder: Path
    program: str
    ranks: int
    words: list = field(default_factory=list)
    variables: dict = field(default_factory=dict)

    def __str__(self):
        return " ".join([f"{self.folder.name}/{self.program}", str(self.ranks), *self.words])


def lines_of(listed, folder):
    found = []
    for text in listed.read_text().splitlines():
        words = text.split("#")[0].split()
        if len(words) < 2 or not words[1].isdigit():
            continue
        line = Line(folder, words[0], int(words[1]))
        for name, value in (word.split("=", 1) for word in words[2:] if "=" in word):
            if name == "arg":
                line.words.append(value)
            elif name == "env":
                line.variables.update([value.split("=", 1)])
        found.append(line)
    return found


def build(args):
    """Configures MPICH's tests, and builds what all of them use."""
    build_folder = args.build.resolve()
    build_folder.mkdir(parents=True, exist_ok=True)
    log = open(build_folder / "suites.log", "a")
    if not (build_folder / "config.status").exists():
        names = {"MPICC": "mpicc", "MPICXX": "mpicxx", "MPIF77": "mpif77", "MPIFC": "mpif90"}
        subprocess.run([args.folder.resolve() / "configure", "--with-mpi=/usr", "--with-cuda=no",
                        "--disable-spawn", "--disable-cxx",
                        "FFLAGS=-fallow-argument-mismatch", "FCFLAGS=-fallow-argument-mismatch",
                        *(f"{name}={file}{args.compilers}" for name, file in names.items())],
                       cwd=build_folder, stdout=log, stderr=log, check=True)
    removed = "CPPFLAGS=-DOMPI_OMIT_MPI1_COMPAT_DECLS=0"  # Open MPI's names that MPI 3 removed
    for part in ("dtpools", "util"):
        subprocess.run(["make", "-C", build_folder / part, removed], stdout=log, stderr=log,
                       check=False)
    return build_folder, log


def passes(line, variables, args):
    """Whether it passes at the first or the second try."""
    for _ in range(2):
        status, output, errors = run([line.folder / line.program, *line.words], line.ranks,
                                     {**line.variables, **variables}, args.limit, line.folder)
        said = {text.strip().lower() for text in output.splitlines() if text.strip()}
        if status == 0 and said and said <= {"no errors", "test passed"}:
            return True
    if args.verbose:
        print(output[-2000:], errors[-2000:], sep="\n")
    return False


def try_mpich(args):
    build_folder, log = build(args)
    counts = dict.fromkeys(("lines", "built", "without", *args.nodes), 0)
    fails = []
    for name in args.lists:
        folder = build_folder / name
        listed = next(file for file in (folder / "testlist", args.folder / name / "testlist")
                      if file.exists())
        for line in lines_of(listed, folder):
            if line.ranks > args.most_ranks or args.only not in line.program:
                continue
            counts["lines"] += 1
            made = subprocess.run(["make", "-C", folder, "CFLAGS=-O0", line.program], stdout=log,
                                  stderr=log, check=False)
            if made.returncode != 0:
                print(f"{line}: is not built", flush=True)
                continue
            counts["built"] += 1
            if not passes(line, {}, args):
                print(f"{line}: fails without the library", flush=True)
                continue
            counts["without"] += 1
            good = [nodes for nodes in args.nodes
                    if passes(line, library(nodes, line.ranks), args)]
            for nodes in good:
                counts[nodes] += 1
            if good != args.nodes:
                fails.append(str(line))
            print(f"{line}: passes without the library, and with it on {good} nodes", flush=True)
    print(f"{counts['lines']} lines, {counts['built']} built: {counts['without']} pass without,",
          ", ".join(f"{counts[nodes]} with the library on {nodes} node(s)" for nodes in args.nodes))
    return fails


# --- mpi4py --------------------------------------------------------------------------------------


def try_mpi4py(args):
    fails = []
    command = [sys.executable, args.folder.resolve() / "test/main.py", "--no-builddir"]
    for name in NOT_HERE:
        command += ["-e", name]
    command += ["-i", args.only] if args.only else []
    for ranks in args.ranks:
        known = None
        for nodes in (0, *args.nodes):
            if nodes > ranks:
                continue
            variables = library(nodes, ranks) if nodes else {}
            status, _, errors = run(command, ranks, variables, args.limit * 20, args.folder)
            bad = set(re.findall(r"^(?:FAIL|ERROR): (.*)", errors, re.MULTILINE))
            counted = re.findall(r"^Ran (\d+) tests.*\n\n(.*)", errors, re.MULTILINE)
            where = f"with the library on {nodes} node(s)" if nodes else "without the library"
            print(f"{ranks} ranks {where}: status {status}, {counted}", *sorted(bad), flush=True)
            if known is None:
                known = bad
            if not counted or bad - known:
                fails.append(f"{ranks} ranks {where}")
                if args.verbose:
                    print(errors[-4000:])
    return fails


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=["mpich", "mpi4py"])
    parser.add_argument("folder", type=Path, help="the sources")
    parser.add_argument("--build", type=Path, default="build/suites", help="for MPICH's")
    parser.add_argument("--compilers", default="", help="what their names end in, such as .mpich")
    parser.add_argument("--lists", nargs="+", default=["coll", "comm", "threads/coll", "f77/coll"])
    parser.add_argument("--most-ranks", type=int, default=8)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="mpi4py's")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="", help="tests whose names have this")
    parser.add_argument("--limit", type=int, default=60, help="seconds for one test")
    parser.add_argument("--verbose", action="store_true", help="what failing tests say")
    args = parser.parse_args()
    fails = try_mpich(args) if args.suite == "mpich" else try_mpi4py(args)
    print(*(f"fails with the library alone: {name}" for name in fails), sep="\n")
    sys.exit(1 if fails else 0)


if __name__ == "__main__":
    main()
