#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed, which its wheel ships, over the backend tutti.

    PYTHONPATH=build/python build/venv/bin/python tests/python/torch_own_tests.py --ranks 2

Each is run by all ranks of a job. They are told that the backend is gloo, the one for CPUs that
they know, so that those for CPUs are not skipped; the process groups are tutti's. Where a test ends
its job, or does not end, a new job goes on with the next one. Prints one line per test, and numbers
at the end. Needs the packages expecttest and numpy.
"""

import argparse
import importlib
import os
import tempfile
import traceback
from pathlib import Path

from own_tests import run_all

CLASSES = "torch.testing._internal.distributed.distributed_test"
FOR_GPUS = ("cuda", "gpu", "nccl")  # in names of tests that are not for CPUs


# --- a rank --------------------------------------------------------------------------------------


def outcome(case):
    """Runs it: "pass", "skip: why", or "fail: the traceback"."""
    import unittest

    from torch.testing._internal.common_distributed import TEST_SKIPS
    from torch.testing._internal.common_utils import set_rng_seed

    set_rng_seed()
    try:
        getattr(case, case._testMethodName)()
    except unittest.SkipTest as skipped:
        return f"skip: {skipped}"
    except SystemExit as ended:
        for known in TEST_SKIPS.values():
            if known.exit_code == ended.code:
                return f"skip: {known.message}"
        return f"fail: exit code {ended.code}"
    except BaseException:  # whatever it is, it is written down
        text = traceback.format_exc().split("\nTo execute this test")[0].rstrip()
        return f"fail: {text}"
    return "pass"


def run_tests(folder, names):
    """What a rank does: an init_process_group, a test and a destroy_process_group for each name."""
    import torch
    import torch.distributed as dist

    import tutti.torch

    ranks = tutti.torch.world()
    torch.set_num_threads(1)
    tests = importlib.import_module(CLASSES)
    os.environ["BACKEND"] = "mpi"  # of which alone they do not expect eight ranks

    class Ours(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        pass

    for name in names:
        here = folder / name
        if ranks.rank == 0:
            for part in ("barrier", "test_dir", "init_dir"):
                (here / part).mkdir(parents=True)
        ranks.barrier()
        os.environ["TEMP_DIR"] = str(here)
        tests.Barrier.barrier_id = 0
        dist.init_process_group("tutti", init_method=f"file://{here}/init", rank=ranks.rank,
                                world_size=ranks.size)
        case = Ours(name)
        case.rank = ranks.rank
        case.file_name = str(here / "shared")
        found = outcome(case)
        (here / f"rank{ranks.rank}").write_text(found)
        try:
            ranks.barrier()
            dist.destroy_process_group()
        except Exception:  # after a failed test, of which some rank still waits
            os._exit(1)


# --- the launcher --------------------------------------------------------------------------------


def all_names(pattern):
    tests = importlib.import_module(CLASSES)
    found = [name for name in dir(tests.DistributedTest._DistTestBase) if name.startswith("test_")]
    return [name for name in found
            if pattern in name and not any(word in name for word in FOR_GPUS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("-k", default="", help="only tests whose names have this")
    parser.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["BACKEND"] = "gloo"
    os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
    os.environ.setdefault("WORLD_SIZE", str(args.ranks))
    if args.rank:
        os.environ.pop("WORLD_SIZE")
        import tutti.torch  # sets it again
        run_tests(Path(args.rank[0]), Path(args.rank[1]).read_text().split())
        return
    run_all(args.ranks, [__file__], all_names(args.k))


if __name__ == "__main__":
    main()
