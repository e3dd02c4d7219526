#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Tutti beside the best of other libraries: launches in turn, and one table of them all.

An MPI reads its configuration when it starts, so that each configuration needs launches of its own;
they take turns, in rounds. The table is printed, and lies in --output with results.json,
compare.svg and, in launches/, what each launch measured and said.

Configurations: default, ob1 (--mca pml ob1), sm and han (coll_sm_priority and coll_han_priority
100), tuned3 to tuned6 (that algorithm of coll/tuned's MPI_Allreduce), of the Open MPI that the
programs were built with; these are compared unless --configurations says otherwise. openmpi5,
mpich5, intelmpi (from PyPI) and mpich4 (by apt) are other MPIs; gloo, deepspeed and oneccl (from
PyPI) are measured from Python, in ordinary memory. --install makes what they need.

Exit codes: 0 done; 1 usage; 2 a launch failed, or a library is not to be had: the table names it,
and has the others; 3 a launch had wrong elements.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from comparing import table
from comparing.imb import cross_check
from comparing.libraries import (CONFIGURATIONS, IS_OF_SOURCES, OF_BUILD, ROOT, Environments,
                                 Unavailable, open_mpi_components)

HERE = Path(__file__).resolve().parent
PLOT = HERE / "plot.py"
# An installed copy has its programs beside it, and writes where it is started.
WRITTEN = ROOT / "build" if IS_OF_SOURCES else Path.cwd()
PROGRAMS = ROOT / "build/bin" if IS_OF_SOURCES else HERE.parents[2] / "bin"


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    say(f"error: {text}")
    sys.exit(1)


def print_result(text):
    """As of every program, results that are lost are no success."""
    try:
        print(text, end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python ends without a word
        say("error: what was printed could not be written to standard output: "
            f"{error.strerror}; see whether its disk is full")
        sys.exit(2)


class Parser(argparse.ArgumentParser):
    def print_help(self, file=None):
        print_result(self.format_help())  # argparse does not see whether it is written

    def error(self, message):
        say(f"error: {message}")
        say(self.format_usage().strip())
        sys.exit(1)


def number(text):
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"takes a number from 1 on, not '{text}'")
    return int(text)


def names_in(text):
    names = list(CONFIGURATIONS) if text == "all" else text.split(",")
    for name in names:
        if name not in CONFIGURATIONS:
            raise argparse.ArgumentTypeError(
                f"expected all, or {', '.join(CONFIGURATIONS)}, several between commas; found "
                f"'{name}' in '{text}'")
        if names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"{name} is there twice")
    return names


def parse(arguments):
    own, passed = arguments, []
    if "--" in arguments:
        split = arguments.index("--")
        own, passed = arguments[:split], arguments[split + 1:]
    parser = Parser(description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter,
                    usage="compare.py [-np N] [OPTIONS] [-- OPTIONS OF collective-benchmark...]")
    add = parser.add_argument
    add("-np", "--np", type=number, metavar="N", help="ranks; without it, as launch.sh chooses")
    add("--rounds", type=number, default=3, metavar="N",
        help="launches of each configuration (default 3)")
    add("--configurations", type=names_in, metavar="A,B,...", help="some of those above, or all")
    add("--install", action="store_true",
        help="first make what the configurations need: environments with the packages, and builds "
        "of the benchmark with their MPIs (minutes, and gigabytes for torch)")
    add("--environments", type=Path, default=WRITTEN / "compare-environments",
        metavar="DIR", help=f"folder for them (default {WRITTEN}/compare-environments)")
    add("--busy", type=int, default=0, metavar="N", help="run N programs that compute beside")
    add("--imb", action="store_true",
        help="measure Intel MPI by IMB-MPI1, too, and set its times beside (needs --cache hot)")
    add("--output", type=Path, default=WRITTEN / "compare", metavar="DIR",
        help=f"folder for all that is written (default {WRITTEN}/compare)")
    add("--format", choices=table.FORMATS, default="markdown", help="of what is printed")
    add("--limit", type=number, default=900, metavar="SECONDS",
        help="the longest that a launch may take (default 900)")
    add("--bin", type=Path, metavar="DIR", default=PROGRAMS,
        help=f"folder of the programs (default {PROGRAMS}; with --install, what is missing in the "
        "folder of the sources is built)")
    add("--results", nargs="+", type=Path, metavar="FILE", help="launch nothing: make the table of "
        "these --json files of collective-benchmark, each with a --label")
    add("-b", dest="minbytes", metavar="BYTES", help="smallest size")
    add("-e", dest="maxbytes", metavar="BYTES", help="largest size")
    add("-f", dest="stepfactor", default="4", metavar="FACTOR", help="between sizes (default 4)")
    add("--cache", default="fresh", help="fresh, hot or cold inputs (default fresh)")
    add("--collective", default="allreduce", help="as collective-benchmark has them")
    words = parser.parse_args(own)
    if words.collective == "barrier":
        parser.error("--collective barrier moves no data: there is nothing to compare")
    if words.busy < 0:
        parser.error(f"--busy takes a number from 0 on, not '{words.busy}'")
    if words.imb and words.cache != "hot":
        parser.error("--imb needs --cache hot: IMB-MPI1 does not write its inputs between calls")
    words.benchmark = [word for name, value in (
        ("-b", words.minbytes), ("-e", words.maxbytes), ("-f", words.stepfactor),
        ("--cache", words.cache), ("--collective", words.collective)) if value
                       for word in (name, value)] + passed
    return words


