#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's own tests of horovod.torch over tutti.horovod.torch.

    git clone --depth 1 https://github.com/horovod/horovod
    PYTHONPATH=build/python build/venv/bin/python tests/python/horovod_own_tests.py \\
        horovod/test/parallel/test_torch.py --ranks 2

Prints one line per test, and numbers at the end. Those that Horovod itself skips here, such as
those for GPUs, are skipped. Needs the packages packaging and pytest.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path

from own_tests import run_all


def load(path):
    """The tests, to which tutti.horovod.torch is horovod.torch."""
    import tutti.horovod.torch

    horovod = types.ModuleType("horovod")
    horovod.torch = tutti.horovod.torch
    common = types.ModuleType("common")  # what they take of a module beside them
    common.mpi_env_rank_and_size = lambda: tuple(
        int(os.environ.get(f"OMPI_COMM_WORLD_{name}", one)) for name, one in (("RANK", 0),
                                                                              ("SIZE", 1)))
    common.skip_or_fail_gpu_test = lambda case, why: case.skipTest(why)

    class TempPath(tempfile.TemporaryDirectory):
        def __enter__(self):
            return os.path.join(super().__enter__(), "file")

    common.temppath = TempPath
    sys.modules.update({"horovod": horovod, "horovod.torch": tutti.horovod.torch,
                        "common": common})
    spec = importlib.util.spec_from_file_location("horovod_test_torch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TorchTests


def outcome(case):
    marks = getattr(getattr(case, case._testMethodName), "pytestmark", [])
    for mark in marks:
        if mark.name == "skip":
            return f"skip: {mark.kwargs.get('reason', '')}"
    result = unittest.TestResult()
    case.run(result)
    for _, text in result.errors + result.failures:
        return f"fail: {text}"
    return f"skip: {result.skipped[0][1]}" if result.skipped else "pass"


def run_tests(path, folder, names):
    import torch

    import tutti.torch

    torch.set_num_threads(1)
    ranks = tutti.torch.world()
    tests = load(path)
    for name in names:
        here = folder / name
        if ranks.rank == 0:
            here.mkdir()
        ranks.barrier()
        (here / f"rank{ranks.rank}").write_text(outcome(tests(name)))
        try:
            ranks.barrier()
        except Exception:  # after a failed test, of which some rank still waits
            os._exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", help="test/parallel/test_torch.py of Horovod's sources")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("-k", default="", help="only tests whose names have this")
    parser.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        run_tests(args.tests, Path(args.rank[0]), Path(args.rank[1]).read_text().split())
        return
    found = [name for name in dir(load(args.tests)) if name.startswith("test_") and args.k in name]
    run_all(args.ranks, [__file__, args.tests], found)


if __name__ == "__main__":
    main()
