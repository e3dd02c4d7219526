#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suites that others wrote for MPI: which tests pass as they are, and which with the preloaded
library, on one and on two virtual nodes.

    suites.py mpich FOLDER [--compilers .mpich] [--lists coll comm] [--most-ranks 8]
    suites.py mpi4py FOLDER [--ranks 2 4] [--only cco_buf]
    suites.py imb IMB-MPI1 [--ranks 2 4] [--sizes 3:20]
    suites.py hpcc hpcc [--ranks 2 4] [--sizes 1000]

FOLDER is that of a release's sources: MPICH's test/mpi, which is configured and built in --build
(mpicc and mpif77 with the suffix of --compilers), or mpi4py's (its package and numpy are those of
the Python that runs this). Intel's MPI Benchmarks compare the data if they were built with
CPPFLAGS=-DCHECK. HPCC has to end with the same numbers. Prints a line for each test of MPICH and
for each run of the others, and a table at the end. The exit status is 1 if something fails with the
library alone. What fails of MPICH's is tried once more: machines are busy. So is the program as it
is, eight times, if it fails with the library alone: some hang now and then by themselves.

strangers.sh gets all of them, and runs this. Environment: PRELOAD_LIBRARY; MPIRUN, the launcher and
its flags (mpirun --oversubscribe).
"""

import argparse
import datetime
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import imb

MPIRUN = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe"))
NOT_HERE = ("spawn", "dynproc")  # ranks of several jobs: their calls are left to MPI
table = []


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


def add_row(args, suite, ranks, nodes, without, given):
    table.append(f"| {suite} | {args.mpi} | {ranks} | {nodes} | {without} | {given} "
                 f"| {datetime.date.today()} |")


def runs(args):
    """Ranks, nodes, variables and words for each run of a suite: first without the library, where
    nodes is 0."""
    for ranks in args.ranks:
        yield ranks, 0, {}, f"{ranks} ranks without the library"
        for nodes in args.nodes:
            if nodes <= ranks:
                yield (ranks, nodes, library(nodes, ranks),
                       f"{ranks} ranks with the library on {nodes} node(s)")


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


def wanted(listed, folder, args):
    """The lines of a list that are asked for, each on at most --most-ranks. What then occurs twice
    is done once; what needs more ranks fails without the library, too."""
    found = {}
    for line in lines_of(listed, folder):
        line.ranks = min(line.ranks, args.most_ranks)
        if re.search(args.only, line.program):
            found.setdefault(str(line), line)
    return found.values()


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


def passes(line, variables, args, tries=2):
    """Whether it passes at one of the tries."""
    for _ in range(tries):
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
        for line in wanted(listed, folder, args):
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
            good = [nodes for nodes in args.nodes
                    if passes(line, library(nodes, line.ranks), args)]
            if good != args.nodes and not all(passes(line, {}, args, 1) for _ in range(8)):
                print(f"{line}: fails at times without the library, too", flush=True)
                continue
            counts["without"] += 1
            for nodes in good:
                counts[nodes] += 1
            if good != args.nodes:
                fails.append(str(line))
            print(f"{line}: passes without the library, and with it on {good} nodes", flush=True)
    for nodes in args.nodes:
        add_row(args, f"MPICH's {', '.join(args.lists)}", f"up to {args.most_ranks}", nodes,
                f"{counts['without']} of {counts['built']} pass", f"{counts[nodes]} of those")
    print(f"{counts['lines'] - counts['built']} of {counts['lines']} lines do not build")
    return fails


# --- mpi4py --------------------------------------------------------------------------------------


def try_mpi4py(args):
    fails = []
    command = [sys.executable, args.folder.resolve() / "test/main.py", "--no-builddir"]
    for name in NOT_HERE:
        command += ["-e", name]
    command += ["-i", args.only] if args.only else []
    for ranks, nodes, variables, where in runs(args):
        status, _, errors = run(command, ranks, variables, args.limit * 20, args.folder)
        bad = set(re.findall(r"^(?:FAIL|ERROR): (.*)", errors, re.MULTILINE))
        # Lines of the ranks come in any order.
        counted = sorted(set(re.findall(r"^Ran (\d+) tests", errors, re.MULTILINE)))
        verdicts = sorted(set(re.findall(r"^((?:OK|FAILED)(?: \(.*\))?)$", errors, re.MULTILINE)))
        said = " and ".join(counted) + " run, " + ", ".join(verdicts) if counted else ""
        print(f"{where}: status {status}, {said}", *sorted(bad), flush=True)
        if nodes == 0:
            known, known_status, without = bad, status, said
            continue
        name = "mpi4py's" + (f", {args.only}" if args.only else "")
        add_row(args, name, ranks, nodes, without, said or "does not end")
        if not counted or bad - known or status not in (0, known_status):
            fails.append(f"mpi4py's on {where}")
            if args.verbose:
                print(errors[-4000:])
    return fails


# --- Intel's MPI Benchmarks ----------------------------------------------------------------------

BENCHMARKS = (*imb.COLLECTIVES, "Alltoallv", "Gatherv", "Scatterv")


def try_imb(args):
    fails = []
    only = [name for name in BENCHMARKS if re.search(args.only, name)]
    for ranks, nodes, variables, where in runs(args):
        command = [args.folder.resolve(), "-npmin", ranks, "-msglog", args.sizes or "3:20",
                   "-zero_size", "off", "-iter", 20, "-iter_policy", "off", *only]
        status, output, errors = run(command, ranks, variables, args.limit * 20, ".")
        rows = imb.rows_of(output)
        checked = [row for row in rows if row.defects is not None]
        bad = sum(row.defects != 0 for row in checked)
        said = f"{len(rows)} rows" + (f", {len(checked)} checked: {bad} bad" if checked else "")
        print(f"{where}: status {status}, {said}", flush=True)
        if nodes == 0:
            known, without = (status, len(rows), bad), said
            continue
        add_row(args, "IMB-MPI1", ranks, nodes, without, said)
        if not rows or (status, len(rows), bad) != known:
            fails.append(f"IMB-MPI1 on {where}")
            print(errors[-4000:])
    return fails


# --- HPCC ----------------------------------------------------------------------------------------

# A line for each value that HPCC reads: two of text, the file and its unit, then HPL's problem. Its
# grid has one row of ranks. The last four lines are PTRANS's further sizes: none.
HPCC_INPUT = """\