def ask_shell(function):
    """The output of a function of machine.sh, which launch.sh uses, too."""
    return subprocess.run(["bash", "-c", f"source {shlex.quote(str(HERE))}/machine.sh; {function}"],
                          capture_output=True, text=True, check=True).stdout.strip()


def is_batch_job():
    return any(os.environ.get(name) for name in ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID",
                                                 "PE_HOSTFILE", "OMPI_MCA_orte_default_hostfile",
                                                 "PRTE_MCA_prte_default_hostfile"))


class Choice:
    """The configurations to launch, and what the table says of those that are left out."""

    def __init__(self, words, environments):
        self.words, self.environments = words, environments
        self.configurations, self.missing, self.notes = [], [], []
        components = open_mpi_components()
        for name in words.configurations or OF_BUILD:
            self._add(CONFIGURATIONS[name], components)
        if not self.configurations:
            fail("no configuration is left: " + "; ".join(self.missing))
        self.yielding = self._yielding()
        if words.busy:
            self.notes.append(f"beside {words.busy} programs that compute")

    def _add(self, configuration, components):
        name, chosen = configuration.name, bool(self.words.configurations)
        if not configuration.has(self.words.collective):
            if chosen:
                self.missing.append(f"{name}: it has no {self.words.collective} to compare")
            return
        if configuration.component and components and \
                f"mca:{configuration.component}:" not in components:
            if chosen:
                self.missing.append(f"{name}: this Open MPI has no component "
                                    f"{configuration.component}")
            else:
                self.notes.append(f"{name}: left out, as this Open MPI has no component "
                                  f"{configuration.component}")
            return
        try:
            if self.words.install and not configuration.is_of_build:
                say(f"compare.py: installing {name} (log: "
                    f"{self.environments.path(configuration)}/install.log)")
                self.environments.install(configuration)
            self.environments.require(configuration)
        except (Unavailable, OSError) as error:
            self.missing.append(f"{name}: {error}")
            say(f"compare.py: {self.missing[-1]}")
            return
        self.configurations.append(configuration)
        if configuration.options:
            self.notes.append(f"{name}: {shlex.join(configuration.options)}")

    def _yielding(self):
        """Ranks that wait for a core must leave it to the others."""
        if self.words.np is None or is_batch_job():
            return []
        cores = int(ask_shell("usable_cores"))
        if self.words.np <= cores:
            return []
        self.notes.append(f"{self.words.np} ranks on {cores} cores: mpi_yield_when_idle 1 in every "
                          "configuration of Open MPI")
        return ["--mca", "mpi_yield_when_idle", "1"]


