#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""all_reduce through torch.distributed, over gloo and over tutti in turn; no test, as it measures.

    mpirun -np 2 python tests/python/torch_costs.py

A line per size: the p50 of each backend in microseconds, the most over the ranks, and how many
times as long gloo takes. "fresh": memory that is new in each call, and was just written, as
gradients are. Every call's sum is checked.
"""

import os
import statistics
import time

import torch
import torch.distributed as dist

import tutti.torch  # registers the backend

# bytes, calls per turn, whether memory is new in each call
CASES = [(8, 400, False), (8 << 10, 400, False), (940 << 10, 60, False), (2 << 20, 60, False),
         (2 << 20, 60, True), (32 << 20, 12, False), (32 << 20, 12, True)]
TURNS = int(os.environ.get("TURNS", "4"))


def times_of(group, size, calls, is_fresh, value):
    """Seconds of each call; the group's ranks begin each together."""
    tensor, taken = torch.empty(size // 4), []
    for _ in range(calls):
        if is_fresh:
            tensor = torch.empty(size // 4)
        tensor.fill_(value)
        dist.barrier(group)
        begin = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        taken.append(time.perf_counter() - begin)
        expected = dist.get_world_size() * (dist.get_world_size() + 1) / 2
        assert tensor[0] == expected and tensor[-1] == expected and bool((tensor == expected).all())
    return taken


def most_over_ranks(group, seconds):
    cell = torch.tensor([seconds])
    dist.all_reduce(cell, dist.ReduceOp.MAX, group=group)
    return 1e6 * cell.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "tutti": dist.new_group(backend="tutti")}
    rank = dist.get_rank()
    if rank == 0:
        print(f"{'bytes':>10} {'':<6}{'gloo':>10}{'tutti':>10}{'ratio':>8}   microseconds, "
              f"{dist.get_world_size()} ranks, torch {torch.__version__}")
    for size, calls, is_fresh in CASES:
        taken = {name: [] for name in groups}
        for turn in range(TURNS + 1):
            for name, group in groups.items():
                found = times_of(group, size, calls, is_fresh, float(rank + 1))
                if turn > 0:  # the first warms up
                    taken[name] += found
        p50 = {name: most_over_ranks(groups["tutti"], statistics.median(taken[name]))
               for name in groups}
        if rank == 0:
            print(f"{size:>10} {'fresh' if is_fresh else '':<6}{p50['gloo']:10.1f}"
                  f"{p50['tutti']:10.1f}{p50['gloo'] / p50['tutti']:8.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