hpcc.out
8
1
{size}
1
80
0
1
1
{ranks}
16.0
1
2
1
4
1
2
1
1
1
1
1
1
2
64
0
0
1
8

0
0
0
0
"""
HPCC_NUMBERS = r"^(Success|\w+_(?:RnormI|[AXB]norm[1I]|residual|Errors|maxErr))=(.*)"


def try_hpcc(args):
    fails = []
    size = args.sizes or "1000"
    for ranks, nodes, variables, where in runs(args):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "hpccinf.txt").write_text(HPCC_INPUT.format(size=size, ranks=ranks))
            status, _, errors = run([args.folder], ranks, variables, args.limit * 20, folder)
            written = Path(folder, "hpccoutf.txt")
            output = written.read_text() if written.exists() else ""
        numbers = dict(re.findall(HPCC_NUMBERS, output, re.MULTILINE))
        print(f"{where}: status {status},", *(f"{name}={numbers[name]}" for name in numbers),
              flush=True)
        if nodes == 0:
            known = numbers
            continue
        differ = [name for name in {**known, **numbers} if numbers.get(name) != known.get(name)]
        add_row(args, f"hpcc, N = {size}", ranks, nodes, f"{len(known)} numbers",
                f"others: {', '.join(differ)}" if differ else "the same")
        if status != 0 or differ or not known:
            fails.append(f"hpcc on {where}")
            print(errors[-4000:])
    return fails


TRIES = {"mpich": try_mpich, "mpi4py": try_mpi4py, "imb": try_imb, "hpcc": try_hpcc}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=list(TRIES))
    parser.add_argument("folder", type=Path, help="the sources, or the program")
    parser.add_argument("--build", type=Path, default="build/suites", help="for MPICH's")
    parser.add_argument("--compilers", default="", help="what their names end in, such as .mpich")
    parser.add_argument("--lists", nargs="+", default=["coll", "comm", "threads/coll", "f77/coll"])
    parser.add_argument("--most-ranks", type=int, default=8, help="of MPICH's lines")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="of the others")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="", metavar="PATTERN", help="tests whose names match")
    parser.add_argument("--sizes", help="IMB's: powers of two, LEAST:MOST; hpcc's: N")
    parser.add_argument("--mpi", default="MPI", help="its name in the table")
    parser.add_argument("--table", type=Path, help="gets its rows")
    parser.add_argument("--limit", type=int, default=60, help="seconds for one test")
    parser.add_argument("--verbose", action="store_true", help="what failing tests say")
    args = parser.parse_args()
    fails = TRIES[args.suite](args)
    if args.table:
        with open(args.table, "a", encoding="utf-8") as file:
            file.writelines(f"{row}\n" for row in table)
    else:
        print(*table, sep="\n")
    for name in fails:
        print(f"fails with the library alone: {name}")
    sys.exit(1 if fails else 0)


if __name__ == "__main__":
    main()