# A program of --busy. It ends with this one, however that ends.
COMPUTES = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000): pass
"""


class Launches:
    def __init__(self, words, choice, folder):
        self.words, self.choice, self.folder = words, choice, folder
        self.job, self.files, self.wrong, self.begin = None, [], False, time.monotonic()

    def stop(self, number_of_signal, _frame):
        """Ends the launch under way, and this program as the signal would."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.job:
            self._end(self.job)
        say(f"compare.py: stopped; what was measured so far: {self.folder}")
        os._exit(128 + number_of_signal)

    @staticmethod
    def _end(job):
        job.terminate()
        try:
            job.wait(10)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()

    def command(self, configuration, file):
        words, environments = self.words, self.choice.environments
        variables = {**os.environ, **environments.variables(configuration)}
        if configuration.worker:
            ranks = words.np or int(ask_shell("usable_cores"))
            return [environments.python(configuration), HERE / "comparing/worker.py", "--library",
                    configuration.worker, "--label", configuration.name, "--ranks", ranks,
                    *words.benchmark, "--json", f"{file}.json"], variables
        launcher, program = environments.launcher(configuration), words.bin / "collective-benchmark"
        if launcher:
            variables["MPIRUN"] = str(launcher)
            program = environments.benchmark(configuration)
        is_open_mpi = configuration.is_of_build or configuration.name == "openmpi5"
        return [HERE / "launch.sh", *(["-np", words.np] if words.np else []),
                *(self.choice.yielding if is_open_mpi else []), *configuration.options, program,
                "--backend", "tutti,mpi", "--buffers", "store,user", *words.benchmark, "--label",
                configuration.name, "--json", f"{file}.json"], variables

    def launch(self, configuration, file):
        """FILE.json and FILE.log. Returns the exit code; 124 is a launch that was too long."""
        command, variables = self.command(configuration, file)
        busy = [subprocess.Popen([sys.executable, "-c", COMPUTES, str(os.getpid())])
                for _ in range(self.words.busy)]
        try:
            with open(f"{file}.log", "w", encoding="utf-8") as log:
                self.job = subprocess.Popen([str(word) for word in command], env=variables,
                                            stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT)
            return self.job.wait(self.words.limit)
        except subprocess.TimeoutExpired:
            self._end(self.job)
            return 124
        finally:
            self.job = None
            for program in busy:
                program.kill()
                program.wait()

    def judge(self, configuration, turn, file, code):
        """Notes a launch's exit code: in the table, and for the exit code of this program."""
        where = f"{configuration.name}, round {turn}"
        log = Path(f"{file}.log").read_text(encoding="utf-8", errors="replace")
        if code in (0, 3) and Path(f"{file}.json").exists():
            self.files.append(Path(f"{file}.json"))
            for line in re.findall(r"^# FAILED: (.*)", log, re.MULTILINE) if code else []:
                say(f"compare.py: {where}: {line}")
            self.wrong |= code == 3
            return
        error = re.search(r"collective-benchmark: error: (.*)", log)
        if code == 1 and error:
            fail(f"collective-benchmark: {error[1]}")
        lines = [line for line in log.splitlines() if line.strip("- \t")]
        why = error[1] if error else lines[-1] if lines else "it printed nothing"
        if code == 124:
            why = f"it did not end within {self.words.limit} s"
        self.choice.missing.append(f"{where}: exit code {code}: {why}")
        say(f"compare.py: {self.choice.missing[-1]} (log: {file}.log)")

    def run_all(self):
        configurations = self.choice.configurations
        turns = [(turn, each) for turn in range(1, self.words.rounds + 1)
                 for each in configurations]
        for done, (turn, configuration) in enumerate(turns):
            left = ""
            if done:
                seconds = int((time.monotonic() - self.begin) * (len(turns) - done) / done)
                left = f", {seconds // 60}:{seconds % 60:02d} left"
            say(f"launch {done + 1} of {len(turns)}: {configuration.name}, round {turn}{left}")
            file = self.folder / f"{turn}-{configuration.name}"
            Path(f"{file}.json").unlink(missing_ok=True)
            self.judge(configuration, turn, file, self.launch(configuration, file))


def load(path):
    try:
        return table.Launch(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"--results: {path}: {error.strerror}")
    except table.Refused as error:
        fail(f"--results: {path}: {error}")


def compared(files, **more):
    try:
        return table.Comparison([load(path) for path in files], **more)
    except table.Refused as error:
        fail(str(error))


def write(comparison, words):
    (words.output / "table.md").write_text(table.to_markdown(comparison), encoding="utf-8")
    (words.output / "results.json").write_text(table.to_json(comparison), encoding="utf-8")
    picture = subprocess.run([sys.executable, PLOT, words.output / "results.json",
                              words.output / "compare.svg"], check=False)
    written = "table.md, results.json and compare.svg" if picture.returncode == 0 else \
        "table.md and results.json"
    say(f"compare.py: {written} are in {words.output}")


def require_programs(words):
    """With --install, those of the sources are built where they are missing."""
    program = words.bin / "collective-benchmark"
    may_build = IS_OF_SOURCES and words.bin == PROGRAMS
    if words.install and may_build and not program.exists():
        subprocess.run(["bash", "-c", f"source {shlex.quote(str(HERE))}/common.sh; build "
                        "release collective-benchmark"], check=False)
    if not os.access(program, os.X_OK):
        fail(f"{words.bin} has no collective-benchmark: build it"
             f"{' (--install does so)' if may_build else ''}, or name another folder with --bin")


def main():
    words = parse(sys.argv[1:])
    if words.results:
        comparison = compared(words.results)
        print_result(table.FORMATS[words.format](comparison))
        return 3 if comparison.wrong else 0
    folder = words.output / "launches"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "written").touch()
        (folder / "written").unlink()
    except OSError as error:
        fail(f"cannot write in {folder}: {error.strerror}: name another folder with --output")
    environments = Environments(words.environments)
    choice = Choice(words, environments)
    require_programs(words)
    launches = Launches(words, choice, folder)
    signal.signal(signal.SIGINT, launches.stop)
    signal.signal(signal.SIGTERM, launches.stop)
    launches.run_all()
    if not launches.files:
        say(f"error: no launch has results; logs: {folder}")
        return 2
    comparison = compared(launches.files, missing=choice.missing, notes=choice.notes)
    if words.imb:
        comparison.notes += cross_check(words, environments, comparison)
    write(comparison, words)
    print_result(table.FORMATS[words.format](comparison))
    if comparison.wrong or launches.wrong:
        return 3
    return 2 if choice.missing else 0


if __name__ == "__main__":
    sys.exit(main())
